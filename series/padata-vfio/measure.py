# SPDX-License-Identifier: GPL-2.0-only
"""padata-vfio: seconds to map 1 GiB with VFIO_IOMMU_MAP_DMA, and what two user threads that
prefault reach; work and span of up to 64 vCPUs, counted by a plugin of QEMU's."""

import re
from pathlib import Path

from kit.bench.measure import TREES, commands, plugin, row, warn_if_busy
from kit.build.trees import Tree
from kit.errors import KitError
from kit.model import Limits, Options
from kit.paths import BUILD, shown
from kit.process import Pool
from kit.source.git import git, whole_worktree

QUICK = 'x86_64', 'plain+quick', 'vfio/vfio_pin_perf'  # what `make run` boots: kernel and program
BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
# of iommufd
MEMORY = {**BACKINGS, 'memfd': '4K file', 'memfd_hugetlb': '2M file'}
MIB = 1024
SMALL = 64  # MiB: too little for threads
SPAN_CPUS = 2, 4, 8, 16, 32, 64
STATES = {
    'absent': 'not prefaulted',
    'present': 'prefaulted',
    'first': 'first 64M prefaulted',
    'last': 'last 64M prefaulted',
    'other': 'every other 64M',
}
CHARGES = 32768, 65536, 131072  # pages that a thread pins before it charges them
COUNTED = {'mmap_lock': 'mmap_lock taken', 'lock_wait': 'waits for a lock'}


def rows(pairs):
    """The record's rows, in the order of the program's output."""
    metrics = [
        metric
        for metric in pairs[0][0]
        if all(metric in figures for pair in pairs for figures in pair)
    ]
    found = [
        row(
            metric,
            [base[metric] for base, _ in pairs],
            [patched[metric] for _, patched in pairs],
            threads=2,
        )
        for metric in metrics
        if not metric.startswith('prefault')
    ]
    for backing in BACKINGS:
        one, two = f'prefault1_{backing}', f'prefault2_{backing}'
        if one in metrics and two in metrics:  # user space's own: both kernels' figures count
            found.append(
                row(
                    f'prefault_bound_{backing}',
                    [base[one] + patched[one] for base, patched in pairs],
                    [base[two] + patched[two] for base, patched in pairs],
                    threads=2,
                )
            )
    return found


def boot(bench, tree, flavour, job, what, **options):
    """Each backing in turn, the huge pages reserved all the time, and the kernel; touched by the
    host before it counts."""
    options = Options(
        memory=f'{2 * MIB + 1024}M',
        prealloc=True,
        limits=Limits(silence=300, total=1200),
        **options,
    )
    return bench.figures_of(
        'x86_64',
        bench.build('x86_64', flavour, tree),
        f'#!/bin/sh\n{job}\n',
        [bench.selftest('x86_64', 'vfio/vfio_pin_perf')],
        options,
        f'{what}, {tree}',
    )


def pairs_of(bench, runs, job, flavour='plain'):
    """After each boot of both kernels: (rows so far, accelerator). Seconds, of two vCPUs."""
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


def job_of(rounds):
    """Huge pages take a tenth of the time of small ones: they are measured thrice as often."""
    each = f'vfio_pin_perf -s {MIB}'
    return (
        f'{each} -n {rounds} -b 4k $BDF; {each} -n {3 * rounds} -b thp $BDF; '
        f'{each} -n {3 * rounds} -b hugetlb $BDF'
    )


def quick(bench, runs, rounds=1):
    yield from pairs_of(bench, runs, job_of(rounds), QUICK[1])


def instructions(bench, metric, mib, rounds=5):
    """What one vCPU, so one thread, needs to map: -icount makes a nanosecond of an instruction, and
    repeats. Rounds: the first map after boot finds other free memory than the later ones."""

    def one(tree):
        return boot(
            bench,
            tree,
            'plain',
            f'vfio_pin_perf -s {mib} -n {rounds} $BDF',
            f'{mib} MiB, one vCPU, -icount',
            cpus=1,
            icount=True,
        )[0]

    with Pool() as pool:  # a guest with -icount is one thread of the host
        base, patched = pool.map(one, TREES)
    for backing in BACKINGS:
        for state in ('cold', 'warm'):
            before, after = (
                [[round(1e9 * seconds) for seconds in figures[f'map_{state}_{backing}']]]
                for figures in (base, patched)
            )
            yield row(
                metric,
                before,
                after,
                'instructions',
                threads=1,
                backing=backing,
                prefaulted=state == 'warm',
                mib=mib,
            )


