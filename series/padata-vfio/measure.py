# SPDX-License-Identifier: GPL-2.0-only
"""padata-vfio: seconds to map 1 GiB with VFIO_IOMMU_MAP_DMA, and what two user threads that prefault reach."""
import guest
import kernel
from measure import figures_of, row, selftest, warn_if_busy

TREES = ('base', 'patched')
BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
MIB = 1024
SMALL = 64    # MiB: too little for threads


def rows(pairs):
    """The record's rows, in the order of the program's output."""
    metrics = [metric for metric in pairs[0][0] if all(metric in figures for pair in pairs for figures in pair)]
    found = [row(metric, [base[metric] for base, _ in pairs], [patched[metric] for _, patched in pairs], threads=2)
             for metric in metrics if not metric.startswith('prefault')]
    for backing in BACKINGS:
        one, two = f'prefault1_{backing}', f'prefault2_{backing}'
        if one in metrics and two in metrics:    # user space's own: both kernels' figures count
            found.append(row(f'prefault_bound_{backing}', [base[one] + patched[one] for base, patched in pairs],
                             [base[two] + patched[two] for base, patched in pairs], threads=2))
    return found


def boot(tree, flavour, job, what, **options):
    """Each backing in turn, the huge pages reserved all the time, and the kernel; touched by the host before it counts."""
    options = guest.Options(memory=f'{2 * MIB + 1024}M', prealloc=True, **options)
    options.limits.silence, options.limits.total = 300, 1200
    return figures_of('x86_64', kernel.build('x86_64', flavour, tree), f'#!/bin/sh\n{job}\n', [selftest('x86_64', 'vfio/vfio_pin_perf')],
                      options, f'{what}, {tree}')


def times(runs=5, rounds=3, more=''):
    """Seconds, of two vCPUs. Huge pages take a tenth of the time of small ones: they are measured thrice as often."""
    job = f'vfio_pin_perf -s {MIB} -n {rounds} -b 4k $BDF; vfio_pin_perf -s {MIB} -n {3 * rounds} -b thp $BDF; '\
          f'vfio_pin_perf -s {MIB} -n {3 * rounds} -b hugetlb $BDF{more}'
    for tree in TREES:
        kernel.build('x86_64', 'plain', tree)
    warn_if_busy()
    pairs, accelerator = [], ''
    for number in range(1, runs + 1):
        pair = []
        for tree in TREES:
            figures, accelerator = boot(tree, 'plain', job, f'run {number} of {runs}')
            pair.append(figures)
        pairs.append(pair)
    return rows(pairs), accelerator


def instructions(metric, mib, rounds=5):
    """What one vCPU, so one thread, needs to map: -icount makes a nanosecond of an instruction, and repeats. Rounds: the first
    map after boot finds other free memory than the later ones."""
    base, patched = (boot(tree, 'plain', f'vfio_pin_perf -s {mib} -n {rounds} $BDF', f'{mib} MiB, one vCPU, -icount', cpus=1, icount=True)[0]
                     for tree in TREES)
    for backing in BACKINGS:
        for state in ('cold', 'warm'):
            before, after = ([[round(1e9 * seconds) for seconds in figures[f'map_{state}_{backing}']]] for figures in (base, patched))
            yield row(metric, before, after, 'instructions', threads=1, backing=backing, prefaulted=state == 'warm', mib=mib)


def lock_counts(cpus):
    """How often the map of 1 GiB of 4K pages takes mmap_lock: counts, in a kernel with tracepoints."""
    base, patched = (boot(tree, 'trace', f'vfio_pin_perf -s {MIB} -n 1 -b 4k $BDF', f'mmap_lock, {cpus} vCPU(s)', cpus=cpus)[0]
                     for tree in TREES)
    for state in ('cold', 'warm'):
        before, after = ([figures[f'mmap_lock_{state}_4k']] for figures in (base, patched))
        yield count_row('mmap_lock_per_gib_4k', before[0][0], after[0][0], threads=cpus, prefaulted=state == 'warm')


def count_row(metric, base, patched, **fields):
    ratio = round(base / patched, 3) if patched else None    # nothing at all has no ratio
    return {'metric': metric, **fields, 'unit': 'count', 'better': 'lower', 'base': base, 'patched': patched, 'ratio': ratio,
            'runs': 1, 'min': ratio, 'max': ratio}


