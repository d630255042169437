# SPDX-License-Identifier: GPL-2.0-only
"""padata-vfio: seconds to map 1 GiB with VFIO_IOMMU_MAP_DMA, and what two user threads that prefault reach."""
import guest
import kernel
from measure import figures_of, row, selftest, warn_if_busy

BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
MIB = 1024


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


def measure(runs=5, rounds=3):
    images = {tree: kernel.build('x86_64', 'plain', tree) for tree in ('base', 'patched')}
    program = selftest('x86_64', 'vfio/vfio_pin_perf')
    # each backing in turn, the huge pages reserved all the time, and the kernel; touched by the host before it counts
    options = guest.Options(memory=f'{2 * MIB + 1024}M', prealloc=True)
    options.limits.silence, options.limits.total = 180, 900
    job = f'#!/bin/sh\nvfio_pin_perf -s {MIB} -n {rounds} $BDF\n'
    warn_if_busy()
    pairs, accelerator = [], ''
    for number in range(1, runs + 1):
        pair = []
        for tree, image in images.items():
            figures, accelerator = figures_of('x86_64', image, job, [program], options, f'run {number} of {runs}, {tree}')
            pair.append(figures)
        pairs.append(pair)
    return rows(pairs), accelerator


def cells(data):
    by_metric = {each['metric']: each for each in data['rows']}
    head = ['1 GiB', 'pages', 'base s', 'patched s', 'ratio', 'min–max', 'bound', 'of it']
    words = {'map_cold': 'not prefaulted', 'map_warm': 'prefaulted', 'unmap': 'unmap', 'halves': 'halves'}
    lines = []
    for prefix, what in words.items():
        for backing, pages in BACKINGS.items():
            each, bound = by_metric.get(f'{prefix}_{backing}'), by_metric.get(f'prefault_bound_{backing}')
            if not each:
                continue
            line = [what, pages, f'{each["base"]:.4f}', f'{each["patched"]:.4f}', f'{each["ratio"]:.2f}', f'{each["min"]:.2f}–{each["max"]:.2f}']
            cold = bound and prefix == 'map_cold'
            lines.append(line + ([f'{bound["ratio"]:.2f}', f'{each["ratio"] / bound["ratio"]:.0%}'] if cold else ['', '']))
    return head, lines


def note(data):
    return (f'Base {data["base"]}, accelerator {data["accelerator"]}, 2 vCPUs, medians of {data["rows"][0]["runs"]} boots of each kernel in turn; '
            f'ratio = base/patched; min–max: of the ratio over the boots; bound: what two user threads that prefault gain over one. `{data["command"]}`')


def plot(data, pyplot):
    by_metric = {row['metric']: row for row in data['rows']}
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
