# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB: the verbs and their options.

Only this module reads the command line. Each option can also be given as an environment variable,
which is how make passes it: `--topic x` is TOPIC=x. A verb's function gets the given options as
keyword arguments, and defines the defaults of the others. Nothing is installed, fetched or built
before the command line is parsed.
"""

import argparse
import contextlib
import errno
import functools
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from kit.build.trees import Trees
from kit.errors import INTERRUPTED, TERMINATED, KitError
from kit.model import Limits
from kit.process import end_children

Given = dict[str, Any]  # {option: value}

USAGE = 2  # exit status for a wrong command line


def number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f'{text}: expected a positive number')
    return int(text)


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f'{text}: {error}') from error
    return text


def flag(text: str) -> bool:
    """Converts the value of a make variable: 1 is True, and 0 is False."""
    if text not in ('0', '1'):
        raise argparse.ArgumentTypeError(f'{text}: expected 1')
    return text == '1'


def results_file(text: str) -> Path:
    """Returns the path of a file for test results. The path is checked before anything is built."""
    path, known = Path(text).expanduser().absolute(), ('.ktap', '.xml', '.json')
    if path.suffix not in known:
        raise argparse.ArgumentTypeError(f'{text}: expected a name with one of {" ".join(known)}')
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f'{path.parent}: no such folder')
    return path


@dataclass(frozen=True)
class Option:
    value: str  # the name of its value in --help; empty for a flag
    help: str
    kind: Callable[[str], Any] = str
    variable: bool = True  # is it also a make variable?

    def add(self, parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
        kind: dict[str, Any] = (
            {'type': self.kind, 'metavar': self.value}
            if self.value
            else {'action': 'store_true', 'default': None}
        )
        parser.add_argument(*names, help=self.help, **kind)


def a_flag(text: str, **more: Any) -> Option:
    return Option('', text, flag, **more)


OPTIONS = {
    'append': Option('WORDS', "more words for the kernel's command line"),
    'arch': Option('ARCH', 'the architecture, one of guest/*.toml'),
    'base': Option('COMMIT', 'the "base" in the tree of --linux; default: its newest release'),
    'boot': Option('NAME', 'only bugs for this boot: um, or an architecture'),
    'calls': Option('N', 'number of random calls', number),
    'check': Option('WORDS', 'only checks with one of these words in their name'),
    'config': Option('FILE', 'configuration of your kernel; default: that of the running kernel'),
    'cpus': Option('N', 'number of CPUs of the guest', number),
    'delete': a_flag('with --draw: only delete lines'),
    'draw': Option('N', 'alter or delete N randomly drawn lines', number),
    'flavour': Option('FLAVOUR', 'plain, debug, trace or kcsan; +NAME adds guest/config/*+NAME'),
    'full': a_flag('include slow parts'),
    'gdb': a_flag('the guest waits for gdb'),
    'iommu': Option('NAME', 'one of the IOMMUs in guest/ARCH.toml'),
    'keep': a_flag('if linux/ holds work, leave it as it is', variable=False),
    'kselftest': Option('SUITE[:PROGRAM]', 'any upstream kselftest in the tree of --linux'),
    'linux': Option('PATH', 'your own git tree, which is only read'),
    'machine': Option('FILE', 'machine.json, the figures of ./measure on hardware'),
    'mem': Option('SIZE', 'memory of the guest, for example 4G'),
    'minutes': Option('N', 'duration', number),
    'mutant': Option('REGEX', 'only bugs whose name matches', pattern),
    'part': Option('NAME', 'only this part of the benchmark'),
    'patch': Option('WORDS', 'if patches are mailed one by one: WORDS of a file name'),
    'reflect': a_flag('send the mails only to yourself, as a trial'),
    'results': Option(
        'FILE', 'write test results as .ktap, .xml (JUnit) or .json (KernelCI)', results_file
    ),
    'reviewed': a_flag('states that you have read each patch and sign it off'),
    'rounds': Option('N', 'number of rounds in each boot', number),
    'runs': Option('N', 'number of boots of each kernel', number),
    'sample': Option('N', 'only N of the bugs, drawn at random', number),
    'seed': Option('N', 'seed of the random numbers, to repeat a run', number),
    'send': a_flag('send the mails; otherwise they are only written to an mbox'),
    'share': Option('FOLDER', 'a folder of the host, mounted as /share in the guest'),
    'stable-git': Option('URL', 'a stable git tree to fetch the base from'),
    'stay': a_flag('with --keep: keep the commit of series/ that is checked out', variable=False),
    'test': Option('REGEX', 'only tests whose name matches', pattern),
    'topic': Option(
        'TOPIC', 'a folder of series/; mail and bench also take TOPIC/NN-POSTING, and mail several'
    ),
    'tree': Option('TREE', 'patched or base'),
}


@dataclass(frozen=True)
class Verb:
    function: str  # PACKAGE.MODULE.FUNCTION in kit
    help: str
    options: str = ''  # the options that the function takes
    setup: str = ''  # further options, which only prepare() takes
    # What prepare() provides. `series`: a linux/ with the commits of series/, and possibly other
    # work. `own`: the same, but any commit of series/ may be checked out; with --linux, the user's
    # tree instead of linux/. `base`: a linux/ with at least the base.
    needs: str = ''
    packages: str = ''  # a key of SETS in kit/setup/deps.py
    archs: str = ''  # install compilers and QEMU for `one` architecture, or for `all` booted ones
    make: bool = True  # is the verb also a target of make?
    words: tuple[str, ...] = ()  # positional arguments
    also: dict[str, str] = field(default_factory=dict)  # {another name of an option: option}
    more: Callable[[argparse.ArgumentParser], None] | None = None  # adds the verb's own arguments

    def names(self) -> list[str]:
        """Returns all options of the verb, in the order of --help."""
        return list(dict.fromkeys([*self.options.split(), *self.setup.split()]))


KERNEL = ('arch', 'flavour', 'tree')


def boot_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb `boot` to the parser."""
    parser.add_argument('job', type=Path, help='a shell script for the guest')
    parser.add_argument('files', type=Path, nargs='*', help='files for /job, which is also in PATH')
    parser.add_argument('--cpus', type=int, metavar='N', help='default: 2, or 1 with --icount')
    parser.add_argument('--mem', metavar='SIZE', help="for example 4G; default: the machine's")
    parser.add_argument('--append', metavar='WORDS', help=OPTIONS['append'].help)
    parser.add_argument('--icount', action='store_true', help='guest time = instructions executed')
    parser.add_argument('--prealloc', action='store_true', help='allocate memory before the start')
    parser.add_argument('--nodes', type=int, metavar='N', help='NUMA nodes')
    parser.add_argument('--iommu', metavar='NAME', help='an IOMMU of guest/ARCH.toml, or none')
    parser.add_argument(
        '--device',
        action='append',
        dest='devices',
        metavar='WORDS',
        help="replaces the machine's devices",
    )
    parser.add_argument('--qemu', action='append', metavar='WORD', help='another word for QEMU')
    parser.add_argument('--image', type=Path, help='boot this image instead of building one')
    for limit in fields(Limits):
        parser.add_argument(
            f'--{limit.name}', type=int, metavar='SECONDS', help=f'limit (default {limit.default})'
        )


