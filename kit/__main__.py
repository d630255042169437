# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB [words]: what make's verbs call. Variables come by the environment; one that
the verb would ignore is an error."""
import importlib
import os
import sys
from collections import namedtuple

from kit import common

# needs: what has to be there: `series` is linux/ as series/ describes it (work in it is kept),
# `own` the same or another of its commits, or the user's own tree with LINUX=
Verb = namedtuple('Verb', 'module function variables needs', defaults=('', ''))

VERBS = {
    'run': Verb('run', 'main', 'LINUX BASE TOPIC RUNS', 'own'),
    'test': Verb('test', 'main', 'LINUX BASE ARCH FLAVOUR TEST CPUS IOMMU FULL', 'own'),
    'shell': Verb('shell', 'main',
                  'LINUX BASE ARCH FLAVOUR TREE CPUS MEM IOMMU APPEND SHARE GDB', 'own'),
    'soak': Verb('soak', 'main', 'MINUTES ARCH FLAVOUR SEED', 'series'),
    'differ': Verb('differ', 'main', 'CALLS IOMMU SEED', 'series'),
    'bench': Verb('bench', 'main', 'TOPIC PART RUNS ROUNDS FULL', 'series'),
    # it makes linux/ itself, beside its first checks
    'check': Verb('checks', 'main', 'LINUX CHECK FULL'),
    'mail': Verb('mail', 'main', 'LINUX TOPIC PATCH TO SEND', 'series'),
    'tree': Verb('tree', 'main', 'LINUX', 'base'),
    'export': Verb('export', 'main'),
    'deps': Verb('deps', 'main', 'ARCH FULL'),
    # for whoever works here, no verbs of make
    'base': Verb('base', 'main', 'LINUX'),
    'build': Verb('build', 'build'),
    'config': Verb('config', 'configure'),
    'boot': Verb('boot', 'main'),
    'table': Verb('table', 'show'),
    'tables': Verb('pages', 'write'),
    'plot': Verb('plot', 'draw'),
}
KNOWN = {name for verb in VERBS.values() for name in verb.variables.split()}
# of the environment, not of make: a shell may have them for something else
FOREIGN = {'ARCH', 'BASE', 'TREE', 'MEM', 'SHARE', 'APPEND', 'CPUS', 'TO', 'SEED'}


def check_variables(name, verb):
    """Those of other verbs are errors; of names that others use too only what came by make."""
    by_make = os.environ.get('MAKEFLAGS', '').partition(' -- ')[2]
    for variable in sorted(KNOWN - set(verb.variables.split())):
        if os.environ.get(variable) and (variable not in FOREIGN or f'{variable}=' in by_make):
            common.die(f'{variable}= means nothing to {name}'
                       f'{" (known: " + verb.variables + ")" if verb.variables else ""}')


def prepare(name, verb):
    """Packages, linux/, and the user's own tree."""
    if not verb.needs:
        return
    from kit import prepare as needed
    needed.packages(name)
    # of mail LINUX= is where the base's tag is looked up
    needed.trees(verb.needs, os.environ.get('LINUX') if verb.needs == 'base' else None)


def main():
    name, *words = sys.argv[1:] or ['']
    if name not in VERBS:
        common.die(f'no verb {name} (known: {" ".join(VERBS)})')
    common.program, verb = name, VERBS[name]
    check_variables(name, verb)
    if os.environ.get('BASE') and not os.environ.get('LINUX') and 'BASE' in verb.variables:
        common.die('BASE= goes with LINUX=')
    prepare(name, verb)
    if name == 'base':
        words = [os.environ.get('LINUX')]
    found = getattr(importlib.import_module(f'kit.{verb.module}'), verb.function)(*words)
    if isinstance(found, int):
        sys.exit(found)
    if found is not None:
        print(found)


if __name__ == '__main__':
    main()