def measure(runs=5, rounds=3):
    """iommufd is measured beside it: its pages are pinned by code of its own."""
    each = f'vfio_pin_perf -m iommufd -s {MIB}'
    iommufd = f'; {{ {each} -n 1 -b 4k $BDF; {each} -n {rounds} -b thp $BDF; {each} -n {rounds} -b hugetlb $BDF; }} | ' \
              'sed "/^prefault/d; s/^[a-z].* [0-9.]*$/iommufd_&/"'
    found, accelerator = times(runs, rounds, iommufd)
    for cpus in (1, 2):
        found += lock_counts(cpus)
    found += instructions('map_small_instructions', SMALL)
    found += instructions('map_one_thread_instructions', MIB)
    return found, accelerator


def cells(data):
    by_metric = {each['metric']: each for each in data['rows'] if each['unit'] == 's'}
    head = ['1 GiB', 'pages', 'base s', 'patched s', 'ratio', 'min–max', 'bound', 'of it']
    words = {'map_cold': 'not prefaulted', 'map_warm': 'prefaulted', 'unmap': 'unmap', 'halves': 'halves',
             'iommufd_map_cold': 'iommufd, not prefaulted', 'iommufd_map_warm': 'iommufd, prefaulted', 'iommufd_unmap': 'iommufd, unmap'}
    lines = []
    for prefix, what in words.items():
        for backing, pages in BACKINGS.items():
            each, bound = by_metric.get(f'{prefix}_{backing}'), by_metric.get(f'prefault_bound_{backing}')
            if not each:
                continue
            line = [what, pages, f'{each["base"]:.4f}', f'{each["patched"]:.4f}', f'{each["ratio"]:.2f}', f'{each["min"]:.2f}–{each["max"]:.2f}']
            cold = bound and prefix == 'map_cold'
            lines.append(line + ([f'{bound["ratio"]:.2f}', f'{each["ratio"] / bound["ratio"]:.0%}'] if cold else ['', '']))
    for each in data['rows']:
        if each['unit'] == 's':
            continue
        state = 'prefaulted' if each['prefaulted'] else 'not prefaulted'
        what = f'acquisitions of mmap_lock, {each["threads"]} thread(s)' if each['unit'] == 'count' else f'instructions, {each["mib"]} MiB, one thread'
        ratio = '' if each['ratio'] is None else f'{each["ratio"]:.3f}' if each['unit'] == 'instructions' else f'{each["ratio"]:.0f}'
        lines.append([f'{what}, {state}', BACKINGS[each.get('backing', '4k')], f'{each["base"]:,.0f}', f'{each["patched"]:,.0f}', ratio, '', '', ''])
    return head, lines


def note(data):
    return (f'Base {data["base"]}, accelerator {data["accelerator"]}, 2 vCPUs, medians of {data["rows"][0]["runs"]} boots of each kernel in turn; '
            f'ratio = base/patched; min–max: of the ratio over the boots; bound: what two user threads that prefault gain over one. `{data["command"]}`')


def plot(data, pyplot):
    by_metric = {row['metric']: row for row in data['rows'] if row['unit'] == 's'}
    shown = [row for metric, row in by_metric.items() if not metric.startswith('prefault_bound_')]
    figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.28 * len(shown)))
    for place, each in enumerate(shown):
        spread = [[max(0, each['ratio'] - each['min'])], [max(0, each['max'] - each['ratio'])]]
        axes.barh(place, each['ratio'], xerr=spread, color='#4477aa', ecolor='#222222', capsize=2, height=0.7)
        bound = by_metric.get(f'prefault_bound_{each["metric"].rsplit("_", 1)[1]}')
        if bound and each['metric'].startswith('map_cold'):
            axes.plot([bound['ratio']] * 2, [place - 0.45, place + 0.45], color='#cc3311', linewidth=2,
                      label='two prefaulting user threads' if place == 0 else None)
    axes.axvline(1, color='#888888', linewidth=0.8)
    axes.set_yticks(range(len(shown)), [each['metric'] for each in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f'base seconds / patched seconds (two threads, {data["base"]}, {data["accelerator"]})')
    axes.set_title(data['topic'])
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc='lower right', frameon=False)
    return figure
