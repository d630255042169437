# SPDX-License-Identifier: GPL-2.0-only
"""iommu-lookup: instructions and seconds to unmap 1 GiB through type1 and iommufd, and to map it
into a second domain of iommufd's."""
from concurrent.futures import ThreadPoolExecutor

from kit import build
from kit.measure import TREES, figures_of, row, selftest, warn_if_busy
from kit.qemu import Options

PROGRAM = 'vfio/vfio_pin_perf'    # of the topic padata-vfio, one binary for both kernels
BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
PATHS = {'type1': '', 'iommufd': '-m iommufd '}
CALLS = ('unmap', 'type1'), ('unmap', 'iommufd'), ('replay', 'iommufd')
MIB = 1024


def boot(tree, rounds, what, **options):
    """{(call, path, backing): [seconds]}, accelerator. Huge pages stay reserved all the time, and
    memory is touched by the host before it counts."""
    job = ''.join(f'vfio_pin_perf {words}-s {MIB} -n {rounds} -b {backing} $BDF | '
                  f'sed -n "/^unmap/s/^/{path}_/p; /^replay/s/^/{path}_/p"\n'
                  for path, words in PATHS.items() for backing in BACKINGS)
    options = Options(memory=f'{2 * MIB + 1024}M', prealloc=True, **options)
    options.limits.silence, options.limits.total = 300, 1200
    figures, accelerator = figures_of('x86_64', build.build('x86_64', 'plain', tree),
                                      f'#!/bin/sh\nset -e\n{job}',
                                      [selftest('x86_64', PROGRAM)], options, f'{what}, {tree}')
    return {(call, path, backing): figures[f'{path}_{call}_{backing}']
            for call, path in CALLS for backing in BACKINGS}, accelerator


def instructions(rounds=3):
    """One vCPU, so one thread; -icount makes a nanosecond of an instruction, and repeats."""
    with ThreadPoolExecutor() as pool:    # a guest with -icount is one thread of the host
        base, patched = pool.map(
            lambda tree: boot(tree, rounds, 'one vCPU, -icount', cpus=1, icount=True)[0], TREES)
    for key, seconds in base.items():
        before, after = ([[round(1e9 * each) for each in values]]
                         for values in (seconds, patched[key]))
        call, path, backing = key
        yield row(f'{call}_instructions', before, after, 'instructions', path=path,
                  backing=backing, threads=1, mib=MIB)


def measure(runs=3, rounds=3):
    for tree in TREES:
        build.build('x86_64', 'plain', tree)
    found = list(instructions(rounds))
    warn_if_busy()
    pairs = [[boot(tree, rounds, f'run {number} of {runs}') for tree in TREES]
             for number in range(1, runs + 1)]
    for call, path, backing in pairs[0][0][0]:
        before, after = ([pair[side][0][call, path, backing] for pair in pairs]
                         for side in (0, 1))
        name = 'iommufd_unmap' if (call, path) == ('unmap', 'iommufd') else call
        found.append(row(f'{name}_{backing}', before, after, path=path, backing=backing, threads=2))
    return found, pairs[0][0][1]


HEAD = ['1 GiB', 'pages']


def describe(each):
    """The cells that say what a row is."""
    what = 'instructions' if each['unit'] == 'instructions' else f's, {each["threads"]} vCPUs'
    call = 'second domain' if 'replay' in each['metric'] else 'unmap'
    return [f'{call}, {each["path"]}, {what}', BACKINGS[each['backing']]]


def cover(each):
    """What the cover letter shows: all but the seconds of a second domain of huge pages."""
    return each['metric'] not in ('replay_thp', 'replay_hugetlb')


def note(data):
    runs = max(each['runs'] for each in data['rows'])
    return (f'Base {data["base"]}, accelerator {data["accelerator"]}, VT-d; instructions by '
            f'-icount on one vCPU, seconds the medians of {runs} boots of each kernel in turn, '
            'with all topics applied, so with several threads for type1; ratio = base/patched. '
            f'`{data["command"]}`')


def plot(data, pyplot):
    """Instructions before and after."""
    rows = [each for each in data['rows'] if each['unit'] == 'instructions']
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    for place, each in enumerate(rows):
        for shift, key, colour in ((-0.2, 'base', '#bbbbbb'), (0.2, 'patched', '#4477aa')):
            axes.barh(place + shift, each[key] / 1e6, height=0.35, color=colour,
                      label=key if place == 0 else None)
            axes.text(each[key] / 1e6 * 1.05, place + shift, f'{each[key] / 1e6:.2f}',
                      va='center', fontsize=7)
    axes.set_xscale('log')
    axes.set_yticks(range(len(rows)),
                    [f'{describe(each)[0].removesuffix(", instructions")}, {describe(each)[1]}'
                     for each in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f'million instructions for 1 GiB ({data["base"]})')
    axes.legend(frameon=False)
    return figure
