# SPDX-License-Identifier: GPL-2.0-only
"""Builds a topic's reproducers, series/TOPIC/reproduce/: NAME.c, a program, or the folder NAME, a
module."""
import shutil

from kit.build import kernel as build_kernel
from kit.errors import KitError
from kit.machines import load_machine
from kit.paths import SERIES, shown
from kit.process import step
from kit.build.selftest import install_headers, sources_of
from kit.build.trees import make, out, root, source, stamp_of
from kit.lock import Lock


def module(tree, arch, flavour, file, made):
    """The module of this C file, with the Kbuild beside it, for the tree's built kernel."""
    machine, src, kernel = load_machine(arch), source(tree), out(arch, flavour, tree)
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(file.parent, made)
    with Lock(kernel):
        build_kernel.prepare_modules(arch, flavour, tree)
        command, env = make(machine, kernel, src, f'M={made}', 'modules')
        step(f'build {tree} {arch} {file.stem}.ko', command, log=made / 'log', env=env)
    return made / f'{file.stem}.ko'


def program(tree, arch, file, made):
    """The program, static, with the tree's headers."""
    machine, mark = load_machine(arch), made / '.headers'
    with Lock(made):
        stamp = stamp_of(machine, sources_of(machine, tree))
        if not mark.exists() or mark.read_text() != stamp:
            install_headers(machine, arch, tree, made)
            mark.write_text(stamp)
        step(f'build {tree} {arch} {file.stem}', [
            f'{machine["cross_compile"]}gcc', '-O2', '-Wall', '-Werror', '-static', '-pthread',
            '-isystem', made / 'headers/usr/include', '-o', made / file.stem, file],
            log=made / f'{file.stem}.log')
    return made / file.stem


def file_name(topic, name):
    """What the reproducer is called in the guest."""
    folder = SERIES / topic / 'reproduce'
    if (folder / f'{name}.c').exists():
        return name
    if (folder / name / f'{name}.c').exists():
        return f'{name}.ko'
    raise KitError(f'{shown(folder)} has neither {name}.c nor {name}/{name}.c')


def build(arch, flavour, tree, topic, name):
    """The reproducer's file for a guest with this kernel."""
    folder = SERIES / topic / 'reproduce'
    made = root(tree) / 'build' / f'{arch}-reproduce'
    if file_name(topic, name) == name:
        return program(tree, arch, folder / f'{name}.c', made)
    return module(tree, arch, flavour, folder / name / f'{name}.c', made / flavour / name)