VERBS = {
    'run': Verb(
        'bench.run.main',
        'measure base and patched kernel, and show a table',
        'topic runs',
        'linux base stable-git',
        'own',
        'BUILD',
        'one',
    ),
    'test': Verb(
        'test.test.main',
        'boot kernels and run the tests in them',
        'test arch flavour cpus iommu full linux kselftest results',
        'base stable-git',
        'own',
        'TESTS',
        'all',
        also={'tree': 'linux'},
    ),
    'soak': Verb(
        'soak.soak.main',
        "run all topics' workloads at once, with faults, kills and hotplug",
        'minutes arch flavour seed',
        'stable-git',
        'series',
        'BUILD',
        'one',
    ),
    'differ': Verb(
        'soak.differ.main',
        'compare results of random VFIO and iommufd calls on both kernels',
        'calls iommu seed',
        'stable-git',
        'series',
        'BUILD',
        'all',
    ),
    'clients': Verb(
        'clients.clients.main',
        'run unmodified programs on both kernels: QEMU, DPDK, fio and others',
        'test iommu runs',
        'stable-git',
        'series',
        'BUILD',
        'one',
    ),
    'mutants': Verb(
        'mutants.run.main',
        'seed bugs, which the tests must detect',
        'topic mutant boot sample seed draw delete',
        'stable-git',
        'series',
        'TESTS',
        'all',
    ),
    'shell': Verb(
        'vm.shell.main',
        'boot a kernel with a shell',
        'arch flavour tree cpus mem iommu append share gdb',
        'linux base stable-git',
        'own',
        'BUILD',
        'one',
    ),
    'bench': Verb(
        'bench.bench.main',
        'measure a topic or a posting alone; writes bench.json, picture and tables',
        'topic part runs rounds full',
        'stable-git',
        'series',
        'BENCH',
        'all',
    ),
    'hardware': Verb(
        'hardware.build.main',
        'build packages of both kernels, and benchmarks, for a machine of your own',
        'arch config',
        'linux stable-git',
        'series',
        'HARDWARE',
        'one',
    ),
    # check.main() makes linux/, while its first checks run
    'check': Verb(
        'check.check.main',
        'run all static checks: patches apply, compile, survive mailing',
        'check full linux stable-git',
        packages='CHECK',
        archs='all',
    ),
    'mail': Verb(
        'mail.mail.main',
        'write a posting as mail into an mbox, or send it',
        'topic patch machine send reflect reviewed linux stable-git',
        needs='series',
        packages='MAIL',
    ),
    'tree': Verb(
        'source.tree.main',
        'make linux/ from series/; refuses if that would lose work',
        'keep stay',
        'linux stable-git',
        'base',
        'GIT',
    ),
    'export': Verb('source.export.main', 'write series/ from the commits in linux/'),
    'tables': Verb('bench.pages.write', "write the pages' tables from series/*/bench.json"),
    'deps': Verb(
        'setup.deps.main',
        'install missing Debian packages; if not root, only name them',
        'arch full',
    ),
    # for developers
    'base': Verb(
        'source.base.main', 'make a linux/ that has only the base', 'linux stable-git', make=False
    ),
    'rebase': Verb(
        'source.rebase.main',
        'move the series onto another release',
        'linux stable-git',
        make=False,
        words=('target',),
    ),
    'build': Verb('build.kernel.main', 'build a kernel', make=False, words=KERNEL),
    'config': Verb('build.config.main', "write a kernel's .config", make=False, words=KERNEL),
    'boot': Verb(
        'vm.boot.main',
        'run a shell script in a guest',
        make=False,
        words=KERNEL,
        more=boot_arguments,
    ),
    'table': Verb(
        'hardware.machine.show',
        "show a topic's recorded table, and a machine's figures beside it",
        'machine',
        make=False,
        words=('topic',),
        also={'with': 'machine'},
    ),
    'plot': Verb('bench.plot.draw', "draw a topic's bench.png", make=False, words=('topic',)),
}


