# SPDX-License-Identifier: GPL-2.0-only
"""Measures iommu-lookup behind VT-d, AMD's IOMMU and SMMUv3.

It counts the instructions of three operations: unmaps by type1 and iommufd, maps into a second
domain of type1, and dma_unmap_single(). It also counts synchronizations of SMMUv3, and compares the
size of the code.
"""

import re
import subprocess
from pathlib import Path

from kit import model
from kit.bench.measure import SOAK, TREES, commands, row, warn_if_busy
from kit.build import kernel
from kit.errors import KitError
from kit.model import Limits, Options
from kit.paths import BUILD
from kit.process import Pool

HERE = Path(__file__).parent
KINDS = {
    'fresh': '4K adjacent',
    '4k': '4K',
    '64k': '4K, 16 adjacent',
    'thp': 'THP',
    'hugetlb': '2M hugetlb',
    '1g': '1G hugetlb',
}
SMALL = ('4k', '64k', '2048k')  # sizes of calls
PATHS = 'type1', 'iommufd'
# {name of the IOMMU in the table: (architecture, fields of Options)}
BEHIND = {
    'VT-d': ('x86_64', {'append': 'hugepagesz=1G hugepages=1'}),
    'AMD': ('x86_64', {'iommu': 'amd', 'append': 'hugepagesz=1G hugepages=1'}),
    'SMMUv3': ('arm64', {'iommu': 'smmuv3', 'append': 'hugepagesz=1G hugepages=1'}),
}
MIB = 1024
NUMBER = 64  # calls whose total time dma_unmap.c prints
SYNCS = 'arm_smmu_domain_inv_range'  # each call of this function sends one CMD_SYNC
FORMATS = 'amdv1', 'vtdss', 'x86_64', 'riscv64', 'mock'
ONE = {'cpus': 1, 'icount': True, 'memory': '4G', 'prealloc': True}


def guest(bench, arch, tree, job, files, options, what):
    return bench.figures_of(
        arch,
        bench.build(arch, 'plain', tree),
        f'#!/bin/sh\nset -e\n{job}',
        files,
        Options(**options, limits=Limits(silence=600, total=1800)),
        f'{what}, {tree}',
    )


def unmap_calls(bench, behind):
    """Builds calls/unmap_calls.c for both kernels, before threads use it."""
    arch, _ = BEHIND[behind]
    return bench.program(arch, 'unmap_calls', [HERE / 'calls' / 'unmap_calls.c'])


def calls(bench, file, behind, path, tree, what='-icount', words='', before='', **options):
    """Runs calls/unmap_calls.c, and returns ({metric: [seconds]}, accelerator)."""
    arch, own = BEHIND[behind]
    return guest(
        bench,
        arch,
        tree,
        f'{before}unmap_calls {path} $BDF {words}\n',
        [file],
        {**own, **options},
        f'{what}, {behind}, {path}',
    )


def both(function):
    """Calls the function for both kernels at the same time, because a guest with -icount is one
    thread. Returns both results."""
    with Pool(2) as pool:
        return list(pool.map(function, TREES))


def in_instructions(metric, before, after, **details):
    """Returns a row in instructions. `before` and `after` are seconds with -icount: one nanosecond
    is one instruction."""
    before, after = ([[round(1e9 * each, 2) for each in values]] for values in (before, after))
    return row(metric, before, after, 'instructions', **details)


def instructions(bench, behind):
    file = unmap_calls(bench, behind)
    for path in PATHS:
        (base, accelerator), (patched, _) = both(
            lambda tree, path=path: calls(bench, file, behind, path, tree, **ONE)
        )
        for name in base:
            call, _, kind = name.partition('_')
            small = kind.removeprefix('of_')
            details = {'kib': int(small[:-1])} if kind != small else {'mib': MIB}
            yield (
                in_instructions(
                    f'{call}_instructions',
                    base[name],
                    patched[name],
                    behind=behind,
                    path=path,
                    backing=small,
                    **details,
                ),
                accelerator,
            )


