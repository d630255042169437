# SPDX-License-Identifier: GPL-2.0-only
"""make differ: random calls of VFIO's type1 and of iommufd, the same ones on the base and on the
patched kernel: both have to tell user space the same, behind each IOMMU.

Closes with `N passed, N failed, N skipped`. Exit status: 0, 1 the kernels differ, or that of a
guest.
"""
import random
from collections import Counter
from itertools import zip_longest

from kit.bench import pages
from kit.bench.measure import TREES
from kit.build import kernel
from kit.errors import KitError, fail
from kit.process import Pool, say
from kit.soak import record, soak
from kit.test.verdict import closing
from kit.vm import guest
from kit.vm.qemu import Options

# kernels with tracepoints: the IOMMU's tell what is mapped
FLAVOURS = {'x86_64': 'trace+dax', 'arm64': 'plain'}
# memory of the guest's that it takes for a persistent one's
APPENDS = {'x86_64': ' memmap=64M!2G', 'arm64': ''}
IOMMUS = (('x86_64', 'intel'), ('x86_64', 'amd'), ('x86_64', 'virtio'), ('arm64', 'smmuv3'))
# what `ndctl create-namespace -m devdax` does; type1 never unpins such pages, on the base either
DAX = '''
pmem=/sys/bus/nd/devices/dax0.0
echo namespace0.0 > /sys/bus/nd/drivers/nd_pmem/unbind
echo 2097152 > $pmem/align
cat /proc/sys/kernel/random/uuid > $pmem/uuid
echo ram > $pmem/mode
echo namespace0.0 > $pmem/namespace
echo dax0.0 > /sys/bus/nd/drivers/dax_pmem/bind
[ -c /dev/dax0.0 ]
'''
JOB = '''#!/bin/sh
set -e
{dax}
device=/sys/bus/pci/devices/$BDF
random_maps type1 /dev/vfio/$(basename $(readlink $device/iommu_group)) {calls} {seed}
random_maps iommufd /dev/vfio/devices/$(ls $device/vfio-dev) {calls} {seed}
'''


def told(tree, arch, iommu, job, image, file):
    """The lines that the calls have printed on a kernel."""
    options = Options(cpus=2, memory='3G', iommu=iommu, devices=['igb'],
                      append=f'hugepagesz=2M hugepages=192{APPENDS[arch]}')
    options.limits.silence, options.limits.total = 900, 7200
    ended = guest.run_guest(arch, image, job, [file], options, name=f'differ-{iommu}-{tree}',
                            what=f'{iommu}, {tree}')
    if ended.status != guest.OK:
        say(ended.detail or '\n'.join(ended.results().splitlines()[-3:]))
        raise KitError(f'{iommu}, {tree}: {ended.message}', ended.status)
    return ended.results().splitlines()


def compare(base, patched):
    """{path: the first line that differs, or None} for the paths that the base's lines name."""
    found = {line.split()[1]: None for line in base}
    for one, other in zip_longest(base, patched, fillvalue='nothing'):
        path = (one if one != 'nothing' else other).split()[1]
        if one != other and not found.get(path):
            found[path] = f'base {one}, patched {other}'
    return found


def differ(arch, iommu, calls, seed, pool):
    """One IOMMU's row, results printed."""
    file = soak.program(arch, 'random_maps')
    images = [kernel.build(arch, FLAVOURS[arch], tree) for tree in TREES]
    job = JOB.format(calls=calls, seed=seed, dax=DAX if APPENDS[arch] else '')
    base, patched = pool.map(lambda tree, image: told(tree, arch, iommu, job, image, file),
                             TREES, images)
    if not base:
        raise KitError(f'{iommu}: no call was made')
    found = compare(base, patched)
    for path, difference in found.items():
        print(f'  {"not ok" if difference else "ok":6} {iommu}: {path}, {calls} calls'
              f'{": " + difference if difference else ""}', flush=True)
    return {'command': f'make differ IOMMU={iommu} CALLS={calls} SEED={seed}',
            'arch': arch, 'iommu': iommu, 'seed': seed, 'calls_compared': calls * len(found),
            'differences': sum(map(bool, found.values()))}


def main(calls=12500, iommu='', seed=None):
    seed = seed or random.randrange(1, 1 << 32)
    chosen = [each for each in IOMMUS if iommu in ('', each[1])] or \
        fail(f'no IOMMU {iommu} (known: {" ".join(each for _, each in IOMMUS)})')
    say(f'differ: {calls} calls each, SEED={seed}')
    counts = Counter()
    with Pool(2) as pool:
        for arch, each in chosen:
            row = differ(arch, each, calls, seed, pool)
            record.record([row])
            pages.write()
            counts['failed'] += row['differences']
            counts['passed'] += 2 - row['differences']
    print(closing(counts))
    return guest.FAILED if counts['failed'] else guest.OK