def charging(pages):
    """A tree that differs from the patched one in how many pages a thread pins before it charges
    them."""
    tree = Tree(f'charge-{pages}', BUILD / f'charge-{pages}')
    folder = tree.linux
    whole_worktree(tree.name, folder, git('rev-parse', 'HEAD').strip())
    file = folder / 'drivers/vfio/vfio_iommu_type1.c'
    text, count = re.subn(
        r'(#define VFIO_MAX_PENDING_ACCT\s)\w+', rf'\g<1>{pages}', file.read_text()
    )
    if count != 1:
        raise KitError(f'{shown(file)}: no VFIO_MAX_PENDING_ACCT to change')
    file.write_text(text)
    return tree


def lock_counts(bench):
    """How often the map of 1 GiB of 4K pages takes mmap_lock, and how often it waits for a lock of
    any kind: counts, in kernels with tracepoints that charge after so many pages. That which
    charges each run by itself is the base of these rows."""
    trees = {pages: charging(pages) for pages in (0, *CHARGES)}
    for cpus in (2, 16):
        each_run, *several = (
            boot(
                bench,
                tree,
                'trace',
                f'vfio_pin_perf -s {MIB} -n 1 -b 4k $BDF',
                f'locks, {cpus} vCPUs',
                cpus=cpus,
            )[0]
            for tree in trees.values()
        )
        for metric in COUNTED:
            for state in ('cold', 'warm'):
                key = f'{metric}_{state}_4k'
                for pages, counts_then in zip(CHARGES, several):
                    yield row(
                        f'{metric}_per_gib_4k',
                        [each_run[key][:1]],
                        [counts_then[key][:1]],
                        'count',
                        vcpus=cpus,
                        prefaulted=state == 'warm',
                        charge=pages,
                    )


def spans(bench, tree, cpus, jobs, through='group', flavour='plain'):
    """{(backing, state, call): [(work, span)]} of 1 GiB: what all vCPUs execute together, and the
    one that executes most; through type1 or, where it is the device, iommufd."""
    # one for each boot: a `make bench` that goes on reads what the one before it has counted
    counts = BUILD / 'span' / f'{tree}-{cpus}-{through}-{len(jobs)}'
    counts.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(__file__).parent / 'span'
    program = bench.program('x86_64', 'pin_span', [folder / 'pin_span.c'])
    job = (
        'group=/dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$BDF/iommu_group))\n'
        'device=/dev/vfio/devices/$(ls /sys/bus/pci/devices/$BDF/vfio-dev)\n'
        f'echo {MIB // 2 + 1} > /proc/sys/vm/nr_hugepages\n'
    )
    job += ''.join(
        f'pin_span ${through} {MIB} {backing} {state} || exit\n' for backing, state in jobs
    )
    counter = plugin(folder / 'plugin.c')
    options = Options(
        cpus=cpus,
        memory=f'{3 * MIB}M',
        prealloc=True,
        qemu=('-plugin', f'file={counter},out={counts}'),
        limits=Limits(boot=1200, silence=1200, total=3600),
    )
    bench.figures_of(
        'x86_64',
        bench.build('x86_64', flavour, tree),
        f'#!/bin/sh\n{job}echo done 1\n',
        [program],
        options,
        f'{tree}, {cpus} vCPU(s), work and span',
    )
    lines = [list(map(int, line.split())) for line in counts.read_text().splitlines()]
    # of the four markers of a job the second and the fourth end a call
    return {
        (*job, call): [(sum(each), max(each))]
        for place, job in enumerate(jobs)
        for call, each in zip(('map', 'unmap'), lines[4 * place + 1 : 4 * place + 4 : 2])
    }