def dma_unmap(bench, tree):
    """Returns {metric: [nanoseconds of NUMBER unmaps]}. The IOMMU is in strict mode, so each unmap
    invalidates its IOVAs."""
    bench.build('arm64', 'plain', tree)
    made = BUILD / f'dma-unmap-{tree}'
    file = bench.module('arm64', 'plain', tree, HERE / 'dma_unmap' / 'dma_unmap.c', made)
    job = (
        'echo $BDF > /sys/bus/pci/drivers/vfio-pci/unbind\ninsmod /job/dma_unmap.ko\n'
        "dmesg | sed -n 's/.*dma_unmap: //p'\n"
    )
    arch, own = BEHIND['SMMUv3']
    return guest(
        bench,
        arch,
        tree,
        job,
        [file],
        {**own, **ONE, 'memory': '2G', 'append': ''},
        'dma_unmap_single',
    )[0]


def dma_unmaps(bench):
    base, patched = both(lambda tree: dma_unmap(bench, tree))
    for name in base:
        before, after = ([each / NUMBER / 1e9 for each in found[name]] for found in (base, patched))
        yield in_instructions(
            'dma_unmap_instructions',
            before,
            after,
            behind='SMMUv3',
            path='dma',
            kib=int(name.split('_')[-1][:-1]),
        )


def syncs(bench):
    """Yields rows with the number of CMD_SYNCs per 2 MiB while 1 GiB is unmapped."""
    file = unmap_calls(bench, 'SMMUv3')
    before = (
        f'cd /sys/kernel/tracing\necho {SYNCS} > set_ftrace_filter\n'
        'echo function > current_tracer\ncd /job\n'
    )
    for path in PATHS:
        (base, _), (patched, _) = both(
            lambda tree, path=path: calls(
                bench, file, 'SMMUv3', path, tree, 'CMD_SYNC', 'syncs', before, **ONE
            )
        )
        for name in base:
            kind = name.removeprefix('syncs_')
            values = ([[each / (MIB / 2) for each in found[name]]] for found in (base, patched))
            yield row(
                'cmd_syncs_per_2m', *values, 'syncs', behind='SMMUv3', path=path, backing=kind
            )


def text_bytes(bench, tree, name):
    folder = bench.out('x86_64', 'plain+formats', tree) / 'drivers/iommu/generic_pt/fmt'
    found = subprocess.run(
        ['size', folder / f'iommu_{name}.o'], check=True, text=True, capture_output=True
    ).stdout
    return int(found.splitlines()[1].split()[0])


def sizes(bench):
    for tree in TREES:
        parts = ['drivers/iommu/generic_pt/fmt/']
        kernel.build(model.machine('x86_64'), 'plain+formats', bench.tree(tree), parts)
    for name in FORMATS:
        before, after = ([[text_bytes(bench, tree, name)]] for tree in TREES)
        yield row('object_bytes', before, after, 'bytes', format=name)


def second_domain(bench, tree):
    """Runs replay/replay.c, and returns {metric: [seconds]}. A container of type1 gets a second
    domain only if an allocation fails, so the kernel has fault injection."""
    options = Options(
        cpus=1,
        icount=True,
        memory=f'{2 * MIB + 1024}M',
        prealloc=True,
        limits=Limits(silence=600, total=1800),
    )
    files = [
        HERE / 'replay' / 'replay.c',
        *(SOAK / 'lib' / f'{name}.c' for name in ('device', 'fail_nth', 'text')),
    ]
    return bench.figures_of(
        'x86_64',
        bench.build('x86_64', 'trace', tree),
        '#!/bin/sh\nreplay $BDFS\n',
        [bench.program('x86_64', 'replay', files)],
        options,
        f'second domain, type1, {tree}',
    )


def replay(bench):
    """Returns rows with the instructions that type1 executes to map 1 GiB into a second domain."""
    (base, _), (patched, _) = (second_domain(bench, tree) for tree in TREES)
    for name in base:
        yield in_instructions(
            'second_instructions',
            base[name],
            patched[name],
            behind='VT-d',
            path='type1',
            backing=name.removeprefix('replay_'),
            mib=MIB,
        )


def seconds(bench, runs):
    """Measures seconds with two vCPUs, and returns the rows. Each run boots the base, the patched
    kernel, and the base again. The difference between the two boots of the base shows the noise."""
    file = unmap_calls(bench, 'VT-d')
    for path in PATHS:
        boots = [
            [
                calls(
                    bench,
                    file,
                    'VT-d',
                    path,
                    tree,
                    f'run {number} of {runs}{suffix}',
                    cpus=2,
                    memory='4G',
                    prealloc=True,
                )[0]
                for tree, suffix in (('base', ''), ('patched', ''), ('base', ' again'))
            ]
            for number in range(1, runs + 1)
        ]
        for name in (each for each in boots[0][0] if re.match('(unmap|second)_(?!of_)', each)):
            base, patched, other = ([each[place][name] for each in boots] for place in range(3))
            details = {'behind': 'VT-d', 'path': path, 'backing': name.split('_')[1], 'threads': 2}
            metric = name.split('_')[0]
            yield row(metric, base, patched, **details)
            yield row(f'{metric}_base_against_itself', base, other, **details)


