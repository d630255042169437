# SPDX-License-Identifier: GPL-2.0-only
"""make shell: builds and boots a kernel with a shell on this terminal."""

from pathlib import Path

from kit import model
from kit.build import kernel
from kit.build.trees import OURS, Trees
from kit.errors import KitError
from kit.model import Options
from kit.vm import guest


def main(
    arch: str = 'x86_64',
    flavour: str = 'plain',
    tree: str = 'patched',
    cpus: int = 0,
    mem: str = '',
    iommu: str = '',
    append: str = '',
    share: str = '',
    gdb: bool = False,
    trees: Trees = OURS,
) -> int:
    if share:
        share = str(Path(share).expanduser().resolve())
        if not Path(share).is_dir():
            raise KitError(f'SHARE={share}: no such folder')
        flavour += '+share'
    if gdb:
        flavour += '+gdb'
    options = Options(cpus=cpus, memory=mem, iommu=iommu, append=append)
    machine = model.machine(arch)
    return guest.shell(
        machine, kernel.build(machine, flavour, trees.named(tree)), options, share, gdb
    )
