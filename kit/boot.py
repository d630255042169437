# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit boot ARCH FLAVOUR patched|base [options] JOB [FILE…]

Builds and boots a kernel, runs the shell script JOB in the guest with FILEs beside it (in /job,
also in PATH), prints its output. The test device's address is in $BDF. Exit status: 0 the job's was
0, 1 it was not, 2 the guest was lost, 3 the kernel complained on the console.
"""
import argparse
from pathlib import Path

from kit import build, guest
from kit.common import die, say
from kit.qemu import Limits, Options


def arguments():
    parser = argparse.ArgumentParser(prog='python3 -m kit boot', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('arch')
    parser.add_argument('flavour')
    parser.add_argument('tree')
    parser.add_argument('job', type=Path)
    parser.add_argument('files', type=Path, nargs='*')
    parser.add_argument('--cpus', type=int, default=0, help='2, or 1 with --icount')
    parser.add_argument('--mem', default='', help="for example 4G; otherwise the machine's own")
    parser.add_argument('--append', default='', help="more words for the kernel's command line")
    parser.add_argument('--icount', action='store_true', help='guest time = instructions executed')
    parser.add_argument('--prealloc', action='store_true', help='memory backed before the start')
    parser.add_argument('--nodes', type=int, default=1, help='NUMA nodes')
    parser.add_argument('--iommu', default='', help='one of guest/ARCH.toml, or none')
    parser.add_argument('--device', action='append', help="instead of the machine's own")
    parser.add_argument('--qemu', action='append', default=[], metavar='WORD',
                        help='one more word for QEMU')
    parser.add_argument('--image', type=Path, help='boot this image, build nothing')
    for limit, default in vars(Limits()).items():
        parser.add_argument(f'--{limit}', type=int, default=default, metavar='SECONDS',
                            help=f'limit (default {default})')
    return parser


def main(*words):
    given = arguments().parse_intermixed_args(words)
    for file in (given.job, *given.files):
        if not file.is_file():
            die(f'{file}: no such file')
    limits = Limits(**{limit: getattr(given, limit) for limit in vars(Limits())})
    options = Options(cpus=given.cpus, memory=given.mem, append=given.append, icount=given.icount,
                      prealloc=given.prealloc, nodes=given.nodes, iommu=given.iommu,
                      devices=given.device, qemu=given.qemu, limits=limits)
    image = given.image or build.build(given.arch, given.flavour, given.tree)
    ended = guest.run_guest(given.arch, image, given.job, given.files, options,
                            name=f'boot-{given.arch}-{given.flavour}-{given.tree}',
                            on_line=lambda line: print(line, flush=True))
    boot = f'{ended.boot_seconds:.1f} s' if ended.boot_seconds else 'never'
    say(f'{ended.message} ({ended.accelerator}, init after {boot}, {ended.seconds:.1f} s in all)')
    if ended.detail:
        say(ended.detail)
    return ended.status
