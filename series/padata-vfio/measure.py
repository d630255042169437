# SPDX-License-Identifier: GPL-2.0-only
"""Measures padata-vfio: the instructions that VFIO type1 and iommufd take to map and unmap 1 GiB of
memory. With type1, it also measures how many seconds a map of present memory takes, and how long a
VMM takes to prefault with two threads and then map with one."""

import re
import statistics
from itertools import product
from pathlib import Path

from kit.bench.measure import TREES, Job, commands, row, warn_if_busy
from kit.model import Limits, Options
from kit.process import Pool

QUICK = 'x86_64', 'plain+quick', 'vfio/vfio_pin_perf'  # (architecture, flavour, selftest)
MIB = 1024
BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}  # of vfio_pin_perf
# Memory that type1 and iommufd map by its address. 'fresh' must come first: only the first memory
# that a guest allocates is physically contiguous.
RANGES = {
    'fresh': '4K adjacent',
    '4k': '4K',
    'thp': 'THP',
    'hugetlb': '2M hugetlb',
    'hugetlb1g': '1G hugetlb',
    'shared_4k': '4K shared',
}
FILES = {'memfd': '4K file', 'memfd_hugetlb': '2M file'}  # files that iommufd maps
PATHS = {'type1': 'group', 'iommufd': 'device'}
# sets the paths of the device in the guest's shell, and reserves huge pages
WAYS = (
    'group=/dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$BDF/iommu_group))\n'
    'device=/dev/vfio/devices/$(ls /sys/bus/pci/devices/$BDF/vfio-dev)\n'
    f'echo {MIB // 2 + 1} > /proc/sys/vm/nr_hugepages\n'
)
# {argument of pin_span: {call: metric}}
CALLS = {
    '': {'map': 'present_pin_instructions', 'unmap': 'unmap_instructions'},
    'absent': {'map': 'absent_pin_instructions'},
    'kill': {'kill': 'kill_to_free'},
}


def rows(pairs):
    """The rows in seconds. Maps of absent memory and unmaps vary more between boots of one kernel
    than between the kernels, so only their instructions are recorded. No row is for prefaulting
    alone."""
    found = []
    for backing in BACKINGS:
        name = f'map_warm_{backing}'
        found.append(
            row(name, [base[name] for base, _ in pairs], [patched[name] for _, patched in pairs])
        )
        # both kernels prefault alike, so the median of all their figures is used
        prefault = statistics.median(
            each for pair in pairs for both in pair for each in both[f'prefault2_{backing}']
        )
        found.append(
            row(
                f'prefault_then_map_{backing}',
                [[prefault + each for each in base[f'map_warm_{backing}']] for base, _ in pairs],
                [[prefault + each for each in after[f'map_warm_{backing}']] for _, after in pairs],
                threads=2,
            )
        )
    return found


def boot(bench, tree, flavour, job, what):
    """Boots a guest with preallocated memory, as the host's first access to a page takes time."""
    options = Options(
        memory=f'{2 * MIB + 1024}M', prealloc=True, limits=Limits(silence=300, total=1200)
    )
    return bench.figures_of(
        'x86_64',
        bench.build('x86_64', flavour, tree),
        f'#!/bin/sh\n{job}\n',
        [bench.selftest('x86_64', 'vfio/vfio_pin_perf')],
        options,
        f'{what}, {tree}',
    )


def pairs_of(bench, runs, rounds, flavour='plain'):
    """Measures seconds, with two vCPUs. Yields (rows so far, accelerator) each time that both
    kernels have booted. Huge pages take a tenth of the time of small pages, so they are measured
    three times as often."""
    each = f'vfio_pin_perf -s {MIB}'
    job = (
        f'{each} -n {rounds} -b 4k $BDF; {each} -n {3 * rounds} -b thp $BDF; '
        f'{each} -n {3 * rounds} -b hugetlb $BDF'
    )
    for tree in TREES:
        bench.build('x86_64', flavour, tree)
    warn_if_busy()
    pairs = []
    for number in range(1, runs + 1):
        pair = []
        for tree in TREES:
            figures, accelerator = boot(bench, tree, flavour, job, f'run {number} of {runs}')
            pair.append(figures)
        pairs.append(pair)
        yield rows(pairs), accelerator


def quick(bench, runs, rounds=1):
    """Yields the rows of `make run`."""
    yield from pairs_of(bench, runs, rounds, QUICK[1])


def seconds(bench, runs=5, rounds=3):
    *_, measured = pairs_of(bench, runs, rounds)
    return measured


def pin_span(bench, arch='x86_64'):
    return bench.program(arch, 'pin_span', [Path(__file__).parent / 'span/pin_span.c'])


def details(path, backing):
    """The fields of the rows of pin_span."""
    return {'path': path, 'backing': backing, 'vcpus': 1, 'mib': MIB}


