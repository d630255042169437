# SPDX-License-Identifier: GPL-2.0-only
"""iommu-lookup: instructions and seconds to unmap 1 GiB through type1 and iommufd, and to map it
into a second domain; instructions of calls for 4K to 2M."""

from pathlib import Path

from kit.bench.measure import SOAK, TREES, commands, row, warn_if_busy
from kit.model import Limits, Options
from kit.process import Pool

HERE = Path(__file__).parent
PROGRAM = 'vfio/vfio_pin_perf'  # of the topic padata-vfio, one binary for both kernels
BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
# what calls/unmap_calls.c has for itself
MEMORY = BACKINGS | {'fresh': '4K adjacent', 'again': '4K dirty'}
SMALL = ('4k', '64k', '2048k')  # sizes of calls
PATHS = {'type1': '', 'iommufd': '-m iommufd '}
CALLS = ('unmap', 'type1'), ('unmap', 'iommufd'), ('replay', 'iommufd')
MIB = 1024
# a container has its second domain from the second one, which is in a group of its own
DEVICES = ('igb', 'pcie-root-port,id=root1,chassis=1', 'igb,bus=root1')


def boot(bench, tree, rounds, what, **options):
    """{(call, path, backing): [seconds]}, accelerator. Huge pages stay reserved all the time, and
    memory is touched by the host before it counts."""
    job = ''.join(
        f'vfio_pin_perf {words}-s {MIB} -n {rounds} -b {backing} $BDF | '
        f'sed -n "/^unmap/s/^/{path}_/p; /^replay/s/^/{path}_/p"\n'
        for path, words in PATHS.items()
        for backing in BACKINGS
    )
    options = Options(
        memory=f'{2 * MIB + 1024}M',
        prealloc=True,
        limits=Limits(silence=300, total=1200),
        **options,
    )
    figures, accelerator = bench.figures_of(
        'x86_64',
        bench.build('x86_64', 'plain', tree),
        f'#!/bin/sh\nset -e\n{job}',
        [bench.selftest('x86_64', PROGRAM)],
        options,
        f'{what}, {tree}',
    )
    return {
        (call, path, backing): figures[f'{path}_{call}_{backing}']
        for call, path in CALLS
        for backing in BACKINGS
    }, accelerator


def calls(bench, tree, path, what, **options):
    """{metric: [seconds]} of calls/unmap_calls.c, in a boot in which nobody had memory before."""
    options = Options(memory=f'{2 * MIB}M', prealloc=True, **options)
    file = bench.program('x86_64', 'unmap_calls', [HERE / 'calls' / 'unmap_calls.c'])
    return bench.figures_of(
        'x86_64',
        bench.build('x86_64', 'plain', tree),
        f'#!/bin/sh\nunmap_calls {path} $BDF\n',
        [file],
        options,
        f'{what}, {path}, {tree}',
    )[0]


def in_instructions(metric, base, patched, **details):
    before, after = ([[round(1e9 * each) for each in values]] for values in (base, patched))
    return row(metric, before, after, 'instructions', threads=1, **details)


def instructions(bench, rounds=3):
    """One vCPU, so one thread; -icount makes a nanosecond of an instruction, and repeats."""
    alone = {'cpus': 1, 'icount': True}
    with Pool(2) as pool:  # a guest with -icount is one thread of the host
        base, patched = pool.map(
            lambda tree: boot(bench, tree, rounds, 'one vCPU, -icount', **alone)[0], TREES
        )
        few = {
            path: list(
                pool.map(
                    lambda tree, path=path: calls(bench, tree, path, 'one vCPU, -icount', **alone),
                    TREES,
                )
            )
            for path in PATHS
        }
    for (call, path, backing), seconds in base.items():
        yield in_instructions(
            f'{call}_instructions',
            seconds,
            patched[call, path, backing],
            path=path,
            backing=backing,
            mib=MIB,
        )
    for path, (base, patched) in few.items():
        for call in ('map', 'unmap'):
            metric = f'{call}_instructions'
            yield in_instructions(
                metric,
                base[f'{call}_fresh'],
                patched[f'{call}_fresh'],
                path=path,
                backing='fresh',
                mib=MIB,
            )
            for size in SMALL:
                name = f'{call}_{size}'
                yield in_instructions(
                    metric, base[name], patched[name], path=path, backing='4k', kib=int(size[:-1])
                )


