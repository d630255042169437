# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB: the verbs and their options.

This module alone reads the command line. An option is also a variable: `--topic x` or TOPIC=x, as
make passes it. A verb's function gets the options that were given as keyword arguments, so their
defaults stand there. Nothing is installed, fetched or built before the words are parsed.
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

USAGE = 2  # exit status of a command line that is wrong


def number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f'{text}: a number is meant')
    return int(text)


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f'{text}: {error}') from error
    return text


def flag(text: str) -> bool:
    """Of a variable: 1 and 0 are the words for yes and no."""
    if text not in ('0', '1'):
        raise argparse.ArgumentTypeError(f'{text}: 1 is meant')
    return text == '1'


def results_file(text: str) -> Path:
    """Known before anything is built."""
    path, known = Path(text).expanduser().absolute(), ('.ktap', '.xml', '.json')
    if path.suffix not in known:
        raise argparse.ArgumentTypeError(f'{text}: a name with one of {" ".join(known)} is meant')
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f'{path.parent}: no such folder')
    return path


@dataclass(frozen=True)
class Option:
    value: str  # what --help calls its value; of a flag the empty string
    help: str
    kind: Callable[[str], Any] = str
    variable: bool = True  # make passes it, too

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
    'base': Option('COMMIT', 'what "base" is of the tree of --linux; otherwise its newest release'),
    'boot': Option('NAME', 'only mistakes for such a boot: um, or an architecture'),
    'calls': Option('N', 'how many random calls', number),
    'check': Option('WORDS', 'only checks whose name has one of the words in it'),
    'cpus': Option('N', 'CPUs of the guest', number),
    'delete': a_flag('with --draw: lines are deleted, not altered'),
    'draw': Option('N', 'this many lines of the topic altered at random, not chosen', number),
    'flavour': Option('FLAVOUR', 'plain, debug, trace or kcsan; +NAME adds guest/config/*+NAME'),
    'full': a_flag('also what is slow'),
    'gdb': a_flag('the guest waits for gdb'),
    'iommu': Option('NAME', 'one of the IOMMUs in guest/ARCH.toml'),
    'keep': a_flag('leave a linux/ that holds work as it is', variable=False),
    'kselftest': Option('SUITE[:PROGRAM]', "upstream's, in the tree of --linux; of any suite"),
    'linux': Option('PATH', 'a git tree of your own; it is only read'),
    'mem': Option('SIZE', 'memory of the guest, for example 4G'),
    'minutes': Option('N', 'how long', number),
    'mutant': Option('REGEX', 'only mistakes with such a name', pattern),
    'part': Option('NAME', 'only this part of the benchmark'),
    'patch': Option('WORDS', 'of a topic mailed patch by patch: those with this in their name'),
    'reflect': a_flag('a trial: send it to yourself only'),
    'results': Option(
        'FILE', 'what the tests gave, as .ktap, .xml (JUnit) or .json (KernelCI)', results_file
    ),
    'reviewed': a_flag('you have read each patch, and sign for it'),
    'rounds': Option('N', 'rounds in each boot', number),
    'runs': Option('N', 'boots of each kernel', number),
    'sample': Option('N', 'this many of them, drawn at random', number),
    'seed': Option('N', 'repeats a sequence of random numbers', number),
    'send': a_flag('send it; without, it stays in an mbox'),
    'share': Option('FOLDER', 'a folder of this host, /share in the guest'),
    'stable-git': Option('URL', 'a stable git tree to fetch the base from'),
    'stay': a_flag('with --keep: leave another commit of series/ checked out', variable=False),
    'test': Option('REGEX', 'only tests with such a name', pattern),
    'topic': Option(
        'TOPIC',
        'a folder of series/, or for mail and bench a posting TOPIC/NN-POSTING; of mail several',
    ),
    'tree': Option('TREE', 'patched or base'),
}


@dataclass(frozen=True)
class Verb:
    function: str  # ROOM.MODULE.FUNCTION below kit
    help: str
    options: str = ''  # what the function takes
    setup: str = ''  # options for what prepares linux/
    # what has to be there: `series` is linux/ as series/ describes it (work in it is kept), `own`
    # the same or another of its commits, or the user's own tree with --linux, `base` the base alone
    needs: str = ''
    packages: str = ''  # a set of kit/setup/deps.py
    archs: str = ''  # compilers and QEMU of `one` architecture, or of `all` that topics boot
    make: bool = True  # a target of make
    words: tuple[str, ...] = ()  # positional arguments
    also: dict[str, str] = field(default_factory=dict)  # other names of options: {name: option}
    more: Callable[[argparse.ArgumentParser], None] | None = None  # adds the verb's own arguments

    def names(self) -> list[str]:
        """All of its options, in the order of --help."""
        return list(dict.fromkeys([*self.options.split(), *self.setup.split()]))