def instructions(bench, jobs, flavour='plain'):
    """Yields rows in instructions. A row is for one thread that maps and unmaps memory, or for the
    exit of a process that is killed while its memory is mapped."""
    program = pin_span(bench)
    job = WAYS + ''.join(
        f'pin_span ${PATHS[path]} {MIB} {backing} {how} |'
        f' sed "s/^/{path}_{backing}_{how}_/" || exit\n'
        for path, backing, how in jobs
    )
    options = Options(
        cpus=1,
        icount=True,
        memory='4G',
        append='hugepagesz=1G hugepages=1 hugepagesz=2M',
        limits=Limits(silence=600, total=2400),
    )

    def one(tree):
        return bench.figures_of(
            'x86_64',
            bench.build('x86_64', flavour, tree),
            f'#!/bin/sh\n{job}',
            [program],
            options,
            f'{tree}, {jobs[0][0]}, one vCPU, -icount',
        )[0]

    with Pool() as pool:  # a guest with -icount is one thread of the host
        base, patched = pool.map(one, TREES)
    for path, backing, how in jobs:
        for call, metric in CALLS[how].items():
            before, after = (
                [[round(each) for each in figures[f'{path}_{backing}_{how}_{call}']]]
                for figures in (base, patched)
            )
            yield row(metric, before, after, 'instructions', **details(path, backing))


def counted(bench):
    """Rows for `make run` that do not depend on the load of the host."""
    backings = ('fresh', 'thp', 'hugetlb')
    return instructions(bench, [('type1', backing, '') for backing in backings], QUICK[1])


def present(bench, **_):
    found = []
    for path, backings in ('type1', RANGES), ('iommufd', {**RANGES, **FILES}):
        jobs = [(path, backing, '') for backing in backings]
        jobs += [(path, backing, 'absent') for backing in BACKINGS]
        found += instructions(bench, [*jobs, (path, '4k', 'kill'), (path, 'thp', 'kill')])
    return found, 'tcg'


def hardware(bench, arch):
    """Physically contiguous memory and pages of 1G are left out: a machine that has run for a while
    may have none. The figures of any architecture are compared with those of the x86_64 guest."""
    jobs = []
    for backing in BACKINGS:
        name = f'map_warm_{backing}'
        rows = {name: {'metric': name, 'unit': 's'}}
        jobs.append(Job(f'vfio_pin_perf -s {MIB} -n 1 -b {backing} $BDF', rows, 'device'))
    ways = ('type1', '$GROUP'), ('iommufd', '$DEVICE'), ('iommufd', 'mock')
    kinds = [*product((*RANGES, *FILES), ['']), *product(BACKINGS, ['absent'])]
    kinds += [('4k', 'kill'), ('thp', 'kill')]
    for (path, place), (backing, how) in product(ways, kinds):
        if backing in ('fresh', 'hugetlb1g') or path == 'type1' and backing in FILES:
            continue
        rows = {
            call: {'metric': metric, **details(path, backing), 'unit': 'ns'}
            for call, metric in CALLS[how].items()
        }
        command = f'pin_span {place} {MIB} {backing} {how}'.rstrip()
        jobs.append(Job(command, rows, 'mock' if place == 'mock' else 'device'))
    return [bench.selftest(arch, QUICK[2]), pin_span(bench, arch)], jobs


# values of PART=
PARTS = {'present': present, 'seconds': seconds}


def measure(bench, **given):
    measured = [part(bench, **given) for part in PARTS.values()]
    return [each for found, _ in measured for each in found], measured[0][1]


HEAD = ['1 GiB', 'pages']
WORDS = {
    'map_warm': 'map of present memory',
    'prefault_then_map': 'two threads prefault, one maps',
    'present_pin_instructions': 'map',
    'absent_pin_instructions': 'map of absent memory',
    'unmap_instructions': 'unmap',
    'kill_to_free': 'kill',
}


def describe(each):
    """The cells that identify a row."""
    if each['unit'] == 's':
        prefix = next(word for word in WORDS if each['metric'].startswith(f'{word}_'))
        return [f'type1, {WORDS[prefix]}, s', BACKINGS[each['metric'].removeprefix(f'{prefix}_')]]
    return [
        f'{each["path"]}, {WORDS[each["metric"]]}, instructions',
        {**RANGES, **FILES}[each['backing']],
    ]


COVER = {
    '': [
        ('kill_to_free', 'iommufd', 'thp'),
        *(('present_pin_instructions', 'type1', each) for each in ('fresh', '4k', 'thp')),
    ],
    '01': [
        ('kill_to_free', 'type1', 'thp'),
        *(('present_pin_instructions', 'type1', each) for each in ('fresh', '4k', 'thp')),
    ],
    '02': [
        ('kill_to_free', 'type1', 'thp'),
        *(('present_pin_instructions', 'iommufd', each) for each in ('fresh', '4k', 'thp')),
    ],
    '03': [('unmap_instructions', 'type1', each) for each in ('hugetlb', 'fresh', '4k', 'thp')],
}


def cover(each):
    """Returns whether the cover letter of the posting has this row. The letter has the row of the
    largest regression, and rows that show the gain."""
    posting = re.search(r'TOPIC=[\w-]+/(\d+)', each.get('command', ''))
    row_of = each['metric'], each.get('path'), each.get('backing')
    return row_of in COVER[posting[1] if posting else '']


def drawn(each):
    """Does the picture have this row? It has maps of present memory, and unmaps of anonymous
    memory."""
    small = each.get('backing') in ('fresh', *BACKINGS)
    unmap = each['metric'] == 'unmap_instructions' and small
    return each['metric'] == 'present_pin_instructions' or unmap


def note(data):
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}. ratio = base/patched. '
        'Instructions: one vCPU, -icount; the counts are repeatable. The memory is present unless '
        'the row says absent. In the rows "4K", "4K shared" and "4K file", no two present pages '
        'are adjacent. kill: until the memory is free. Seconds are the medians of several boots '
        'with two vCPUs; the two kernels boot in turn. min–max is the range of their ratios. '
        f'{commands(data)}'
    )
