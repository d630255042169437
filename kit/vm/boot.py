# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit boot ARCH FLAVOUR patched|base [options] JOB [FILE…]

Builds and boots a kernel, runs the shell script JOB in the guest with FILEs beside it (in /job,
also in PATH), prints its output. The test device's address is in $BDF. Exit status: 0 the job's was
0, 1 it was not, 2 the guest was lost, 3 the kernel complained on the console.
"""
from kit.build import kernel
from kit.errors import KitError
from kit.process import say
from kit.vm import guest
from kit.vm.qemu import Limits, Options


def main(arch, flavour, tree, job, files=(), image=None, mem='', **given):
    """given: fields of Options and of Limits."""
    for file in (job, *files):
        if not file.is_file():
            raise KitError(f'{file}: no such file')
    limits = Limits(**{limit: given.pop(limit) for limit in vars(Limits()) if limit in given})
    options = Options(memory=mem, limits=limits, **given)
    image = image or kernel.build(arch, flavour, tree)
    ended = guest.run_guest(arch, image, job, files, options,
                            name=f'boot-{arch}-{flavour}-{tree}',
                            on_line=lambda line: print(line, flush=True))
    boot = f'{ended.boot_seconds:.1f} s' if ended.boot_seconds else 'never'
    say(f'{ended.message} ({ended.accelerator}, init after {boot}, {ended.seconds:.1f} s in all)')
    if ended.detail:
        say(ended.detail)
    return ended.status
