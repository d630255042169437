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

KEPT = BUILD / 'kept'  # kernels that `make check` builds and `make test` reuses
SYMBOLS = 'vmlinux.symvers'  # the kernel's exported symbols


def write_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def drop_halves(folder: Path) -> None:
    """Deletes empty objects, which a killed assembler leaves. `make` would treat them as
    finished."""
    for path in folder.rglob('*.o'):
        if not path.stat().st_size:
            path.unlink()


def clear(folder: Path) -> None:
    """Deletes all files of an interrupted copy in the folder, except the folder's lock."""
    for path in list(folder.glob('*')):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != '.lock':
            path.unlink()


def copy_kernel(machine: Machine, from_folder: Path, to_folder: Path) -> None:
    """Copies those files of a built kernel that are needed to boot it and to build modules for it.
    The stamp comes last, as it marks the copy as complete."""
    (to_folder / '.stamp').unlink(missing_ok=True)
    for name in dict.fromkeys((machine.image, 'vmlinux', 'System.map', SYMBOLS, '.stamp')):
        (to_folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name != SYMBOLS or (from_folder / name).exists():  # absent without modules
            shutil.copyfile(from_folder / name, to_folder / name)


def has_stamp(folder: Path, stamp: str) -> bool:
    """Returns whether the kernel in the folder was built from the inputs that this stamp
    identifies: see asked()."""
    file = folder / '.stamp'
    return file.exists() and file.read_text() == stamp


def kept(machine: Machine, flavour: str) -> Path:
    return KEPT / f'{machine.arch}-{flavour}'


def keep(machine: Machine, flavour: str, tree: Tree) -> None:
    """Copies the kernel that was just built in the tree to KEPT. The caller will then check out and
    build other commits in the tree."""
    copy_kernel(machine, tree.out(machine.arch, flavour), kept(machine, flavour))


def asked(machine: Machine, flavour: str, tree: Tree) -> tuple[str, str]:
    """Returns (C code to include before each file, stamp). The stamp is a digest of all inputs of a
    kernel. It does not depend on the names of folders."""
    src = source(tree)
    header = CONFIGS / f'{machine.arch}-{parts_of(flavour)[0]}.h'
    extra = header.read_text() if header.exists() else ''
    symbols = [(file.name, wanted) for file, wanted in fragments(machine, flavour, src)]
    return extra, stamp_of(machine, state(src), symbols, extra)


def begin_as(patched_tree: Tree, machine: Machine, flavour: str, src: Path, folder: Path) -> None:
    """Copies the objects of the patched kernel to the folder of the base. The first build of the
    base then takes less time. Touches the sources that differ between the two trees. `make` then
    rebuilds only the objects that depend on these sources. ccache would not find any object,
    because the series adds a symbol to the configuration. The .config is not copied. If this
    function is interrupted, the next build therefore finds no .config and calls this function
    again.
    """
    patched, other = source(patched_tree), patched_tree.out(machine.arch, flavour)
    _, now = asked(machine, flavour, patched_tree)
    with Lock(other):
        # if the patched kernel was copied from KEPT, its folder may have objects of older code
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
    # the commands that kbuild saves contain the paths of the source and output folders
    for file in folder.rglob('*.cmd'):
        text = file.read_text().replace(f'{patched}/', f'{src}/')
        file.write_text(text.replace(f'{other}/', f'{folder}/'))


def build(machine: Machine, flavour: str, tree: Tree, parts: Sequence[str] = ()) -> Path:
    """Builds the kernel if anything changed, and returns its image. `parts` are make goals, such
    as objects. If they are given, `make` builds only these goals and links no kernel."""
    src, folder = source(tree), tree.out(machine.arch, flavour)
    image, stamp, before = folder / machine.image, folder / '.stamp', kept(machine, flavour)
    try:
        with Lock(folder):
            extra, now = asked(machine, flavour, tree)
            if has_stamp(folder, now) and image.exists():
                return image
            # Only the patched tree uses a kept kernel, which comes without objects. The next build
            # in another tree would need the objects.
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
                # first.h is next to the objects, so that its path is the same in all trees. ccache
                # can then share objects between trees.
                write_changed(folder / 'first.h', extra)
                command.append('KCFLAGS=-include first.h')
            # x86's piggy.S includes the compressed kernel with .incbin. ccache does not read files
            # that .incbin includes. If two kernels compress to the same length, ccache would reuse
            # the first kernel's object for the second. An unused macro makes the commands differ.
            command.append(f'AFLAGS_piggy.o=-DSTAMP={now}')
            what = f'build {tree} {machine.arch} {flavour}{" (parts)" if parts else ""}'
            step(what, command, log=folder / 'log', env=env)
            if not parts:
                stamp.write_text(now)
    except OSError as error:
        raise KitError(f'{shown(folder)}: {error.strerror}') from error
    return image


def prepare_modules(machine: Machine, flavour: str, tree: Tree) -> None:
    """Prepares the folder of a built kernel, so that modules can be built for this kernel. If the
    kernel was copied from KEPT, the folder has the list of exported symbols, but no objects. The
    caller holds the folder's lock."""
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
    """Returns the stamp with which the kernel was built."""
    return (tree.out(machine.arch, flavour) / '.stamp').read_text()
