# SPDX-License-Identifier: GPL-2.0-only
"""Source trees, their output folders, and the make command."""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kit.errors import KitError
from kit.host import host_cpus
from kit.lock import Lock
from kit.model import Machine
from kit.paths import BUILD, LINUX, TOP, shown
from kit.process import Environment, Word, output
from kit.source.git import git, is_at, whole_worktree


@dataclass(frozen=True)
class Tree:
    """A source tree in root/linux, with outputs in root/build/ARCH-FLAVOUR. The relative path from
    the outputs to the source is the same in every tree, so that ccache can share objects."""

    name: str
    root: Path
    begins_as: 'Tree | None' = None  # the first build starts with copies of this tree's objects

    def __str__(self) -> str:
        return self.name

    @property
    def linux(self) -> Path:
        return self.root / 'linux'

    def out(self, arch: str, flavour: str) -> Path:
        """Returns the folder in which the kernel is built. The flavours NAME@SUITE of all suites
        (kit/build/config.py) share one folder. From one suite to the next, kbuild compiles only the
        objects that depend on a changed symbol."""
        name, at, _ = flavour.partition('@')
        return self.root / 'build' / f'{arch}-{name}{at and "-kselftest"}'


@dataclass(frozen=True)
class Trees:
    """The trees of the two kernels that a verb compares."""

    base: Tree
    patched: Tree
    series: Tree  # linux/, for programs that a user's tree lacks

    def named(self, name: str) -> Tree:
        known = {'base': self.base, 'patched': self.patched}
        if name not in known:
            raise KitError(f'no tree {name} (known: {" ".join(known)})')
        return known[name]


PATCHED = Tree('patched', TOP)  # its source is linux/ itself
BASE = Tree('base', BUILD / 'base', begins_as=PATCHED)
OURS = Trees(BASE, PATCHED, PATCHED)


def bisected(arch: str) -> Tree:
    """Returns the tree in which commits are compiled one by one for the architecture."""
    return Tree(f'bisect-{arch}', BUILD / 'bisect' / arch)


def source(tree: Tree) -> Path:
    """Returns the source folder of the tree. Creates the worktree of the base if needed."""
    folder = tree.linux
    if not (LINUX / '.git').exists() and tree in (PATCHED, BASE):
        raise KitError('linux/ does not exist: make tree')
    if tree == BASE:
        commit = git('rev-parse', '--verify', 'base^{commit}').strip()
        if not is_at(folder, commit):
            with Lock(folder.parent):
                whole_worktree(tree.name, folder, commit)
    if not (folder / 'Makefile').exists():
        raise KitError(f'{shown(folder)} does not exist')
    return folder


# Variables of kbuild that users export for their own builds. They are removed here.
OF_THE_USER = """
KCFLAGS KCPPFLAGS KAFLAGS LLVM LLVM_IAS KBUILD_EXTRA_WARN KBUILD_CHECKSRC KBUILD_EXTMOD
KBUILD_OUTPUT KCONFIG_CONFIG MAKEFLAGS GNUMAKEFLAGS MAKELEVEL
""".split()


def make(machine: Machine, folder: Path, src: Path, *goals: Word) -> tuple[list[Word], Environment]:
    """Returns (command, environment) of a make in `folder` that builds the source `src`
    reproducibly."""
    if not shutil.which(machine.gcc):
        raise KitError(f'{machine.gcc} is missing: make deps')
    env: Environment = {
        'KBUILD_BUILD_TIMESTAMP': 'Thu Jan 1 00:00:00 UTC 2026',
        'KBUILD_BUILD_USER': 'build',
        'KBUILD_BUILD_HOST': 'guest',
        'KBUILD_BUILD_VERSION': '1',
        'LOCALVERSION': '',
        'LC_ALL': 'C',
        **dict.fromkeys(OF_THE_USER),
    }
    # nice: running guests have priority
    command: list[Word] = [
        'nice',
        'make',
        '-C',
        src,
        f'-j{host_cpus()}',
        f'O={folder}',
        f'ARCH={machine.kernel_arch}',
        f'CROSS_COMPILE={machine.cross_compile}',
    ]
    if shutil.which('ccache'):
        # CCACHE_DEPEND: ccache reads kbuild's dependency files, and does not run the preprocessor
        env |= {'CCACHE_BASEDIR': TOP, 'CCACHE_DEPEND': '1'}
        command += [f'CC=ccache {machine.gcc}', 'HOSTCC=ccache gcc']
    return [*command, *goals], env


def release(tree: Tree) -> str:
    """Returns VERSION.PATCHLEVEL.SUBLEVEL of the tree's Makefile."""
    text = (source(tree) / 'Makefile').read_text()
    words = ('VERSION', 'PATCHLEVEL', 'SUBLEVEL')
    found = dict(re.findall(r'^(\w+) = (\d+)$', text, re.M))
    return '.'.join(found[word] for word in words)


def state(src: Path, *paths: str) -> str:
    """Returns a digest of HEAD and of all uncommitted changes in a source tree. If `paths` are
    given, only these paths are included."""
    unlocked = {'GIT_OPTIONAL_LOCKS': '0'}  # do not lock a user's tree
    digest = hashlib.sha256()
    digest.update(git('ls-tree', 'HEAD', '--', *paths, cwd=src, env=unlocked).encode())
    changed = git(
        'status', '--porcelain', '-z', '--no-renames', '-uall', '--', *paths, cwd=src, env=unlocked
    )
    for entry in sorted(filter(None, changed.split('\0'))):
        file = src / entry[3:]
        digest.update(entry.encode(errors='surrogateescape'))
        digest.update(file.read_bytes() if file.is_file() else b'')
    return digest.hexdigest()


def stamp_of(machine: Machine, *inputs: object) -> str:
    """Returns a digest of the inputs of a build and of the compiler."""
    compiler = shutil.which(machine.gcc)
    stat = os.stat(compiler) if compiler else None
    identity = stat and (stat.st_size, stat.st_mtime_ns)
    wanted = *inputs, machine.kernel_arch, machine.target, compiler, identity
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def compiler_version(machine: Machine) -> str:
    return output([machine.gcc, '--version'])