def variable(name: str) -> str:
    return name.upper().replace('-', '_')


VARIABLES = {variable(name): name for name, option in OPTIONS.items() if option.variable}
# a shell may export these for another purpose: only make's command line counts
FOREIGN = {
    *('ARCH', 'BASE', 'TREE', 'MEM', 'SHARE', 'APPEND', 'CPUS', 'SEED'),
    *('CONFIG', 'MACHINE'),
}
# users may export it for all verbs; a verb that fetches nothing ignores it
EXPORTED = {'STABLE_GIT'}


def wrong(message: str) -> NoReturn:
    raise KitError(message, USAGE)


class Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        wrong(f'{message} (see {self.prog} --help)')


def help_of(name: str, verb: Verb) -> str | None:
    """Returns the description that `VERB --help` prints. If the verb calls main() of a module, this
    is the module's docstring. Otherwise, it is the verb's line in the list of verbs."""
    module, _, function = verb.function.rpartition('.')
    if function == 'main':
        return importlib.import_module(f'kit.{module}').__doc__
    return f'{name}: {verb.help}'


@functools.cache
def parsers() -> tuple[Parser, dict[str, Parser]]:
    """Returns (parser of the whole command line, {verb: its parser})."""
    whole = Parser(
        prog='python3 -m kit',
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Apply, build, boot, test, measure and mail Linux patch series.',
        epilog='`make VERB NAME=value` is the same as `python3 -m kit VERB --name '
        'value`\nfor the verbs up to `deps`. `make clean` deletes build/.',
    )
    verbs = whole.add_subparsers(metavar='VERB', required=True)
    found = {}
    for name, verb in VERBS.items():
        parser = found[name] = verbs.add_parser(
            name,
            help=verb.help,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for word in verb.words:
            parser.add_argument(word)
        for option in verb.names():
            others = [name for name, meant in verb.also.items() if meant == option]
            OPTIONS[option].add(parser, [f'--{name}' for name in (option, *others)])
        if verb.more:
            verb.more(parser)
    return whole, found


def by_make(name: str) -> bool:
    """Returns whether the variable is on make's command line. MAKEFLAGS has such variables after `
    -- `."""
    given = os.environ.get('MAKEFLAGS', '')
    return bool(re.search(rf'(?<!\\)\s{name}=', given[given.find(' -- ') :])) and ' -- ' in given


def from_variables(name: str, verb: Verb, given: Given) -> Given:
    """Returns the options that are given as variables. A variable that the verb would ignore is an
    error."""
    own, found = verb.names(), {}
    for each, option in sorted(VARIABLES.items()):
        text = os.environ.get(each)
        if not text or option in given:
            continue
        if each in FOREIGN and not by_make(each):
            if option in own:
                wrong(
                    f'{each}={text} is exported: use `make {name} {each}={text}` or '
                    f'--{option} {text}, or unset it'
                )
        elif option in own:
            try:
                found[option] = OPTIONS[option].kind(text)
            except argparse.ArgumentTypeError as error:
                wrong(f'{each}={error}')
        elif each not in EXPORTED or by_make(each):
            known = ' '.join(variable(other) for other in own if OPTIONS[other].variable)
            wrong(f'{each}= is not an option of {name}{known and f" (known: {known})"}')
    return found


def parsed(words: Sequence[str]) -> tuple[str, Given]:
    """Returns (verb, {option: value}) from the command line and the variables."""
    whole, verbs = parsers()
    name = words[0] if words else ''
    if name not in verbs:
        whole.parse_args(words)  # prints help, or raises an error
        whole.error(f'no verb {name}')
    if {'-h', '--help'} & set(words):
        verbs[name].description = help_of(name, VERBS[name])
    given = vars(verbs[name].parse_intermixed_args(words[1:]))
    given = {
        option.replace('_', '-'): value
        for option, value in given.items()
        if value not in (None, '', [])
    }
    given |= from_variables(name, VERBS[name], given)
    check_together(given)
    return name, given


def check_together(given: Given) -> None:
    """Raises an error if an option needs another one that is missing, or if two options exclude
    each other."""
    if 'base' in given and 'linux' not in given:
        wrong('BASE= needs LINUX=')
    for other in ('test', 'full', 'base') if 'kselftest' in given else ():
        if given.get(other):
            wrong(f'{variable(other)}= cannot be combined with KSELFTEST=')


def prepare(verb: Verb, given: Given) -> 'Trees | None':
    """Prepares packages, linux/ and the user's own tree; returns the trees to build and compare."""
    if not verb.needs or os.environ.get('KIT_NO_SETUP'):  # the caller has prepared everything
        return None
    from kit.setup import prepare as needed

    alone = 'kselftest' in given  # kselftest.main() makes its own tree
    if verb.packages:
        needed.packages(
            verb.packages,
            'one' if alone else verb.archs,
            given.get('arch'),
            given.get('full', False),
        )
    if alone:
        return None
    # mail uses LINUX= only to look up the base's tag
    path = given.get('linux') if verb.needs != 'series' else None
    trees = needed.trees(verb.needs, path, given.get('base'), given.get('stable-git'))
    return trees if verb.needs == 'own' else None


def call(verb: Verb, given: Given) -> object:
    """Calls the verb's function with its options."""
    setup = set(verb.setup.split()) - set(verb.options.split())
    module, _, function = verb.function.rpartition('.')
    return getattr(importlib.import_module(f'kit.{module}'), function)(
        **{
            option.replace('-', '_'): value
            for option, value in given.items()
            if option not in setup
        }
    )


def main() -> None:
    words = sys.argv[1:]
    if words == ['--variables']:  # for .ci/run
        print(*VARIABLES)
        return
    name, given = parsed(words)
    trees = prepare(VERBS[name], given)
    found = call(VERBS[name], {**given, 'trees': trees} if trees else given)
    if isinstance(found, int):
        sys.exit(found)
    if found is not None:
        print(found)


# system errors such as a full disk or a missing permission; other OSErrors are bugs and get a
# traceback
OF_THE_SYSTEM = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EPIPE,
}


def status_of(error: BaseException, name: str) -> int:
    """Prints the message or the traceback of an exception, and returns the exit status."""
    if isinstance(error, KitError):
        print(f'{name}: {error}', file=sys.stderr)
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else bool(error.code)
    if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
        print(
            ': '.join(filter(None, (name, str(error.filename or ''), error.strerror))),
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)
    return 1


def verb_name() -> str:
    """Returns the prefix of error messages."""
    return next((word for word in sys.argv[1:2] if word in VERBS), 'kit')


def guarded(function: Callable[[], object], name: str) -> None:
    """Runs a program of this repository. On an error, an interrupt, SIGTERM or SIGHUP, ends its
    child processes and then this process. If the caller ignores SIGHUP (nohup), it stays
    ignored."""
    for ends in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ends) != signal.SIG_IGN:
            signal.signal(ends, lambda *_: sys.exit(TERMINATED))
    try:
        function()
        return
    except BaseException as error:  # the outermost handler
        status = status_of(error, name)
    with contextlib.suppress(OSError):  # the reader of stdout may have exited
        sys.stdout.flush()
        sys.stderr.flush()
    end_children()
    os._exit(status)  # sys.exit() would wait for threads