def part(function, *arguments):
    def rows(bench, **_):
        found = list(function(bench, *arguments))
        if found and isinstance(found[0], tuple):
            return [each for each, _ in found], found[0][1]
        return found, 'tcg'

    return rows


# values of PART=
PARTS = {
    'dma': part(dma_unmaps),
    'syncs': part(syncs),
    'sizes': part(sizes),
    'replay': part(replay),
    'seconds': lambda bench, runs=3, **_: (list(seconds(bench, runs)), 'tcg'),
    **{name: part(instructions, name) for name in BEHIND},
}


def measure(bench, runs=3, **_):
    found, accelerator = [], ''
    for behind in BEHIND:
        rows = list(instructions(bench, behind))
        found += [each for each, _ in rows]
        accelerator = rows[0][1]
    found += [*dma_unmaps(bench), *syncs(bench), *sizes(bench), *replay(bench)]
    warn_if_busy()
    if not accelerator:
        raise KitError('nothing was measured')
    return found + list(seconds(bench, runs)), accelerator


HEAD = ['what', 'behind', 'pages']
CALLS = {'map': 'map', 'unmap': 'unmap', 'second': 'second domain'}


def size_of(each):
    if 'kib' not in each:
        return ''
    return f' of {each["kib"]}K' if each['kib'] < 1024 else f' of {each["kib"] >> 10}M'


def pages_of(each):
    if each['backing'].startswith('share_'):
        return f'{KINDS[each["backing"].removeprefix("share_")]}, not replayed'
    return KINDS.get(each['backing'], '4K dirty')


def describe(each):
    """Returns the cells that identify a row."""
    metric = each['metric']
    if metric == 'object_bytes':
        return [f'iommu_{each["format"]}.o, bytes', '', '']
    if metric == 'dma_unmap_instructions':
        return [f'dma_unmap_single(){size_of(each)}, instructions', each['behind'], '']
    call = CALLS.get(metric.split('_')[0], '')
    what = {
        'cmd_syncs_per_2m': 'unmap, {}, CMD_SYNCs',
        'unmap_base_against_itself': 'base against itself, unmap, {}, s',
        'second_base_against_itself': 'base against itself, second domain, {}, s',
    }.get(
        metric,
        f'{call}{size_of(each)}, {{}}, {"instructions" if each["unit"] == "instructions" else "s"}',
    )
    pages = 'adjacent' if 'kib' in each else pages_of(each)
    return [what.format(each['path']), each['behind'], pages]


def cover(each):
    """Returns whether the cover letter has this row. It has only regressions: more CMD_SYNCs, or
    more instructions for an unmap of 4K."""
    return each['ratio'] < 1 and (
        each['metric'] == 'cmd_syncs_per_2m'
        or (each['metric'] == 'unmap_instructions' and each.get('kib') == 4)
    )


def drawn(each):
    """Returns whether the picture has this row. It has unmaps of 1 GiB, and dma_unmap_single()."""
    return each['metric'] == 'dma_unmap_instructions' or (
        each['metric'] == 'unmap_instructions' and 'mib' in each
    )


def note(data):
    runs = max(each['runs'] for each in data['rows'])
    seconds = any(each['unit'] == 's' for each in data['rows'])
    timed = f'Seconds are medians of {runs} boots with two vCPUs; the kernels boot in turn. '
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}; only this topic is applied. Rows '
        'without a size are for 1 GiB. CMD_SYNCs are per 2 MiB. Instructions are counted by '
        '-icount on one vCPU. For 1 GiB, the map and the first unmap are called once; each of '
        'the other rows shows the minimum of 4 calls. For smaller sizes, each row shows the '
        'minimum of 64 calls. '
        f'{timed if seconds else ""}'
        'ratio = base/patched. 4K adjacent: the first memory that a machine allocates. 4K dirty: '
        'the same memory, mapped again. Its pages are already dirty, so the unmap does not mark '
        f'them. 4K: no two pages are adjacent. {commands(data)}'
    )
