# SPDX-License-Identifier: GPL-2.0-only
"""padata-vfio swept as it was published: threads, pages charged at a time, what backs the memory, prefaulted or not.

The kernel has no knob for the pages charged at a time ("cache"): each number is a kernel of its own. Threads are limited by
the CPUs that the caller may use, in a guest with as many as the most threads; none at all is the base kernel.
"""
import os
import re
import shutil
import statistics

import guest
import kernel
from common import BUILD, die
from measure import figures_of, row, selftest, warn_if_busy
from measure_padata_vfio import BACKINGS
from series import uncommitted

CACHES = (0, 32768, 65536, 131072)    # pages
THREADS = (1, 2, 4)
STATES = {'map_cold': 'not prefaulted', 'map_warm': 'prefaulted'}
MIB = 1024
FILE, CONSTANT = 'drivers/vfio/vfio_iommu_type1.c', 'VFIO_MAX_UNCHARGED'

# Daniel Jordan's RFC of 2022 (its link is in the cover letter), patch 8: Intel, 360 GB
PREDICTED, PUBLISHED, PUBLISHED_CACHE = 16, 11.9, 65536


def images(caches):
    """{cache: image} of what is committed in linux/, the constant replaced: one object is compiled for each."""
    changed = uncommitted()
    if changed:
        die(f'SWEEP=1 builds what is committed in linux/, and {changed[0]} is not')
    built = {None: kernel.build('x86_64', 'plain', 'base')}
    for cache in caches:
        path = kernel.source('sweep') / FILE
        old = path.read_text()
        text, found = re.subn(rf'^(#define {CONSTANT}\s+)\d+$', rf'\g<1>{cache}', old, flags=re.M)
        if found != 1:
            die(f'linux/{FILE} does not define {CONSTANT} as a number: is the series applied?')
        if text != old:
            path.write_text(text)
        built[cache] = BUILD / 'sweep' / f'image-{cache}'
        shutil.copyfile(kernel.build('x86_64', 'plain', 'sweep'), built[cache])
    if len({image.read_bytes() for image in built.values()}) < len(built):
        die('two of the kernels to compare are the same')    # a cache of objects may do that
    return built


def job(threads, mib, rounds):
    """The same for each number of threads, its figures' names beginning with tTHREADS_; huge pages take less time, so they are measured twice as often."""
    lines = [f'taskset {(1 << count) - 1:x} vfio_pin_perf -s {mib} -n {rounds if backing == "4k" else 2 * rounds} -b {backing} $BDF | sed "s/^[a-z]/t{count}_&/"'
             for count in threads for backing in BACKINGS]
    return '#!/bin/sh\nset -eo pipefail\n' + '\n'.join(lines) + '\n'


def measure(runs=3, rounds=1, caches=CACHES, threads=THREADS, mib=MIB):
    kernels, program = images(caches), selftest('x86_64', 'vfio/vfio_pin_perf')
    warn_if_busy()
    options = guest.Options(memory=f'{2 * mib + 1024}M', prealloc=True, cpus=max(threads))
    taken, accelerator = {cache: [] for cache in kernels}, ''
    for number in range(1, runs + 1):
        for cache, image in kernels.items():
            what = f'run {number} of {runs}, {"base" if cache is None else f"patched, {cache} pages"}'
            figures, accelerator = figures_of('x86_64', image, job(threads if cache is not None else threads[:1], mib, rounds), [program], options, what)
            taken[cache].append(figures)
    return rows(taken, threads, len(os.sched_getaffinity(0))), accelerator


def rows(taken, threads, cores):
    """taken: for each cache, and None for the base, a dictionary of figures per boot."""
    caches = [cache for cache in taken if cache is not None]
    fitted = [count for count in threads if count <= cores]    # more of them only share the cores
    found = []
    for state in STATES:
        for backing in BACKINGS:
            metric = f'{state}_{backing}'
            base = [figures[f't{threads[0]}_{metric}'] for figures in taken[None]]
            middle = [[statistics.median(sum(base, []))]] * len(base)
            # the spread of the base alone, so what a ratio may be worth
            found.append(row(f'sweep_{metric}', middle, base, threads=0, cache=0, host_cores=cores))
            for cache in caches:
                boots = {count: [figures[f't{count}_{metric}'] for figures in taken[cache]] for count in threads}
                found += [row(f'sweep_{metric}', base, boots[count], threads=count, cache=cache, host_cores=cores) for count in threads]
                if state == 'map_cold' and len(fitted) > 1:
                    found.append(fit_row(f'sweep_fit_{metric}', base, {count: boots[count] for count in fitted}, cache, cores))
    if {1, 2} <= set(fitted):    # user space's own: the kernels do not differ in it
        for backing in BACKINGS:
            boots = {count: [figures[f't2_prefault{count}_{backing}'] for cache in caches for figures in taken[cache]] for count in (1, 2)}
            found.append(row(f'sweep_prefault_{backing}', boots[1], boots[2], threads=2, cache=None, host_cores=cores))
            found.append(fit_row(f'sweep_fit_prefault_{backing}', boots[1], boots, None, cores))
    return found


def serial_fraction(seconds):
    """Amdahl's s in T(n) = T(1) (s + (1 - s) / n), by least squares over {n: T(n)}; it is linear in s."""
    points = [(1 - 1 / count, time / seconds[1] - 1 / count) for count, time in seconds.items() if count > 1]
    return sum(x * y for x, y in points) / sum(x * x for x, _ in points)


def predicted(seconds, count):
    """Seconds with so many threads; a fraction below nothing is noise."""
    serial = max(0, serial_fraction(seconds))
    return seconds[1] * (serial + (1 - serial) / count)


