# SPDX-License-Identifier: GPL-2.0-only
"""These checks run the compiler for one architecture, in a worktree of this architecture. They
compile each patch and the small configurations of topics. They also compile the touched files with
gcc W=1 and check them with sparse."""

import functools
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kit import topics
from kit.bench.measure import quick_topics
from kit.build import kernel, selftest
from kit.build.config import configure, fragments, generate, known_symbols
from kit.build.trees import bisected, compiler_version, make
from kit.check.common import (
    GENERIC,
    WORK,
    Failed,
    Skipped,
    arch_of,
    checkout,
    need_patches,
    new_lines,
    passed_before,
    passed_now,
    remember,
    series,
)
from kit.clients import settings as clients
from kit.errors import KitError
from kit.mail import single
from kit.model import Compile, Machine, machine, machines
from kit.paths import GUEST, TOP
from kit.process import output, result, say, step
from kit.source.git import git, try_git
from kit.source.patches import patch_files
from kit.source.pinned import base_file, touched
from kit.test import plan

# Debian's sparse 0.6.4 lacks __typeof_unqual__, and v7.3's build would silently skip sparse
SPARSE = 'sparse -D__typeof_unqual__=__typeof__'
# For each header that a patch changes, at most this many files that include the header are
# compiled. For the last commit, the whole kernel is built.
USERS = 40


def linux_of(arch: str) -> Path:
    """Returns the folder in which the architecture's commits are checked out one by one."""
    return bisected(arch).linux


@functools.cache
def flavour_of(arch: str) -> str:
    """Returns the flavour in which patches are compiled for the architecture. `make test` boots
    this flavour, so the kernel of the last patch is built only once. This flavour is `plain` if
    possible."""
    flavours = [boot.flavour for boot in plan.chosen(arch=arch)] or ['plain']
    return 'plain' if 'plain' in flavours else flavours[0]


def sources(commit: str, arch: str) -> list[str]:
    """Returns lines of git ls-tree for the files that are read when the commit is built for the
    architecture. They omit documentation, tests, and the arch/ folders of other architectures. If
    an architecture has no guest, its folder is kept."""
    others = {f'arch/{other.source_arch}' for other in machines()} - {
        f'arch/{machine(arch).source_arch}'
    }
    lines = git('ls-tree', commit, '--', 'arch/', 'tools/', 'Documentation/Kconfig') + git(
        'ls-tree', commit
    )
    return [
        line
        for line in lines.splitlines()
        if line.split('\t')[1]
        not in {'arch', 'tools', 'tools/testing', 'Documentation', 'MAINTAINERS', *others}
    ]


def build_key(commit: str, arch: str) -> str:
    """Returns a digest of all inputs of the commit's kernel: see remember()."""
    settings = [GUEST / f'{arch}.toml', *sorted((GUEST / 'config').iterdir())]
    configs = topics.config([arch, flavour_of(arch), f'{arch}-{flavour_of(arch)}'])
    return remember(
        sources(commit, arch),
        [path.read_bytes() for path in settings],
        [wanted for _, wanted in configs],
        topics.suites(arch),
        compiler_version(machine(arch)),
    )


def gcc_says(log: Path, arch: str) -> list[str]:
    """Returns a log's warnings and errors from gcc and sparse, with paths relative to the kernel's
    tree."""
    lines = [
        re.sub(r'^(\.\./)+linux/', '', line.replace(f'{linux_of(arch)}/', ''))
        for line in log.read_text(errors='replace').splitlines()
    ]
    return [line for line in lines if re.match(r'\S+:\d+(:\d+)?: (warning|error):', line)]


def subject(commit: str) -> str:
    return git('log', '-1', '--format=%s', commit).strip()


def archs_of(topic: str, changed: Iterable[str]) -> set[str]:
    """Returns the architectures for which a patch must compile. `changed` has the files that it
    touches. A patch that is mailed alone must compile for the architectures of these files. Other
    patches must compile for those of all files that the topic touches, and for GENERIC."""
    if topics.is_single(topic):
        return set(map(arch_of, changed))
    return {GENERIC, *map(arch_of, series().topic_files[topic])}