def second_domain(bench, tree):
    """{metric: [seconds]} of replay/replay.c, in a kernel that lets allocations fail: without that
    a container of type1 has one domain only."""
    options = Options(
        cpus=1,
        icount=True,
        memory=f'{2 * MIB + 1024}M',
        prealloc=True,
        devices=DEVICES,
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
    """([rows], accelerator): what type1 executes to map 1 GiB into a second domain, too."""
    (base, accelerator), (patched, _) = (second_domain(bench, tree) for tree in TREES)
    names = {backing: f'replay_{backing}' for backing in ('fresh', *BACKINGS)}
    return [
        in_instructions(name, base[name], patched[name], path='type1', backing=backing, mib=MIB)
        for backing, name in names.items()
    ], accelerator


# what PART= takes
PARTS = {'replay': lambda bench, **_: replay(bench)}


def measure(bench, runs=3, rounds=3):
    for tree in TREES:
        bench.build('x86_64', 'plain', tree)
    found = [*instructions(bench, rounds), *replay(bench)[0]]
    warn_if_busy()
    pairs = [
        [boot(bench, tree, rounds, f'run {number} of {runs}') for tree in TREES]
        for number in range(1, runs + 1)
    ]
    for call, path, backing in pairs[0][0][0]:
        before, after = ([pair[side][0][call, path, backing] for pair in pairs] for side in (0, 1))
        name = f'iommufd_{call}' if path == 'iommufd' else call
        found.append(row(f'{name}_{backing}', before, after, path=path, backing=backing, threads=2))
    for path in PATHS:
        pairs_of = [
            [calls(bench, tree, path, f'run {number} of {runs}') for tree in TREES]
            for number in range(1, runs + 1)
        ]
        name = 'iommufd_unmap' if path == 'iommufd' else 'unmap'
        for memory in ('fresh', 'again'):
            before, after = (
                [pair[side][f'unmap_{memory}'] for pair in pairs_of] for side in (0, 1)
            )
            found.append(row(f'{name}_4k', before, after, path=path, backing=memory, threads=2))
    return found, pairs[0][0][1]


HEAD = ['what', 'pages']


def describe(each):
    """The cells that say what a row is."""
    what = 'instructions' if each['unit'] == 'instructions' else f's, {each["threads"]} vCPUs'
    call = (
        'second domain'
        if 'replay' in each['metric']
        else 'unmap'
        if 'unmap' in each['metric']
        else 'map'
    )
    size = (
        f' {each["kib"]}K'
        if each.get('kib', 1024) < 1024
        else f' {each["kib"] >> 10}M'
        if 'kib' in each
        else ''
    )
    return [f'{call}{size}, {each["path"]}, {what}', MEMORY[each['backing']]]


def cover(each):
    """1 GiB: instructions to unmap it, and of a second domain those of 4K; the seconds of 4K to
    unmap it. The small call that got worst."""
    if 'kib' in each:
        return (each['metric'], each['path'], each['kib']) == ('map_instructions', 'type1', 4)
    if each['unit'] == 'instructions':
        return each['metric'] == 'unmap_instructions' or (each['metric'], each['backing']) == (
            'replay_instructions',
            '4k',
        )
    return 'unmap' in each['metric'] and each['backing'] in ('4k', 'fresh', 'again')


def note(data):
    runs = max(each['runs'] for each in data['rows'])
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}, VT-d; instructions by '
        f'-icount on one vCPU, seconds the medians of {runs} boots of each kernel in turn, '
        'with all topics applied, so with several threads for type1; ratio = base/patched. '
        '1 GiB where no size is said. Adjacent: the first memory that a machine allocates; '
        'dirty: the same mapped and unmapped again, so no page is marked dirty. '
        f'{commands(data)}'
    )


def plot(data, pyplot):
    """Instructions before and after."""
    rows = [each for each in data['rows'] if each['unit'] == 'instructions' and 'mib' in each]
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    for place, each in enumerate(rows):
        for shift, key, colour in ((-0.2, 'base', '#bbbbbb'), (0.2, 'patched', '#4477aa')):
            axes.barh(
                place + shift,
                each[key] / 1e6,
                height=0.35,
                color=colour,
                label=key if place == 0 else None,
            )
            axes.text(
                each[key] / 1e6 * 1.05,
                place + shift,
                f'{each[key] / 1e6:.2f}',
                va='center',
                fontsize=7,
            )
    axes.set_xscale('log')
    axes.set_yticks(
        range(len(rows)),
        [
            f'{describe(each)[0].removesuffix(", instructions")}, {describe(each)[1]}'
            for each in rows
        ],
    )
    axes.invert_yaxis()
    axes.set_xlabel(f'million instructions for 1 GiB ({data["base"]})')
    axes.legend(frameon=False)
    return figure