def fit_row(metric, base, boots, cache, cores):
    """boots: {threads: a list of figures per boot}. Each boot gives a fit of its own; the row has their medians."""
    each = [{count: statistics.median(figures[boot]) for count, figures in boots.items()} for boot in range(len(base))]
    ratios = [statistics.median(alone) / predicted(seconds, PREDICTED) for alone, seconds in zip(base, each)]
    before, ratio = statistics.median(sum(base, [])), statistics.median(ratios)
    return {'metric': metric, 'threads': PREDICTED, 'cache': cache, 'host_cores': cores, 'unit': 's', 'better': 'lower', 'base': round(before, 6),
            'patched': round(before / ratio, 6), 'ratio': round(ratio, 3), 'runs': len(base), 'min': round(min(ratios), 3), 'max': round(max(ratios), 3),
            'serial_fraction': round(statistics.median(map(serial_fraction, each)), 4), 'fitted_to': list(boots), 'published': PUBLISHED}


def cells(data):
    by_key = {(each['metric'], each['threads'], each['cache']): each for each in data['rows']}
    caches = sorted({each['cache'] for each in data['rows'] if each['threads'] and each['cache'] is not None})
    counts = sorted({each['threads'] for each in data['rows'] if each['metric'].startswith('sweep_map')})

    def cell(each):
        return f'{each["ratio"]:.2f} ({each["min"]:.2f}–{each["max"]:.2f})'

    lines = []
    for state, words in STATES.items():
        for backing, pages in BACKINGS.items():
            metric = f'{state}_{backing}'
            for count in counts:
                alone = by_key[f'sweep_{metric}', 0, 0]
                lines.append([words, pages, str(count), f'{alone["base"]:.4f}' if not count else '',
                              *(cell(by_key[f'sweep_{metric}', count, cache] if count else alone) for cache in caches)])
            fits = [by_key.get((f'sweep_fit_{metric}', PREDICTED, cache)) for cache in caches]
            if all(fits):
                lines.append([words, pages, 'serial', '', *(f'{100 * each["serial_fraction"]:.1f} %' for each in fits)])
                lines.append([words, pages, f'{PREDICTED}, predicted', '', *map(cell, fits)])
    for backing, pages in BACKINGS.items():
        for name, count, what in ((f'sweep_prefault_{backing}', 2, '2'), (f'sweep_fit_prefault_{backing}', PREDICTED, f'{PREDICTED}, predicted')):
            each = by_key.get((name, count, None))
            if each:
                lines.append(['user threads that prefault', pages, what, f'{each["base"]:.4f}', cell(each), *[''] * (len(caches) - 1)])
    return ['1 GiB', 'pages', 'threads', 'base s', *(f'{cache:,} pages' for cache in caches)], lines


def note(data):
    first = data['rows'][0]
    cores = first['host_cores']
    return (f'Base {data["base"]}, accelerator {data["accelerator"]}, {first["runs"]} boots of each kernel in turn; base/patched, in brackets its '
            f'smallest and largest of a boot; threads 0 is the base, with its own spread; pages: what is charged to locked_vm at a time, each number a '
            f'kernel of its own. The guest\'s CPUs run on {cores} host cores: more than {cores} threads share these. Serial: the fraction that Amdahl\'s '
            f'law gives to up to {cores} threads, the predictions are its. Published for {PREDICTED} threads and 360 GB on Intel, with '
            f'{PUBLISHED_CACHE:,} pages: {PUBLISHED}. `{data["command"]}`')


def plot(data, pyplot):
    figure, axes = pyplot.subplots(2, len(BACKINGS), figsize=(10, 6.4), sharex='row')
    colours = {0: '#cc3311', 32768: '#ddaa33', 65536: '#4477aa', 131072: '#228833'}
    for line, (state, words) in zip(axes, STATES.items()):
        for panel, (backing, pages) in zip(line, BACKINGS.items()):
            found = [each for each in data['rows'] if each['metric'] == f'sweep_{state}_{backing}' and each['threads']]
            fits = {each['cache']: each for each in data['rows'] if each['metric'] == f'sweep_fit_{state}_{backing}'}
            for cache in sorted({each['cache'] for each in found}):
                points = sorted((each['threads'], each['ratio'], each['min'], each['max']) for each in found if each['cache'] == cache)
                counts, ratios, low, high = zip(*points)
                spread = [[max(0, ratio - end) for ratio, end in zip(ratios, low)], [max(0, end - ratio) for ratio, end in zip(ratios, high)]]
                colour = colours.get(cache, '#888888')
                panel.errorbar(counts, ratios, yerr=spread, color=colour, marker='o', markersize=3, capsize=2, linewidth=1, label=f'{cache:,} pages')
                if cache in fits and cache in (0, PUBLISHED_CACHE):
                    serial, one = max(0, fits[cache]['serial_fraction']), ratios[0]
                    steps = [2 ** (step / 8) for step in range(33)]
                    panel.plot(steps, [one / (serial + (1 - serial) / step) for step in steps], color=colour, linewidth=1, linestyle=':',
                               label='Amdahl\'s law' if cache else None)
            if fits:
                panel.plot([PREDICTED], [PUBLISHED], marker='*', color='#222222', linestyle='none', label=f'published, {PREDICTED} threads')
            panel.set_ylim(bottom=0)
            panel.axhline(1, color='#888888', linewidth=0.8)
            panel.set_xscale('log', base=2)
            panel.xaxis.set_major_formatter('{x:g}')
            panel.set_title(f'{words}, {pages}')
        line[0].set_ylabel('base seconds / patched seconds')
    for panel in axes[-1]:
        panel.set_xlabel(f'threads ({data["rows"][0]["host_cores"]} host cores, {data["accelerator"]})')
    axes[0][0].legend(loc='upper left', frameon=False, fontsize=7)
    return figure