def header_name(path: str) -> str:
    """Returns the name by which files include the header at this path."""
    return re.sub(r'^(arch/\w+/)?include/', '', path)


@functools.cache
def users() -> dict[str, list[str]]:
    """Searches the last commit. Returns {header: C files that include it} for the kernel headers
    that the series touches."""
    names = {
        header_name(path)
        for path in series().files
        if path.endswith('.h') and not path.startswith('tools/')
    }
    patterns = [f'-e<{name}>' for name in sorted(names)]
    lines = try_git('grep', '-oF', *patterns, series().last, '--', '*.c').stdout if names else ''
    found: dict[str, list[str]] = {}
    for line in lines.splitlines():
        _, path, name = line.split(':')
        found.setdefault(name[1:-1], []).append(path)
    return found


def users_of(headers: Iterable[str]) -> list[str]:
    """Returns C files that include one of the headers, at most USERS for each header."""
    return [path for header in headers for path in users().get(header_name(header), [])[:USERS]]


def objects_of(
    topic: str, commit: str, below: str, arch: str, changed: Sequence[str] = ()
) -> list[str]:
    """Returns the objects to compile for a patch. They are built from the C files that the patch's
    topic touches (or from the files in `changed`, if given). If the patch touches a header, objects
    of files that include it are added. Objects that the build of the last commit did not make are
    left out."""
    headers = [path for path in touched(below, commit) if path.endswith('.h')]
    files = {*series().kernel_files(changed or series().topic_files[topic]), *users_of(headers)}
    folder = bisected(arch).out(arch, flavour_of(arch))
    listed = git('ls-tree', '-r', '--name-only', commit, '--', *files).splitlines() if files else []
    return sorted(f'{path[:-2]}.o' for path in listed if made_by_its_folder(folder, path[:-2]))


def made_by_its_folder(folder: Path, name: str) -> bool:
    """Returns whether NAME.o was built by the Makefile in its own folder. Some objects, such as
    hyp/vhe/../exception.o, are built by another folder's Makefile, which uses other flags."""
    command = folder / Path(name).parent / f'.{Path(name).name}.o.cmd'
    return command.exists() and command.read_text().startswith(f'savedcmd_{name}.o ')


def build_commit(what: str, commit: str, arch: str, parts: Sequence[str] = ()) -> None:
    """Compiles the commit, whole or in parts; a warning in a touched file is an error."""
    key = remember(build_key(commit, arch), parts)
    if passed_before(key):
        return
    say(f'bisect: {what}, {arch}: {subject(commit)}')
    checkout(commit, linux_of(arch))
    flavour = flavour_of(arch)
    try:
        kernel.build(machine(arch), flavour, bisected(arch), parts)
    except KitError as error:
        raise Failed(f'{what} does not build for {arch}: {error}') from error
    log = bisected(arch).out(arch, flavour) / 'log'
    said = [line for line in gcc_says(log, arch) if line.split(':')[0] in series().files]
    if said:
        raise Failed('\n'.join([f'{what}:', *said]))
    passed_now(key)


def build_suites(commit: str, below: str, arch: str) -> None:
    """Builds the selftest suites that a patch touches."""
    paths = touched(below, commit)
    suites = [
        suite
        for suite in topics.suites(arch)
        if any(path.startswith(f'{selftest.BELOW}/{suite}/') for path in paths)
    ]
    key = remember('suites', git('rev-parse', f'{commit}^{{tree}}'), suites, arch)
    if suites and not passed_before(key):
        checkout(commit, linux_of(arch))
        selftest.build(machine(arch), bisected(arch), [], suites)
        passed_now(key)


