# SPDX-License-Identifier: GPL-2.0-only
"""Builds selftests statically for a guest."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kit import topics
from kit.build.trees import Tree, make, source, stamp_of, state
from kit.errors import KitError
from kit.lock import Lock
from kit.model import Machine
from kit.paths import BUILD, GUEST
from kit.process import Environment, Word, output, step
from kit.setup import apt

BELOW = 'tools/testing/selftests'

# {suite: (library that it links, its Debian package)}
LIBRARIES = {'vfio': ('libuuid.a', 'uuid-dev')}


def suite_of(tree: Tree, program: str) -> tuple[str, str] | None:
    """Returns (suite, program) for the text SUITE/PROGRAM, or None if there is no such suite. A
    suite is a folder with a Makefile: the suite of kvm/arm64/NAME is kvm, and its program is
    arm64/NAME."""
    words = program.split('/')
    for count in range(len(words) - 1, 0, -1):
        suite = '/'.join(words[:count])
        if (source(tree) / BELOW / suite / 'Makefile').exists():
            return suite, '/'.join(words[count:])
    return None


def has(tree: Tree, program: str) -> bool:
    """Returns whether the tree has the source of the program."""
    found = suite_of(tree, program)
    if not found:
        return False
    return any((source(tree) / BELOW / found[0]).glob(f'{found[1]}.*'))


def goals_of(
    machine: Machine, tree: Tree, suite: str, folder: Path, wanted: Iterable[str]
) -> list[str]:
    """Returns the make goals for a suite. If [programs] of a topic.toml names the suite, only the
    programs that it lists are built. If [suites] names the suite, it is built whole. For any other
    suite, only the wanted programs are built: the suite may be large, or it may need libraries that
    a cross compiler lacks."""
    if named := topics.programs(suite):
        return [
            str(folder / program)
            for program in named
            if (source(tree) / f'{BELOW}/{suite}/{program}.c').exists()
        ]
    if suite in topics.suites(machine.arch):
        return ['all']
    return sorted(str(folder / program) for program in wanted)


def library_of(machine: Machine, suite: str) -> tuple[str, str]:
    """Returns (arguments for the compiler, arguments for the linker). They let both programs find
    the library that the suite needs. Both strings are empty if the compiler has the library. A
    cross compiler usually lacks it. In that case, the library's Debian package is unpacked below
    build/."""
    if suite not in LIBRARIES:
        return '', ''
    (name, package), arch = LIBRARIES[suite], machine.debian_arch
    if '/' in output([machine.gcc, f'-print-file-name={name}']):
        return '', ''
    unpacked = BUILD / 'apt' / f'{package}-{arch}' / 'files' / 'root'
    library = unpacked / 'usr/lib' / machine.cross_compile.rstrip('-') / name
    if not library.exists():
        apt.fetch(package, machine, f'install {package}:{arch}')
    if not library.exists():
        raise KitError(f'{package} ({arch}) has no {name} for selftests/{suite}')
    return f' -isystem {unpacked}/usr/include', f' -L{library.parent}'


def suite_command(
    machine: Machine, tree: Tree, suite: str, folder: Path, *goals: Word
) -> tuple[list[Word], Environment]:
    """Returns (command, environment) for building the goals in the suite's folder with `make`. The
    headers have been installed."""
    headers, target = folder / 'headers', folder / suite
    command, env = make(machine, headers, source(tree) / BELOW / suite, *goals)
    include, library = library_of(machine, suite)
    command = [word for word in command if not str(word).startswith('O=')]
    command += [
        f'OUTPUT={target}',
        f'KHDR_INCLUDES=-isystem {headers}/usr/include',
        f'EXTRA_CFLAGS=-static{include}',
        f'LDFLAGS=-static -pthread{library}',
    ]
    if suite == 'kvm':
        # A guest of this suite runs the test program's own code at its link address, so the program
        # must not be a PIE. The Makefile generates headers below abs_objdir.
        (target / 'tools').mkdir(exist_ok=True)
        command += [f'abs_objdir={target}', 'LDFLAGS=-static -pthread -no-pie']
    return command, env


def install_headers(machine: Machine, tree: Tree, folder: Path) -> None:
    """Installs the tree's user-space headers into the folder."""
    command, env = make(machine, folder / 'headers', source(tree), 'headers_install')
    step(f'build {tree} {machine.arch} headers', command, log=folder / 'headers.log', env=env)


def sources_of(machine: Machine, tree: Tree) -> str:
    """Returns a digest of the files from which programs and installed headers are made."""
    return state(
        source(tree),
        BELOW,
        'tools/include',
        'include/uapi',
        f'arch/{machine.source_arch}/include/uapi',
    )


def forget_old_headers(sources: Path, target: Path) -> None:
    """Deletes objects that were built with a header that the tree does not have, for example
    because an earlier patch is checked out. Otherwise, `make` would fail because no rule makes the
    header."""
    for path in target.rglob('*.d'):
        headers = re.findall(r'\S+\.h(?=\s)', path.read_text())
        if not all((sources / header).exists() for header in headers):
            path.with_suffix('.o').unlink(missing_ok=True)
            path.unlink()


def build_suite(
    machine: Machine, tree: Tree, suite: str, folder: Path, goals: Sequence[str]
) -> None:
    command, env = suite_command(machine, tree, suite, folder, *goals)
    forget_old_headers(source(tree) / BELOW / suite, folder / suite)
    step(
        f'build {tree} {machine.arch} selftests/{suite}',
        command,
        log=folder / f'{suite.replace("/", "-")}.log',
        env=env,
    )


def build(
    machine: Machine, tree: Tree, programs: Iterable[str], suites: Iterable[str] = ()
) -> dict[str, Path]:
    """Builds the programs (SUITE/PROGRAM) and whole suites; returns {program: its file}."""
    folder = tree.root / 'build' / f'{machine.arch}-selftests'
    places = {}
    for program in programs:
        place = suite_of(tree, program)
        if not place:
            raise KitError(f'{tree} tree: no selftest suite for {program}; is the series applied?')
        places[program] = place
    wanted: dict[str, list[str]] = {suite: [] for suite in suites}
    for suite, name in places.values():
        wanted.setdefault(suite, []).append(name)
    goals = {
        suite: goals_of(machine, tree, suite, folder / suite, names)
        for suite, names in wanted.items()
    }
    with Lock(folder):
        sources = sources_of(machine, tree)
        stamps = {suite: stamp_of(machine, suite, goals[suite], sources) for suite in wanted}
        marks = {suite: folder / suite / '.stamp' for suite in wanted}
        missing = [
            suite
            for suite, mark in marks.items()
            if not mark.exists() or mark.read_text() != stamps[suite]
        ]
        if missing:
            install_headers(machine, tree, folder)
        for suite in missing:
            (folder / suite).mkdir(parents=True, exist_ok=True)
            marks[suite].unlink(missing_ok=True)
            build_suite(machine, tree, suite, folder, goals[suite])
            marks[suite].write_text(stamps[suite])
    files = {program: folder / suite / name for program, (suite, name) in places.items()}
    for program, file in files.items():
        if not file.exists():
            raise KitError(f'{program} was not built; does its Makefile list it?')
    return files


def keep_vm(machine: Machine) -> Path:
    """Builds keep_vm, a program that keeps a VM open while tests run: see guest/keep_vm.c."""
    folder = BUILD / 'keep_vm' / machine.arch
    with Lock(folder):
        step(
            None,
            [machine.gcc, '-O2', '-Wall', '-static', '-o', folder / 'keep_vm', GUEST / 'keep_vm.c'],
        )
    return folder / 'keep_vm'