def counted(bench):
    """For `make run`, beside its seconds: instructions of the vCPU that executes most, which repeat
    however busy the host is."""
    jobs = [('4k', 'absent'), ('4k', 'present')]
    base, patched = (spans(bench, tree, 2, jobs, flavour=QUICK[1]) for tree in TREES)
    for (backing, state, call), [(_, before)] in base.items():
        if call == 'unmap' and state != 'absent':
            continue
        after = patched[backing, state, call][0][1]
        yield row(
            'busiest',
            [[before]],
            [[after]],
            'instructions',
            vcpus=2,
            call=call,
            backing=backing,
            state=state,
        )


def iommufd(bench):
    """What iommufd takes with two vCPUs: on the base, wherever its one thread runs; with the series
    on the vCPU that executes most, and on both."""
    jobs = [(backing, state) for backing in MEMORY for state in ('absent', 'present')]
    base, patched = (spans(bench, tree, 2, jobs, 'device') for tree in TREES)
    for (backing, state, call), [(work, _)] in base.items():
        if call == 'unmap' and state != 'absent':
            continue
        name = (
            'iommufd_unmap'
            if call == 'unmap'
            else f'iommufd_map_{"cold" if state == "absent" else "warm"}'
        )
        for what, after in zip(('all', 'busiest'), patched[backing, state, call][0]):
            yield row(
                name,
                [[work]],
                [[after]],
                'instructions',
                vcpus=2,
                call=call,
                backing=backing,
                what=what,
            )


def scaling(bench):
    """How the series' threads share the work: one vCPU of the patched kernel is the base of these
    rows. A map that fails is compared with the base kernel's."""
    jobs = [
        *((backing, state) for backing in BACKINGS for state in ('absent', 'present')),
        *(('4k', state) for state in ('first', 'last', 'other')),
    ]
    alone = spans(bench, 'patched', 1, jobs)
    for cpus in SPAN_CPUS:
        several = spans(bench, 'patched', cpus, jobs)
        for (backing, state, call), found in several.items():
            if call == 'unmap' and state != 'absent':
                continue
            if state in ('first', 'last', 'other') and cpus not in (2, 16):
                continue
            one = [[count[0]] for count in alone[backing, state, call]]
            for metric, which in (('work_ratio', 0), ('span_speedup', 1)):
                yield row(
                    metric,
                    one,
                    [[count[which]] for count in found],
                    'instructions',
                    vcpus=cpus,
                    call=call,
                    backing=backing,
                    state=state,
                )
    key = '4k', 'limit', 'map'
    base, patched = (
        [[span] for _, span in spans(bench, tree, 2, [key[:2]])[key]] for tree in TREES
    )
    yield row('map_beyond_limit', base, patched, 'instructions', vcpus=2, backing='4k')


def seconds(bench, runs=5, rounds=3):
    """Of two vCPUs. iommufd is measured beside it: its pages are pinned by code of its own."""
    each = f'vfio_pin_perf -m iommufd -s {MIB}'
    iommufd = (
        f'; '
        f'{{ {each} -n 1 -b 4k $BDF; {each} -n {rounds} -b thp $BDF; '
        f'{each} -n {rounds} -b hugetlb $BDF; }} | '
        'sed "/^prefault/d; /^replay/d; s/^[a-z].* [0-9.]*$/iommufd_&/"'
    )
    *_, measured = pairs_of(bench, runs, job_of(rounds) + iommufd)
    return measured


def counts(*functions):
    """A part that counts, for which QEMU translates."""
    return lambda bench, **_: ([each for function in functions for each in function(bench)], 'tcg')


# what PART= takes; locks wants four kernels more
PARTS = {
    'seconds': seconds,
    'instructions': counts(
        lambda bench: instructions(bench, 'map_small_instructions', SMALL),
        lambda bench: instructions(bench, 'map_one_thread_instructions', MIB),
    ),
    'scaling': counts(scaling),
    'iommufd': counts(iommufd),
    'locks': counts(lock_counts),
}


