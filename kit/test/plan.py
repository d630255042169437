# SPDX-License-Identifier: GPL-2.0-only
"""The guests that `make test` boots: what the topics ask for, asked for in the same way booted
once.

A boot is a table with `arch`, `flavour`, fields of qemu.Options and `test`, a list of tables:
program, kunit or reproducer, name, arguments, environment, tap, timeout, skips (see
CONTRIBUTING.md). A test with `base` also runs on the base, where it has to fail: see on_base().
"""
import dataclasses
import re
from pathlib import Path

from kit import topics
from kit.build import reproducer
from kit.errors import KitError
from kit.typed import check_keys
from kit.vm.qemu import Options

FIELDS = {field.name: field for field in dataclasses.fields(Options) if field.name != 'limits'}
BOOT = {*FIELDS, 'arch', 'flavour', 'full', 'base_full', 'alone', 'variants', 'programs', 'test'}
ELSEWHERE = {'test': '', 'reason': 'the machine is not the one that topic.toml asks for'}
TEST = {'program', 'kunit', 'reproducer', 'arguments', 'environment', 'name', 'tap', 'timeout',
        'skips', 'base'}
KINDS = 'program', 'kunit', 'reproducer'


def tests_of(topic, boot):
    """The boot's tests; `programs` are those that say nothing but their exit status."""
    where = f'series/{topic}/topic.toml'
    tests = [dict(test) for test in boot.get('test', [])]
    tests += [{'program': program, 'tap': False} for program in boot.get('programs', [])]
    for test in tests:
        check_keys(where, test, TEST)
        kinds = [kind for kind in KINDS if kind in test]
        if len(kinds) != 1:
            raise KitError(f'{where}: a test is one of {" ".join(KINDS)}: {test}')
        if kinds == ['reproducer']:
            test.update(topic=topic, tap=False,
                        file=reproducer.file_name(topic, test['reproducer']))
        test.setdefault('name', Path(test[kinds[0]]).name)
    return tests


def options_of(boot):
    """The boot's qemu.Options."""
    return Options(**{key: value for key, value in boot.items() if key in FIELDS})


def on_machine(boot, machine):
    """The boot on a machine that somebody chose: a test may skip whatever that has not."""
    changed = {**boot, **machine}
    if changed.get('cpus', 0) % changed.get('nodes', 1):
        changed['nodes'] = 1
    return changed


def merged(asked, machine=None):
    """asked: [(topic, boot)]. Boots that differ in nothing but their tests are one. machine: fields
    of Options that override theirs."""
    found = {}
    for topic, boot in asked:
        where = f'series/{topic}/topic.toml'
        check_keys(where, boot, BOOT)
        for variant in boot.get('variants', [{}]):
            check_keys(where, variant, FIELDS)
            kept = ('variants', 'programs', 'test', 'base_full')
            what = {**{key: value for key, value in boot.items() if key not in kept}, **variant}
            tests = tests_of(topic, boot)
            if machine:
                what = on_machine(what, machine)
                tests = [{**test, 'skips': [ELSEWHERE]} for test in tests]
            key = (what['arch'], what['flavour'], bool(what.get('full')), bool(what.get('alone')),
                   repr(options_of(what)))
            whole = found.setdefault(key, {**what, 'test': []})
            whole['test'] += [test for test in tests if test not in whole['test']]
    return list(found.values())


def on_base(asked):
    """The boots of the base kernel: of each that was asked for, the tests that have to fail there.
    They are not merged: what fails may take the kernel with it. `base_full`: only with FULL=1."""
    found = []
    for topic, boot in asked:
        if tests := [test for test in boot.get('test', []) if 'base' in test]:
            full = boot.get('full') or boot.get('base_full', False)
            alone = {**boot, 'programs': [], 'test': tests, 'full': full}
            found += [{**each, 'tree': 'base'} for each in merged([(topic, alone)])]
    return found


def chosen(arch='', flavour='', pattern='', full=False, machine=None):
    """The boots with those of their tests that were asked for; machine: see merged(). Those of the
    base kernel have 'tree'."""
    boots = merged(topics.boots(), machine) + ([] if machine else on_base(topics.boots()))
    for boot in boots:
        boot['test'] = [test for test in boot['test'] if re.search(pattern, test['name'])]
    return [boot for boot in boots if boot['test'] and arch in ('', boot['arch'])
            and flavour in ('', boot['flavour']) and (full or not boot.get('full'))]
