# SPDX-License-Identifier: GPL-2.0-only
"""make shell: a kernel, built and booted, with a shell on this terminal."""
import os
from pathlib import Path

from kit import build, guest
from kit.common import die, flag, number
from kit.qemu import Options


def main():
    arch = os.environ.get('ARCH') or 'x86_64'
    flavour, share = os.environ.get('FLAVOUR') or 'plain', os.environ.get('SHARE', '')
    if share:
        share = str(Path(share).expanduser().resolve())
        if not Path(share).is_dir():
            die(f'SHARE={share}: no such folder')
        flavour += '+share'
    if flag('GDB'):
        flavour += '+gdb'
    options = Options(cpus=number('CPUS', 0), memory=os.environ.get('MEM', ''),
                      iommu=os.environ.get('IOMMU', ''), append=os.environ.get('APPEND', ''))
    image = build.build(arch, flavour, os.environ.get('TREE') or 'patched')
    return guest.shell(arch, image, options, share, flag('GDB'))
