#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/boot ARCH FLAVOUR patched|base|bisect [options] JOB [FILE…]

Builds and boots a kernel, runs the shell script JOB in the guest with FILEs beside it (in /job, also in
PATH), prints its output. The test device's address is in $BDF. Exit status: 0 the job's was 0, 1 it was
not, 2 the guest was lost, 3 the kernel complained on the console.
"""
import argparse
import sys
from pathlib import Path

import guest
import kernel
from common import die, say

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument('arch')
arguments.add_argument('flavour')
arguments.add_argument('tree')
arguments.add_argument('job', type=Path)
arguments.add_argument('files', type=Path, nargs='*')
arguments.add_argument('--cpus', type=int, default=0, help='2, or 1 with --icount')
arguments.add_argument('--mem', default='', help="for example 4G; the architecture's own without it")
arguments.add_argument('--append', default='', help='more words for the kernel command line')
arguments.add_argument('--icount', action='store_true', help='guest time = instructions executed, whatever else the host does')
arguments.add_argument('--prealloc', action='store_true', help="back the guest's memory before it starts")
arguments.add_argument('--nodes', type=int, default=1, help='NUMA nodes')
arguments.add_argument('--device', action='append', help="QEMU devices instead of the architecture's own")
arguments.add_argument('--qemu', action='append', default=[], metavar='WORD', help='one more word for QEMU')
arguments.add_argument('--image', type=Path, help='boot this image, build nothing')
for limit, default in vars(guest.Limits()).items():
    arguments.add_argument(f'--{limit}', type=int, default=default, metavar='SECONDS', help=f'limit (default {default})')
given = arguments.parse_intermixed_args()

for file in (given.job, *given.files):
    if not file.is_file():
        die(f'{file}: no such file')
limits = guest.Limits(**{limit: getattr(given, limit) for limit in vars(guest.Limits())})
options = guest.Options(cpus=given.cpus, memory=given.mem, append=given.append, icount=given.icount, prealloc=given.prealloc,
                        nodes=given.nodes, devices=given.device, qemu=given.qemu, limits=limits)
image = given.image or kernel.build(given.arch, given.flavour, given.tree)
ended = guest.run_guest(given.arch, image.resolve(), given.job, given.files, options,
                        name=f'boot-{given.arch}-{given.flavour}-{given.tree}', on_line=lambda line: print(line, flush=True))
boot = f'{ended.boot_seconds:.1f} s' if ended.boot_seconds else 'never'
say(f'{ended.message} ({ended.accelerator}, init after {boot}, {ended.seconds:.1f} s in all)')
if ended.detail:
    say(ended.detail)
sys.exit(ended.status)
