# SPDX-License-Identifier: GPL-2.0-only
"""The source trees, their output folders, and make in them.

A root R has its source in R/linux and its outputs in R/build/ARCH-FLAVOUR, so the way from one to
the other is the same everywhere and ccache shares objects between the trees.
"""
import fcntl
import hashlib
import os
import re
import shutil
import time

from kit.errors import KitError
from kit.host import host_cpus
from kit.machines import archs
from kit.paths import BUILD, LINUX, TOP, shown
from kit.process import output, say
from kit.source.git import git, is_at, whole_worktree

# `own` and `own-base` are of make's LINUX=, which kit/source/user_tree.py puts in the place of the
# first two; commits are compiled one by one in a tree for each architecture, side by side
ROOTS = {'patched': TOP, 'base': BUILD / 'base',
         **{f'bisect-{arch}': BUILD / 'bisect' / arch for arch in archs()}}


def root(tree):
    if tree not in ROOTS:
        raise KitError(f'no tree {tree} (known: {" ".join(ROOTS)})')
    return ROOTS[tree]


def source(tree):
    """The tree's source folder; a worktree is made when it is not there."""
    folder = root(tree) / 'linux'
    if not (LINUX / '.git').exists() and folder in (LINUX, BUILD / 'base' / 'linux'):
        raise KitError('linux/ is not there: make tree')
    if folder == BUILD / 'base' / 'linux':
        commit = git('rev-parse', '--verify', 'base^{commit}').strip()
        if not is_at(folder, commit):
            with Lock(folder.parent):
                whole_worktree(tree, folder, commit)
    if not (folder / 'Makefile').exists():
        raise KitError(f'{shown(folder)} is not there')
    return folder


def out(arch, flavour, tree):
    """The kernel's folder; those for selftest suites (kit/build/config.py) share one, as kbuild
    compiles only what a symbol changes."""
    name, at, _ = flavour.partition('@')
    return root(tree) / 'build' / f'{arch}-{name}{at and "-kselftest"}'


# what kbuild takes from the environment, where somebody may have it for a build of his own
OF_THE_USER = ('KCFLAGS', 'KCPPFLAGS', 'KAFLAGS', 'LLVM', 'LLVM_IAS', 'KBUILD_EXTRA_WARN',
               'KBUILD_CHECKSRC', 'KBUILD_EXTMOD', 'KBUILD_OUTPUT', 'KCONFIG_CONFIG', 'MAKEFLAGS',
               'GNUMAKEFLAGS', 'MAKELEVEL')


def make(machine, folder, src, *goals):
    """(command, environment) of a make in the tree; the same bytes whoever builds."""
    cross = machine['cross_compile']
    if not shutil.which(f'{cross}gcc'):
        raise KitError(f'{cross}gcc is missing: make deps')
    env = {'KBUILD_BUILD_TIMESTAMP': 'Thu Jan 1 00:00:00 UTC 2026', 'KBUILD_BUILD_USER': 'build',
           'KBUILD_BUILD_HOST': 'guest', 'KBUILD_BUILD_VERSION': '1', 'LOCALVERSION': '',
           'LC_ALL': 'C', **dict.fromkeys(OF_THE_USER)}
    # nice: guests that run meanwhile go first
    command = ['nice', 'make', '-C', src, f'-j{host_cpus()}', f'O={folder}',
               f'ARCH={machine["kernel_arch"]}', f'CROSS_COMPILE={cross}']
    if shutil.which('ccache'):
        # the dependencies that kbuild asks for spare a preprocessor run
        env |= {'CCACHE_BASEDIR': TOP, 'CCACHE_DEPEND': '1'}
        command += [f'CC=ccache {cross}gcc', 'HOSTCC=ccache gcc']
    return [*command, *goals], env


def source_arch(machine):
    """The folder of arch/; ARCH=x86_64 and ARCH=i386 are names for x86."""
    return {'x86_64': 'x86', 'i386': 'x86'}.get(machine['kernel_arch'], machine['kernel_arch'])


def release(tree):
    """VERSION.PATCHLEVEL.SUBLEVEL of the tree's Makefile."""
    text = (source(tree) / 'Makefile').read_text()
    words = ('VERSION', 'PATCHLEVEL', 'SUBLEVEL')
    return '.'.join(re.search(rf'^{word} = (\d+)$', text, re.M)[1] for word in words)


def state(src, *paths):
    """A digest of the source (or of some paths in it) as it is: HEAD's and what is uncommitted."""
    unlocked = {'GIT_OPTIONAL_LOCKS': '0'}    # whoever works in the tree is not disturbed
    digest = hashlib.sha256()
    digest.update(git('ls-tree', 'HEAD', '--', *paths, cwd=src, env=unlocked).encode())
    changed = git('status', '--porcelain', '-z', '--no-renames', '-uall', '--', *paths, cwd=src,
                  env=unlocked)
    for entry in sorted(filter(None, changed.split('\0'))):
        file = src / entry[3:]
        digest.update(entry.encode(errors='surrogateescape'))
        digest.update(file.read_bytes() if file.is_file() else b'')
    return digest.hexdigest()


def stamp_of(machine, *inputs):
    """A digest of what a build depends on: the inputs and the compiler."""
    compiler = shutil.which(f'{machine["cross_compile"]}gcc')
    stat = os.stat(compiler) if compiler else None
    identity = stat and (stat.st_size, stat.st_mtime_ns)
    wanted = *inputs, machine['kernel_arch'], machine['target'], compiler, identity
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


class Lock:
    """One verb at a time in a folder. If it is killed, what it has started there holds the lock."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, open(folder / '.lock', 'w', encoding='ascii')
        os.set_inheritable(self.file.fileno(), True)

    def __enter__(self):
        for second in range(3600):
            try:
                return fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not second:
                    say(f'{shown(self.folder)}: waiting for the verb that works there')
                time.sleep(1)
        raise KitError(f'{shown(self.folder)}: another verb has held it for an hour')

    def __exit__(self, *_):
        # for whatever has inherited it: children of other threads, a daemon of git's
        fcntl.flock(self.file, fcntl.LOCK_UN)
        self.file.close()


def compiler_version(machine):
    return output([f'{machine["cross_compile"]}gcc', '--version'])
