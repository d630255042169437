# SPDX-License-Identifier: GPL-2.0-only
"""make shell: a kernel, built and booted, with a shell on this terminal."""
from pathlib import Path

from kit.build import kernel
from kit.errors import KitError
from kit.vm import guest
from kit.vm.qemu import Options


def main(arch='x86_64', flavour='plain', tree='patched', cpus=0, mem='', iommu='', append='',
         share='', gdb=False):
    if share:
        share = str(Path(share).expanduser().resolve())
        if not Path(share).is_dir():
            raise KitError(f'SHARE={share}: no such folder')
        flavour += '+share'
    if gdb:
        flavour += '+gdb'
    options = Options(cpus=cpus, memory=mem, iommu=iommu, append=append)
    return guest.shell(arch, kernel.build(arch, flavour, tree), options, share, gdb)