def measure(bench, **given):
    measured = [part(bench, **given) for part in PARTS.values()]
    return [each for found, _ in measured for each in found], measured[0][1]


HEAD = ['1 GiB', 'pages']
WORDS = {
    'map_cold': 'not prefaulted',
    'map_warm': 'prefaulted',
    'unmap': 'unmap',
    'halves': 'two threads map a half each',
    'prefault_bound': 'bound: two prefault',
    'iommufd_map_cold': 'iommufd, not prefaulted',
    'iommufd_map_warm': 'iommufd, prefaulted',
    'iommufd_unmap': 'iommufd, unmap',
    'iommufd_halves': 'iommufd, a half each',
}


def describe(each):
    """The cells that say what a row is."""
    if each['unit'] == 's':
        prefix, _, backing = each['metric'].rpartition('_')
        return [f'{WORDS.get(prefix, prefix)}, s', BACKINGS.get(backing, backing)]
    if each['metric'] in ('work_ratio', 'span_speedup', 'busiest'):
        what = {
            'work_ratio': 'all',
            'span_speedup': 'busiest',
            'busiest': 'instructions of the busiest',
        }[each['metric']]
        state = STATES[each['state']] if each['call'] == 'map' else 'unmap'
        return [f'{each["vcpus"]} vCPUs, {what}: {state}', BACKINGS[each['backing']]]
    if each['metric'] == 'map_beyond_limit':
        return ['map beyond the limit, instructions', BACKINGS[each['backing']]]
    if each['metric'].startswith('iommufd_'):
        state = WORDS[each['metric']].removeprefix('iommufd, ')
        return [f'iommufd, {each["what"]}: {state}', MEMORY[each['backing']]]
    if 'prefaulted' not in each:
        return [f'{each["metric"].replace("_", " ")}, {each["unit"]}', each.get('backing', '')]
    state = 'prefaulted' if each['prefaulted'] else 'not'
    if each['unit'] == 'count':
        counted = COUNTED[each['metric'].removesuffix('_per_gib_4k')]
        what = f'{each["vcpus"]} vCPUs, {counted}, charged after {each["charge"]:,} pages'
    else:
        what = f'instructions, {each["mib"]} MiB, 1 thread'
    return [f'{what}, {state}', BACKINGS[each.get('backing', '4k')]]


def cover(each):
    """What the cover letter shows: seconds, mostly of 4K pages, how 16 vCPUs share the work, and
    what got worst."""
    if each['unit'] == 's':
        return each['metric'].startswith('map_') or each['metric'] in (
            'unmap_4k',
            'halves_4k',
            'iommufd_halves_4k',
            'prefault_bound_4k',
            'prefault_bound_thp',
        )
    if each['metric'] == 'work_ratio' and each['call'] == 'unmap':
        return each['vcpus'] == 64 and each['backing'] == 'thp'
    if each['metric'] in ('work_ratio', 'span_speedup'):
        return (
            each['vcpus'] == 16
            and each['backing'] == '4k'
            and each['state'] == 'absent'
            and each['call'] == 'map'
        )
    if each['metric'] == 'iommufd_map_cold':
        return each['backing'] == 'memfd' and each['what'] == 'busiest'
    return each['metric'] == 'map_beyond_limit'


def drawn(each):
    """Seconds, and how 2 to 64 vCPUs share the work."""
    if each['metric'] in ('work_ratio', 'span_speedup'):
        return (each['backing'], each['state'], each['call']) == ('4k', 'absent', 'map')
    return each['unit'] == 's'


def note(data):
    runs = max(each['runs'] for each in data['rows'])
    spans_too = (
        '"16 vCPUs, all": instructions of 1 vCPU over those of all 16, "busiest": over '
        "those of the one that executes most (both the patched kernel's). "
        if any(each['metric'] == 'work_ratio' for each in data['rows'])
        else ''
    )
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}, 2 vCPUs, medians of {runs} boots '
        'of each kernel in turn where it is seconds; ratio = base/patched; min–max: of the '
        'ratios of the boots; bound: what two user threads that prefault gain over one. '
        f'{spans_too}{commands(data)}'
    )
