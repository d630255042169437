# SPDX-License-Identifier: GPL-2.0-only
"""Makes a kernel's .config from allnoconfig and fragments. A fragment is a file of lines
CONFIG_NAME=value.

A flavour selects the fragments. NAME[+VARIANT...] selects files of guest/config/ and the symbols
that the topics add. It is an error if a symbol does not get the requested value.

NAME[+VARIANT...]@[SUITE,...] is a flavour for a tree of any version. It has the `config` files of
these selftest suites instead of the topics' symbols. If a symbol cannot be set, it is printed, but
this is not an error.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from kit import model, topics
from kit.build.trees import OURS, Tree, make, source, stamp_of, state
from kit.errors import KitError
from kit.model import Machine
from kit.paths import GUEST, SERIES, shown
from kit.process import say, step
from kit.source.git import git, try_git

CONFIGS = GUEST / 'config'
# these test modules run for minutes when loaded; if built in, they would delay init
LONG_TESTS = ('TEST_VMALLOC',)
FLAVOURS = 'plain', 'debug', 'trace', 'kcsan'  # +NAME adds ARCH+NAME.config


Symbols = dict[str, str]  # {name: value}
Fragments = list[tuple[Path, Symbols]]


def parts_of(flavour: str) -> tuple[str, list[str], list[str] | None]:
    """Returns (name, [variants], [suites]) of a flavour. Without an @ in the flavour, the third
    value is None: the topics then choose the suites."""
    flavour, at, suites = flavour.partition('@')
    name, *variants = flavour.split('+')
    if name not in FLAVOURS:
        raise KitError(f'no flavour {name} (known: {" ".join(FLAVOURS)})')
    return name, variants, [suite for suite in suites.split(',') if suite] if at else None


def read(file: Path) -> Symbols:
    """Returns {symbol: value} from a file with lines CONFIG_NAME=value."""
    wanted = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        line = line.split('#')[0].strip()
        match = re.fullmatch(r'CONFIG_(\w+)=(.+)', line)
        if match:
            wanted[match[1]] = match[2]
        elif line:
            raise KitError(f'{shown(file)}:{number}: not CONFIG_NAME=value: {line}')
    return wanted


def fragments(machine: Machine, flavour: str, src: Path) -> Fragments:
    """Returns [(file, {symbol: value})] of a flavour. Later fragments override earlier ones."""
    (flavour, variants, suites), arch = parts_of(flavour), machine.arch
    # the variant's file for this architecture or, if there is none, for all architectures
    named = [
        f'{arch}+{each}' if (CONFIGS / f'{arch}+{each}.config').exists() else f'+{each}'
        for each in variants
    ]
    needed, found = ['common', arch, flavour, *named], []
    for name in [*needed[:3], f'{arch}-{flavour}', *needed[3:]]:
        file = CONFIGS / f'{name}.config'
        if file.exists():
            found.append((file, read(file)))
        elif name in needed:
            raise KitError(f'{shown(file)} is missing')
    if suites is not None:
        return found + of_suites(machine, src, suites, 'config', f'config.{machine.host}')
    return (
        of_suites(machine, src, topics.suites(arch), 'config')
        + found
        + topics.config([arch, flavour, f'{arch}-{flavour}'])
    )


def of_suites(machine: Machine, src: Path, suites: Iterable[str], *names: str) -> Fragments:
    """Returns [(file, {symbol: value})] for the files with these names in the folders of the
    suites."""
    files = [src / 'tools/testing/selftests' / suite / name for suite in suites for name in names]
    return [
        (
            file,
            {
                symbol: 'y' if value == 'm' else value  # the initrd contains no modules
                for symbol, value in read(file).items()
                if symbol not in (*machine.foreign_symbols, *LONG_TESTS)
            },
        )
        for file in files
        if file.exists()
    ]


def known_symbols(src: Path, symbols: Collection[str]) -> set[str]:
    """Returns the subset of the given symbols that is defined in a Kconfig file of the tree
    `src`."""
    if not symbols:
        return set()
    pattern = rf'^[[:space:]]*(menu)?config ({"|".join(symbols)})$'
    done = try_git('grep', '-hE', pattern, '--', '*Kconfig*', cwd=src)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def generate(machine: Machine, folder: Path, src: Path, symbols: Symbols, *more: str) -> Symbols:
    """Writes a .config with these symbols. Returns {symbol: actual value} of those that did not get
    the requested value."""
    folder.mkdir(parents=True, exist_ok=True)
    merged = folder / 'merged.config'
    merged.write_text(''.join(f'CONFIG_{symbol}={symbols[symbol]}\n' for symbol in sorted(symbols)))
    command, env = make(machine, folder, src, *more, 'allnoconfig')
    step(None, command, log=folder / 'config.log', env={**env, 'KCONFIG_ALLCONFIG': merged})
    final = dict(re.findall(r'^CONFIG_(\w+)=(.+)$', (folder / '.config').read_text(), re.M))
    return {
        symbol: final.get(symbol, 'n')
        for symbol, value in symbols.items()
        if final.get(symbol, 'n') != value
    }


def inputs(machine: Machine, src: Path, asked: Fragments) -> str:
    """Returns a digest of all inputs of a .config: Kconfig files, requested symbols and the
    compiler."""
    kconfig = '*Kconfig*', 'scripts/kconfig', 'Makefile', 'arch/*/Makefile'
    return stamp_of(
        machine, git('ls-files', '-s', '--', *kconfig, cwd=src), state(src, *kconfig), asked
    )


def configure(machine: Machine, flavour: str, tree: Tree) -> None:
    """Writes .config. Raises an error if a symbol did not get the requested value. For a flavour
    with @, prints these symbols instead."""
    src, folder = source(tree), tree.out(machine.arch, flavour)
    asked = fragments(machine, flavour, src)
    requested: dict[str, tuple[str, Path]] = {}
    key, mark, written = inputs(machine, src, asked), folder / '.asked', folder / '.config'
    if mark.exists() and written.exists() and mark.read_text() == key + written.read_text():
        return
    for file, wanted in asked:
        if file.is_relative_to(SERIES):
            # a topic's symbol may not exist in the base, in a tree with only some of the patches,
            # or in a user's tree
            known = known_symbols(src, wanted)
            wanted = {symbol: value for symbol, value in wanted.items() if symbol in known}
        requested.update({symbol: (value, file) for symbol, value in wanted.items()})
    wrong = generate(
        machine, folder, src, {symbol: value for symbol, (value, _) in requested.items()}
    )
    known = known_symbols(src, list(wrong))
    for symbol, final in wrong.items():
        value, file = requested[symbol]
        why = f'is {final} (its dependencies?)' if symbol in known else 'does not exist there'
        say(f'{shown(file)}: CONFIG_{symbol}={value} was requested but {why}')
    if wrong and parts_of(flavour)[2] is None:
        written.unlink()
        raise KitError(
            f'{tree} {machine.arch} {flavour}: .config lacks {len(wrong)} requested symbol(s)'
        )
    mark.write_text(key + written.read_text())


def main(arch: str, flavour: str, tree: str) -> None:
    configure(model.machine(arch), flavour, OURS.named(tree))