def bisect(arch: str, full: bool = False) -> None:
    """Every patch compiles, without warnings in touched files; the last kernel is linked."""
    need_patches()
    below, concerns = 'base', set()
    for topic, commit in series().commits:
        concerns |= archs_of(topic, touched(below, commit))
        below = commit
    if arch not in concerns:
        raise Skipped(f'no patch is compiled for {arch}')
    last, folder = series().last, bisected(arch).out(arch, flavour_of(arch))
    if not passed_before(remember(build_key(last, arch), ())) or not folder.exists():
        build_commit('the whole series', last, arch)
        kernel.keep(machine(arch), flavour_of(arch), bisected(arch))
    below = 'base'
    for (topic, commit), path in zip(series().commits, series().patches):
        changed = touched(below, commit)
        if arch in archs_of(topic, changed):
            if sources(below, arch) != sources(commit, arch):
                own = changed if topics.is_single(topic) else ()
                parts = () if full else objects_of(topic, commit, below, arch, own)
                if parts or full:
                    build_commit(path.name, commit, arch, parts)
            build_suites(commit, below, arch)
        below = commit


def alone(arch: str, full: bool = False) -> None:
    """If a patch is mailed alone, it applies to the base and compiles there."""
    need_patches()
    found = [
        (topic, path)
        for topic in topics.order()
        if topics.is_single(topic)
        for path in patch_files(topic)
    ]
    try:
        commits = {path: single.commits(topic)[path] for topic, path in found}
    except KitError as error:
        raise Failed(str(error)) from error
    changed = {path: touched(*commits[path]) for _, path in found}
    mine = [(topic, path) for topic, path in found if arch in archs_of(topic, changed[path])]
    if not mine:
        raise Skipped(f'no patch for {arch} is mailed alone')
    for topic, path in mine:
        below, commit = commits[path]
        if parts := objects_of(topic, commit, below, arch, changed[path]):
            build_commit(f'{path.name}, on the base', commit, arch, parts)


def compiler_warnings(commit: str, files: Sequence[str], arch: str) -> tuple[int, list[str], Path]:
    """Compiles these files of the commit with W=1 and sparse; returns (exit status, findings, log).
    The configuration is that of the debug kernel, which has all tests."""
    checkout(commit, linux_of(arch))
    configure(machine(arch), 'debug', bisected(arch))
    folder = bisected(arch).out(arch, 'debug')
    objects = [path[:-2] + '.o' for path in files]
    for path in objects:
        (folder / path).unlink(missing_ok=True)
    command, env = make(
        machine(arch), folder, linux_of(arch), '-k', 'W=1', 'C=1', f'CHECK={SPARSE}', *objects
    )
    which = 'base' if commit == 'base' else 'series'
    log = WORK / f'warnings-{arch}-{which}.log'
    status = step(
        f'W=1 and sparse of {len(objects)} files ({arch}, {which})',
        command,
        log=log,
        env=env,
        check=False,
    )
    if 'C=1 specified, but' in log.read_text(errors='replace'):
        raise Failed(f'sparse is too old for this kernel: {log.relative_to(TOP)}')
    return status, gcc_says(log, arch), log


def warnings(arch: str, full: bool = False) -> None:
    """In touched files, gcc (with W=1) and sparse report nothing new."""
    files = [
        path for path in series().kernel_files(series().present('.c')) if arch_of(path) == arch
    ]
    if not files:
        raise Skipped(f'no C file of the kernel for {arch} is touched')
    status, after, log = compiler_warnings(series().last, files, arch)
    # On the base, only files with findings are compiled. If a finding names a header, all files
    # are compiled.
    said = {line.split(':')[0] for line in after}
    if status or said - set(files):
        said = set(files)
    old = [path for path in files if path in said and base_file(path) is not None]
    failed_before, before, _ = compiler_warnings('base', old, arch) if old else (0, [], log)
    # a file that does not compile on the base does not belong to this configuration
    absent = {line.split(':')[0] for line in before if ': error: ' in line}
    new = [
        line
        for line in new_lines(before, after)
        if line.split(':')[0] in set(series().files) - absent
    ]
    # if the base fails, too, the file may be a driver of another architecture
    if status and not new and not failed_before:
        raise Failed(f'the touched files do not compile with W=1: {log.relative_to(TOP)}')
    if new:
        raise Failed('\n'.join(new))


