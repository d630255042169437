# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit boot ARCH FLAVOUR patched|base [options] JOB [FILE…]

Builds and boots a kernel, runs the shell script JOB in the guest, and prints its output. FILEs are
in /job, which is also in PATH. $BDF is the address of the first device on vfio-pci. Exit status: 0,
1 if the job failed, 2 if the guest was lost, 3 after a kernel splat.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from kit import model
from kit.build import kernel
from kit.build.trees import OURS
from kit.errors import KitError
from kit.model import Limits, Options
from kit.process import say
from kit.vm import guest


def main(
    arch: str,
    flavour: str,
    tree: str,
    job: Path,
    files: Sequence[Path] = (),
    image: Path | None = None,
    mem: str = '',
    **given: Any,
) -> int:
    """Boots a kernel, runs the job in the guest, and returns the exit status. `given` has fields of
    Options and Limits."""
    for file in (job, *files):
        if not file.is_file():
            raise KitError(f'{file}: no such file')
    names = {field.name for field in fields(Limits)}
    limits = Limits(**{name: value for name, value in given.items() if name in names})
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name not in names
    }
    options = Options(memory=mem, limits=limits, **chosen)
    machine = model.machine(arch)
    image = image or kernel.build(machine, flavour, OURS.named(tree))
    ended = guest.run_guest(
        machine,
        image,
        job,
        files,
        options,
        name=f'boot-{arch}-{flavour}-{tree}',
        on_line=lambda line: print(line, flush=True),
    )
    boot = f'{ended.boot_seconds:.1f} s' if ended.boot_seconds else 'never'
    say(f'{ended.message} ({ended.accelerator}, init after {boot}, {ended.seconds:.1f} s in all)')
    if ended.detail:
        say(ended.detail)
    return ended.status
