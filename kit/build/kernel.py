# SPDX-License-Identifier: GPL-2.0-only
"""Builds kernels."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from kit import model
from kit.build.config import CONFIGS, configure, fragments, parts_of
from kit.build.trees import OURS, PATCHED, Tree, make, source, stamp_of, state
from kit.errors import KitError
from kit.lock import Lock
from kit.model import Machine
from kit.paths import BUILD, shown
from kit.process import step
from kit.source.git import git

KEPT = BUILD / 'kept'  # kernels that make check built, for make test
SYMBOLS = 'vmlinux.symvers'  # what the kernel exports


def write_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def drop_halves(folder: Path) -> None:
    """What a killed assembler left: make takes an empty object for a finished one."""
    for path in folder.rglob('*.o'):
        if not path.stat().st_size:
            path.unlink()


def clear(folder: Path) -> None:
    """What a killed copy left; the lock on the folder stays."""
    for path in list(folder.glob('*')):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != '.lock':
            path.unlink()


def copy_kernel(machine: Machine, from_folder: Path, to_folder: Path) -> None:
    """What others read of a built kernel; the stamp, which vouches for it, comes last."""
    (to_folder / '.stamp').unlink(missing_ok=True)
    for name in dict.fromkeys((machine.image, 'vmlinux', 'System.map', SYMBOLS, '.stamp')):
        (to_folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name != SYMBOLS or (from_folder / name).exists():  # without modules it has none
            shutil.copyfile(from_folder / name, to_folder / name)


def has_stamp(folder: Path, stamp: str) -> bool:
    """Was the kernel there built from this?"""
    file = folder / '.stamp'
    return file.exists() and file.read_text() == stamp


def kept(machine: Machine, flavour: str) -> Path:
    return KEPT / f'{machine.arch}-{flavour}'


def keep(machine: Machine, flavour: str, tree: Tree) -> None:
    """Keeps the kernel that the tree has just built; the tree goes on to another commit."""
    copy_kernel(machine, tree.out(machine.arch, flavour), kept(machine, flavour))


def asked(machine: Machine, flavour: str, tree: Tree) -> tuple[str, str]:
    """(text in front of each file, stamp) of what a kernel is built from; a folder's name is no
    part of it."""
    src = source(tree)
    header = CONFIGS / f'{machine.arch}-{parts_of(flavour)[0]}.h'
    extra = header.read_text() if header.exists() else ''
    symbols = [(file.name, wanted) for file, wanted in fragments(machine, flavour, src)]
    return extra, stamp_of(machine, state(src), symbols, extra)


def begin_as(patched_tree: Tree, machine: Machine, flavour: str, src: Path, folder: Path) -> None:
    """Copies the patched kernel's objects to the base's folder, and touches the sources that
    differ, so that make rebuilds what depends on them. ccache cannot help: the series adds a symbol
    to the configuration, so all objects differ. A folder without a .config is copied again.
    """
    patched, other = source(patched_tree), patched_tree.out(machine.arch, flavour)
    _, now = asked(machine, flavour, patched_tree)
    with Lock(other):
        # of a kernel that was kept, the objects beside it may be of another state
        if not has_stamp(other, now) or has_stamp(kept(machine, flavour), now):
            return
        commit = git('rev-parse', 'HEAD', cwd=src).strip()
        differ = git('diff', '--name-only', '-z', '--no-renames', commit, cwd=patched)
        for name in differ.split('\0'):
            if (src / name).is_file():
                os.utime(src / name)
        clear(folder)
        shutil.copytree(
            other,
            folder,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns('.stamp', '.lock', '.config'),
        )
    for file in folder.rglob('*.cmd'):  # commands name both folders
        text = file.read_text().replace(f'{patched}/', f'{src}/')
        file.write_text(text.replace(f'{other}/', f'{folder}/'))


def build(machine: Machine, flavour: str, tree: Tree, parts: Sequence[str] = ()) -> Path:
    """Builds unless nothing changed; returns the image. Or compiles only parts, goals of make."""
    src, folder = source(tree), tree.out(machine.arch, flavour)
    image, stamp, before = folder / machine.image, folder / '.stamp', kept(machine, flavour)
    try:
        with Lock(folder):
            extra, now = asked(machine, flavour, tree)
            if has_stamp(folder, now) and image.exists():
                return image
            # only there: the commits' trees need their objects as well
            if tree.name == PATCHED.name and has_stamp(before, now):
                copy_kernel(machine, before, folder)
                return image
            if tree.begins_as and not (folder / '.config').exists():
                begin_as(tree.begins_as, machine, flavour, src, folder)
            stamp.unlink(missing_ok=True)
            drop_halves(folder)
            configure(machine, flavour, tree)
            command, env = make(machine, folder, src, *(parts or [machine.target]))
            if extra:
                # beside the objects: a path that differs from tree to tree would keep ccache from
                # sharing them
                write_changed(folder / 'first.h', extra)
                command.append('KCFLAGS=-include first.h')
            # x86's piggy.S takes the compressed kernel in with .incbin, which ccache does not look
            # into: of two kernels that are compressed to the same length the second had the first
            # one's code. A macro that nobody reads tells them apart.
            command.append(f'AFLAGS_piggy.o=-DSTAMP={now}')
            what = f'build {tree} {machine.arch} {flavour}{" (parts)" if parts else ""}'
            step(what, command, log=folder / 'log', env=env)
            if not parts:
                stamp.write_text(now)
    except OSError as error:
        raise KitError(f'{shown(folder)}: {error.strerror}') from error
    return image


def prepare_modules(machine: Machine, flavour: str, tree: Tree) -> None:
    """Makes the folder of a built kernel ready for modules. Beside a kernel that was kept there are
    no objects; its exported symbols were kept with it. The caller holds the folder's lock."""
    folder = tree.out(machine.arch, flavour)
    was_kept = not (folder / 'vmlinux.o').exists()
    if was_kept:
        configure(machine, flavour, tree)
    goal = 'modules_prepare' if was_kept else 'modules'
    command, env = make(machine, folder, source(tree), goal)
    step(None, command, log=folder / 'modules.log', env=env)
    if was_kept:
        shutil.copyfile(folder / SYMBOLS, folder / 'Module.symvers')


def main(arch: str, flavour: str, tree: str) -> Path:
    return build(model.machine(arch), flavour, OURS.named(tree))


def stamp(machine: Machine, flavour: str, tree: Tree) -> str:
    """What tells one built kernel from another."""
    return (tree.out(machine.arch, flavour) / '.stamp').read_text()