def machine_of(config: Compile) -> Machine:
    """Returns the machine of the guest. If the small configuration sets `kernel_arch` or
    `cross_compile`, its value replaces that of the machine."""
    found = machine(config.arch)
    return replace(
        found,
        kernel_arch=config.kernel_arch or found.kernel_arch,
        cross_compile=config.cross_compile or found.cross_compile,
    )


def compile_touched(
    config: Compile, commit: str, files: Sequence[str]
) -> tuple[int, list[str], Path]:
    """Compiles these files of the commit in a small configuration; returns (exit status, findings,
    log)."""
    arch, name = config.arch, f'{config.topic}-{config.name}'
    guest, src = machine_of(config), linux_of(arch)
    checkout(commit, src)
    # all configurations of a compiler share a folder, so the kernel's tools are built once
    suffix = f'-{config.compiler}' if config.compiler else ''
    folder = bisected(arch).out(guest.kernel_arch, f'small{suffix}')
    ccache = 'ccache ' if shutil.which('ccache') else ''
    compiler = [f'CC={ccache}{config.compiler}'] if config.compiler else []
    lost = generate(guest, folder, src, topics.symbols(config.symbols), *compiler)
    if lost and commit == series().last:  # the base lacks symbols that the series adds
        raise Failed(f'{name}: not in .config: {" ".join(lost)}')
    objects = [f'{path[:-2]}.o' for path in [*files, *config.also]]
    for path in objects:  # an existing object would not be compiled, so warnings would be missing
        (folder / path).unlink(missing_ok=True)
    command, env = make(guest, folder, src, *compiler, '-k', *objects)
    which = 'the base' if commit == 'base' else subject(commit)
    log = folder / f'{name}-{"base" if commit == "base" else "series"}.log'
    status = step(
        f'compile {name}: {len(objects)} files of {which}', command, log=log, env=env, check=False
    )
    said = (folder / 'config.log').read_text(errors='replace').splitlines()
    unmet = [line for line in said if 'unmet direct dependencies' in line]
    found = [*unmet, *gcc_says(log, arch), *unresolved(folder, objects, guest, commit)]
    return status, found, log


def unresolved(folder: Path, objects: Sequence[str], guest: Machine, commit: str) -> list[str]:
    """Returns errors that only linking would show: modules that use unexported symbols, and 64-bit
    divisions on 32-bit kernels."""
    found = []
    for path in filter(lambda each: (folder / each).exists(), objects):
        names = result(
            [f'{guest.cross_compile}nm', '-u', '--format=just-symbols', folder / path]
        ).stdout.split()
        found += [
            f'{path}: {name}'
            for name in names
            if re.fullmatch(r'__u?(div|mod|divmod)[dt]i[34]', name)
        ]
        command = (folder / path).with_name(f'.{Path(path).name}.cmd').read_text()
        # in a module of several objects, another object may define the symbol
        alone = re.search(r'KBUILD_BASENAME=(\S+) .*KBUILD_MODNAME=\1 ', command)
        if ' -DMODULE ' in command and alone:
            # macros and modpost define some symbols
            found += [
                f'{path}: {name} is not exported'
                for name in names
                if name not in exported_symbols(commit)
                and not re.match('__this_module$|__SC[TK]__|param_ops_', name)
            ]
    return found


@functools.cache
def exported_symbols(commit: str) -> set[str]:
    """Returns the names of all symbols that the commit exports."""
    lines = git('grep', '-hF', 'EXPORT_', commit, '--', '*.[chS]')
    return set(re.findall(r'EXPORT\w*SYMBOL\w*\((\w+)', lines))


