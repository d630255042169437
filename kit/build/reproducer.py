# SPDX-License-Identifier: GPL-2.0-only
"""Builds a topic's reproducers, which show bugs of the base. A reproducer is a program
series/TOPIC/reproduce/NAME.c, or a kernel module in the folder series/TOPIC/reproduce/NAME/."""

import shutil
from pathlib import Path

from kit.build import kernel, program
from kit.build.trees import Tree, make, source
from kit.errors import KitError
from kit.lock import Lock
from kit.model import Machine
from kit.paths import SERIES, shown
from kit.process import step


def module(machine: Machine, flavour: str, tree: Tree, file: Path, made: Path) -> Path:
    """Builds a kernel module from this C file and the Kbuild in its folder, and returns its .ko.
    The tree's kernel has been built. `made` is the output folder."""
    src, folder = source(tree), tree.out(machine.arch, flavour)
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(file.parent, made)
    with Lock(folder):
        kernel.prepare_modules(machine, flavour, tree)
        command, env = make(machine, folder, src, f'M={made}', 'modules')
        step(f'build {tree} {machine.arch} {file.stem}.ko', command, log=made / 'log', env=env)
    return made / f'{file.stem}.ko'


def file_name(topic: str, name: str) -> str:
    """Returns the reproducer's file name in the guest."""
    folder = SERIES / topic / 'reproduce'
    if (folder / f'{name}.c').exists():
        return name
    if (folder / name / f'{name}.c').exists():
        return f'{name}.ko'
    raise KitError(f'{shown(folder)} has neither {name}.c nor {name}/{name}.c')


def build(machine: Machine, flavour: str, tree: Tree, topic: str, name: str) -> Path:
    """Builds the reproducer for a guest with this kernel."""
    folder = SERIES / topic / 'reproduce'
    made = tree.root / 'build' / f'{machine.arch}-reproduce'
    if file_name(topic, name) == name:
        return program.build(machine, tree, made, name, [folder / f'{name}.c'], '-Werror')
    file = folder / name / f'{name}.c'
    return module(machine, flavour, tree, file, made / flavour / name)