KERNEL = ('arch', 'flavour', 'tree')


def boot_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `boot`, which takes anything that a boot may be given."""
    parser.add_argument('job', type=Path, help='a shell script for the guest')
    parser.add_argument('files', type=Path, nargs='*', help='beside it in /job, also in PATH')
    parser.add_argument('--cpus', type=int, metavar='N', help='2, or 1 with --icount')
    parser.add_argument('--mem', metavar='SIZE', help="for example 4G; otherwise the machine's own")
    parser.add_argument('--append', metavar='WORDS', help=OPTIONS['append'].help)
    parser.add_argument('--icount', action='store_true', help='guest time = instructions executed')
    parser.add_argument('--prealloc', action='store_true', help='memory backed before the start')
    parser.add_argument('--nodes', type=int, metavar='N', help='NUMA nodes')
    parser.add_argument('--iommu', metavar='NAME', help='one of guest/ARCH.toml, or none')
    parser.add_argument(
        '--device',
        action='append',
        dest='devices',
        metavar='WORDS',
        help="instead of the machine's own",
    )
    parser.add_argument('--qemu', action='append', metavar='WORD', help='one more word for QEMU')
    parser.add_argument('--image', type=Path, help='boot this image, build nothing')
    for limit in fields(Limits):
        parser.add_argument(
            f'--{limit.name}', type=int, metavar='SECONDS', help=f'limit (default {limit.default})'
        )


VERBS = {
    'run': Verb(
        'bench.run.main',
        'the main job: base and patched kernel side by side',
        'topic runs',
        'linux base stable-git',
        'own',
        'BUILD',
        'one',
    ),
    'test': Verb(
        'test.test.main',
        'boot kernels, run the tests in them',
        'test arch flavour cpus iommu full linux kselftest results',
        'base stable-git',
        'own',
        'TESTS',
        'all',
        also={'tree': 'linux'},
    ),
    'soak': Verb(
        'soak.soak.main',
        "all topics' workloads at once, with faults, kills and hotplug",
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
    'mutants': Verb(
        'mutants.run.main',
        'make mistakes on purpose: the tests have to notice',
        'topic mutant boot sample seed draw delete',
        'stable-git',
        'series',
        'TESTS',
        'all',
    ),
    'shell': Verb(
        'vm.shell.main',
        'a shell in a kernel',
        'arch flavour tree cpus mem iommu append share gdb',
        'linux base stable-git',
        'own',
        'BUILD',
        'one',
    ),
    'bench': Verb(
        'bench.bench.main',
        'measure a topic or a posting alone: its bench.json, picture and tables',
        'topic part runs rounds full',
        'stable-git',
        'series',
        'BENCH',
        'all',
    ),
    # it makes linux/ itself, beside its first checks
    'check': Verb(
        'check.check.main',
        'everything static: patches apply, compile, survive mailing',
        'check full linux stable-git',
        packages='CHECK',
        archs='all',
    ),
    'mail': Verb(
        'mail.mail.main',
        'a posting as mail, into an mbox',
        'topic patch send reflect reviewed linux stable-git',
        needs='series',
        packages='MAIL',
    ),
    'tree': Verb(
        'source.tree.main',
        'make linux/ from series/; refuses to lose work there',
        'keep stay',
        'linux stable-git',
        'base',
        'GIT',
    ),
    'export': Verb('source.export.main', 'write series/ from the commits in linux/'),
    'tables': Verb('bench.pages.write', "write the pages' tables from series/*/bench.json"),
    'deps': Verb(
        'setup.deps.main',
        'install (as root) or name the Debian packages that are missing',
        'arch full',
    ),
    # for developers
    'base': Verb(
        'source.base.main', 'make linux/ of the base alone', 'linux stable-git', make=False
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
        'bench.table.show', "show a topic's recorded table", make=False, words=('topic',)
    ),
    'plot': Verb('bench.plot.draw', "draw a topic's bench.png", make=False, words=('topic',)),
}


def variable(name: str) -> str:
    return name.upper().replace('-', '_')


VARIABLES = {variable(name): name for name, option in OPTIONS.items() if option.variable}
# names that a shell may have for something else: only make's are meant
FOREIGN = {'ARCH', 'BASE', 'TREE', 'MEM', 'SHARE', 'APPEND', 'CPUS', 'SEED'}
# often in the environment, and no error where nothing is fetched
EXPORTED = {'STABLE_GIT'}


def wrong(message: str) -> NoReturn:
    raise KitError(message, USAGE)


class Parser(argparse.ArgumentParser):
    """Its errors are one line."""

    def error(self, message: str) -> NoReturn:
        wrong(f'{message} (see {self.prog} --help)')


def help_of(name: str, verb: Verb) -> str | None:
    """What --help says of the verb: its module's own words, if the verb is all that is in it."""
    module, _, function = verb.function.rpartition('.')
    if function == 'main':
        return importlib.import_module(f'kit.{module}').__doc__
    return f'{name}: {verb.help}'