def files_for(config: Compile) -> list[str]:
    """Of the topic's C files, returns those that this small configuration compiles."""
    return [
        path
        for path in series().kernel_files(series().topic_files[config.topic])
        if not path.startswith(config.without)
        and (
            not path.startswith('arch/')
            or path.startswith(f'arch/{machine_of(config).source_arch}/')
        )
    ]


def commits_for(config: Compile, full: bool) -> list[str]:
    """Returns the commits to compile in a small configuration: by default, only the last commit.
    With FULL=1, the list has all commits of the configuration's topic and of later topics. If the
    configuration itself exists only with FULL=1, the list still has only the last commit."""
    if not full or config.full:
        return [series().last]
    first = list(series().tips).index(config.topic)
    return [
        commit for topic, commit in series().commits if list(series().tips).index(topic) >= first
    ]


def small(arch: str, full: bool = False) -> None:
    """Touched files compile in the topics' small configurations without new findings."""
    found, wanted = (
        [],
        [
            config
            for config in topics.compiled()
            if config.arch == arch and (full or not config.full)
        ],
    )
    if not wanted:
        raise Skipped(f'no topic has one for {arch}')
    for config in wanted:
        compiler = config.compiler or machine_of(config).gcc
        if not shutil.which(compiler):
            raise Failed(f'{compiler} is missing (make deps FULL=1)')
        version = output([compiler, '--version'])
        for commit in commits_for(config, full):
            ours = files_for(config)
            files = (
                git('ls-tree', '-r', '--name-only', commit, '--', *ours).splitlines()
                if ours
                else []
            )
            key = remember('compile', sources(commit, arch), config, files, version)
            if files and not passed_before(key):
                new = compile_new(config, commit, files)
                found += new
                if not new:
                    passed_now(key)
    if found:
        raise Failed('\n'.join(found))


def undefined_symbols(arch: str, flavour: str) -> set[str]:
    """Returns the requested symbols that no Kconfig file defines."""
    src = linux_of(arch)
    asked = {
        symbol
        for _, symbols in fragments(machine(arch), flavour, src)
        for symbol, value in symbols.items()
        if value != 'n'
    }
    return asked - known_symbols(src, asked)


def configs(arch: str, full: bool = False) -> None:
    """All requested symbols exist, in the configurations that no other check builds.

    `make shell`, `make run`, `make bench`, `make clients` and `make test FULL=1` use these
    configurations. With FULL=1, this check also makes each .config, because a symbol's dependencies
    may be missing."""
    need_patches()
    asked = {boot.flavour for boot in plan.chosen(arch, full=True)}
    if arch == GENERIC:
        asked.add('trace')  # make bench's
    programs = clients.settings().clients.values()
    asked |= {client.flavour for client in programs if client.arch == arch}
    asked -= {boot.flavour for boot in plan.chosen(arch)}
    asked |= {'plain+share', 'plain+gdb'}
    quick = (topics.benchmark(topic).QUICK for topic in quick_topics())
    asked |= {flavour for its_arch, flavour, _ in quick if its_arch == arch}  # make run's
    checkout(series().last, linux_of(arch))
    found = []
    for flavour in sorted(asked):
        found += [
            f'{arch} {flavour}: no Kconfig file defines {symbol}'
            for symbol in sorted(undefined_symbols(arch, flavour))
        ]
        if full:
            configure(machine(arch), flavour, bisected(arch))
    if found:
        raise Failed('\n'.join(found))


def compile_new(config: Compile, commit: str, files: Sequence[str]) -> list[str]:
    """Compiles these files in a small configuration; returns findings that the base lacks."""
    status, said, log = compile_touched(config, commit, files)
    if said:
        old = [path for path in files if base_file(path) is not None]
        said = new_lines(compile_touched(config, 'base', old)[1], said)
    if status and not said:
        said = [f'make ends with {status}: {log.relative_to(TOP)}']
    return [f'{config.topic} {config.name}, {subject(commit)}:', *said] if said else []
