# SPDX-License-Identifier: GPL-2.0-only
"""Builds programs that are not selftests: workloads of soak/, reproducers, and benchmarks of
topics. They are linked statically and include a tree's user-space headers."""

from collections.abc import Sequence
from pathlib import Path

from kit.build.selftest import install_headers, sources_of
from kit.build.trees import Tree, stamp_of
from kit.lock import Lock
from kit.model import Machine
from kit.process import Word, step


def build(
    machine: Machine, tree: Tree, made: Path, name: str, files: Sequence[Path], *more: Word
) -> Path:
    """Builds the program `name` from the C files `files`, in the folder `made`. `more` are
    further arguments for the compiler."""
    mark = made / '.headers'
    with Lock(made):
        stamp = stamp_of(machine, sources_of(machine, tree))
        if not mark.exists() or mark.read_text() != stamp:
            install_headers(machine, tree, made)
            mark.write_text(stamp)
        step(
            f'build {tree} {machine.arch} {name}',
            [
                machine.gcc,
                '-O2',
                '-Wall',
                '-static',
                '-pthread',
                '-isystem',
                made / 'headers/usr/include',
                *more,
                '-o',
                made / name,
                *files,
            ],
            log=made / f'{name}.log',
        )
    return made / name