@functools.cache
def parsers() -> tuple[Parser, dict[str, Parser]]:
    """(the whole, {verb: its parser})"""
    whole = Parser(
        prog='python3 -m kit',
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Linux patch series: apply, build, boot, test, measure, mail.',
        epilog='`make VERB NAME=value` is the same as `python3 -m kit VERB --name '
        'value`,\nfor the verbs up to `deps`. `make clean` deletes build/.',
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
    """Does make's command line have the variable? MAKEFLAGS has them behind two dashes."""
    given = os.environ.get('MAKEFLAGS', '')
    return bool(re.search(rf'(?<!\\)\s{name}=', given[given.find(' -- ') :])) and ' -- ' in given


def from_variables(name: str, verb: Verb, given: Given) -> Given:
    """The options that came as variables; one that the verb would ignore is an error."""
    own, found = verb.names(), {}
    for each, option in sorted(VARIABLES.items()):
        text = os.environ.get(each)
        if not text or option in given:
            continue
        if each in FOREIGN and not by_make(each):
            if option in own:
                wrong(
                    f'{each}={text} is exported: say `make {name} {each}={text}` or '
                    f'--{option} {text}, or unset it'
                )
        elif option in own:
            try:
                found[option] = OPTIONS[option].kind(text)
            except argparse.ArgumentTypeError as error:
                wrong(f'{each}={error}')
        elif each not in EXPORTED or by_make(each):
            known = ' '.join(variable(other) for other in own if OPTIONS[other].variable)
            wrong(f'{each}= means nothing to {name}{known and f" (known: {known})"}')
    return found


def parsed(words: Sequence[str]) -> tuple[str, Given]:
    """(verb, {option: value}) of the command line and the variables."""
    whole, verbs = parsers()
    name = words[0] if words else ''
    if name not in verbs:
        whole.parse_args(words)  # ends with its help, or an error
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
    """Options that mean nothing without, or beside, another one."""
    if 'base' in given and 'linux' not in given:
        wrong('BASE= goes with LINUX=')
    for other in ('test', 'full', 'base') if 'kselftest' in given else ():
        if given.get(other):
            wrong(f'{variable(other)}= means nothing to KSELFTEST=')


def prepare(verb: Verb, given: Given) -> 'Trees | None':
    """Packages, linux/, and the user's own tree; what is built and compared."""
    if not verb.needs or os.environ.get('KIT_NO_SETUP'):  # the caller knows that all is there
        return None
    from kit.setup import prepare as needed

    alone = 'kselftest' in given  # it makes its tree itself
    if verb.packages:
        needed.packages(
            verb.packages,
            'one' if alone else verb.archs,
            given.get('arch'),
            given.get('full', False),
        )
    if alone:
        return None
    # of mail LINUX= is where the base's tag is looked up
    path = given.get('linux') if verb.needs != 'series' else None
    trees = needed.trees(verb.needs, path, given.get('base'), given.get('stable-git'))
    return trees if verb.needs == 'own' else None


def call(verb: Verb, given: Given) -> object:
    """The verb's function with the options it takes."""
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


# what a disk or a permission does; any other error of the system's is a bug, and shows where
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
    """The exit status for what ended a program; a line, or a traceback, says why."""
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
    """What an error begins with."""
    return next((word for word in sys.argv[1:2] if word in VERBS), 'kit')


def guarded(function: Callable[[], object], name: str) -> None:
    """Runs a program of this repository. However it ends, what it has started ends with it: a
    terminated one, as an interrupted one, and so one whose terminal is closed, unless it was told
    to go on (nohup)."""
    for ends in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ends) != signal.SIG_IGN:
            signal.signal(ends, lambda *_: sys.exit(TERMINATED))
    try:
        function()
        return
    except BaseException as error:  # nothing is above it
        status = status_of(error, name)
    with contextlib.suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
        sys.stderr.flush()
    end_children()
    os._exit(status)  # threads that wait for what has ended are not waited for
