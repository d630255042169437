# SPDX-License-Identifier: GPL-2.0-only
"""Measures powerpc-lockless-walk: whom the collapse of a huge page interrupts, and what walks and
collapses cost in instructions."""

from kit.bench.measure import TREES, row
from kit.model import Options
from kit.process import Pool

FLAVOUR = 'plain'
PROGRAM = 'lockless_walk_perf'
CPUS = (2, 4, 8)
TIMES = 10  # collapses of each kind in a boot
MACHINES = {  # (architecture, MMU): words for the kernel's command line
    ('powerpc', 'radix'): '',
    ('powerpc', 'hash'): 'disable_radix',
    ('arm64', ''): '',
    ('x86_64', ''): '',
}
INSTRUCTIONS = {  # the program's word: fields of its row
    'gup_fast_1page_small': {'state': 'steady', 'memory': 'small pages'},
    'gup_fast_1page_thp': {'state': 'steady', 'memory': 'huge page'},
    'gup_fast_1page_collapsing': {'state': 'collapsing', 'memory': 'small pages'},
    'futex_shared': {},
    'hash_fault': {},
}


def command_lines(cpus, words):
    """Half of the CPUs are in nohz_full; with two there is none left to spin outside of it."""
    if cpus == 2:
        return [words, f'{words} nohz_full=1']
    return [f'{words} nohz_full={cpus // 2}-{cpus - 1}']


def row_of(metric, values, unit, better='lower', **fields):
    """values: {tree: a figure per boot}."""
    before, after = ([[value] for value in values[tree]] for tree in TREES)
    return row(metric, before, after, unit, better, **fields)


def boot_both(bench, arch, images, job, file, options, what):
    """{tree: figures} and the accelerator. What is counted does not depend on the host's time, so
    the two kernels run side by side."""

    def boot(tree):
        return bench.figures_of(
            arch, images[tree], f'#!/bin/sh\n{PROGRAM} {job}\n', [file], options, f'{what}, {tree}'
        )

    with Pool(len(TREES)) as pool:
        ended = dict(zip(TREES, pool.map(boot, TREES)))
    return {tree: figures for tree, (figures, _) in ended.items()}, ended['base'][1]


def ipis(bench, machine, images, file, runs):
    (arch, mmu), found = machine, []
    for cpus in CPUS:
        seen, where = {}, ' '.join(filter(None, machine))
        for run in range(1, runs + 1):
            for append in command_lines(cpus, MACHINES[machine]):
                options = Options(append=append, devices=(), cpus=cpus)
                both, _ = boot_both(
                    bench,
                    arch,
                    images,
                    f'ipis {TIMES}',
                    file,
                    options,
                    f'{where}, {cpus} CPUs, run {run} of {runs}',
                )
                for name in both['base']:
                    values = seen.setdefault(name, {tree: [] for tree in TREES})
                    for tree in TREES:
                        values[tree] += both[tree][name]
        for name, values in seen.items():
            found.append(
                row_of(
                    'ipis_per_collapse',
                    values,
                    'IPIs',
                    arch=arch,
                    mmu=mmu,
                    cpus=cpus,
                    neighbours=name.removeprefix('ipis_per_collapse_'),
                )
            )
    return found


def instructions(bench, machine, images, file, rounds):
    arch, mmu = machine
    options = Options(append=MACHINES[machine], devices=(), icount=True)
    seen, accelerator = boot_both(
        bench,
        arch,
        images,
        f'time {rounds}',
        file,
        options,
        f'{" ".join(filter(None, machine))}, instructions',
    )
    found = []
    for name, fields in INSTRUCTIONS.items():
        if name in seen['base']:
            metric = (
                f'{name[:14]}_instructions' if name.startswith('gup') else f'{name}_instructions'
            )
            found.append(
                row_of(
                    metric,
                    {tree: seen[tree][name] for tree in TREES},
                    'instructions',
                    arch=arch,
                    mmu=mmu,
                    **fields,
                )
            )
    rates = {tree: [1e9 / seen[tree]['collapse'][0]] for tree in TREES}
    found.append(
        row_of(
            'collapse_throughput',
            rates,
            'collapses in 10^9 instructions',
            'higher',
            arch=arch,
            mmu=mmu,
        )
    )
    return found, accelerator


# instructions: the minimum of the rounds repeats, with three it may be one more
def measure(bench, runs=5, rounds=20):
    """(rows, accelerator)"""
    counted, timed, accelerator = [], [], ''
    for machine in MACHINES:
        arch = machine[0]
        images = {tree: bench.build(arch, FLAVOUR, tree) for tree in TREES}
        file = bench.selftest(arch, f'mm/{PROGRAM}')
        more, accelerator = instructions(bench, machine, images, file, rounds)
        timed += more
        counted += ipis(bench, machine, images, file, runs)
    return counted + timed, accelerator


HEAD = ['what', 'on', 'CPUs', 'others']


def describe(each):
    """The cells that say what a row is."""
    what = each['metric'].replace('_instructions', ', instructions').replace('_', ' ')
    what = what.replace('ipis per collapse', 'IPIs a collapse').replace(' fast 1page', '')
    on = ' '.join(filter(None, (each['arch'], each['mmu'])))
    state = [each.get('neighbours'), each.get('memory')]
    if each.get('state') == 'collapsing':
        state.append('collapsing')
    return [what, on, str(each.get('cpus', 1)), ', '.join(filter(None, state))]


def cover(each):
    """IPIs with many CPUs, the row that got worst, and what a walk pays."""
    if (each.get('mmu'), each.get('cpus'), each.get('neighbours')) == ('radix', 2, 'walk'):
        return True
    if each['unit'] == 'IPIs':
        return (
            each['cpus'] == 8
            and each['neighbours'] != 'nohz_full'
            and (each['mmu'] != 'hash' or each['neighbours'] != 'idle')
        )
    return each.get('state') == 'steady' and each['memory'] == 'small pages'


def drawn(each):
    """IPIs of 8 CPUs, and each cost."""
    return each['unit'] != 'IPIs' or each['cpus'] == 8


def note(data):
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}, with -icount shift=0 for '
        f'instructions; powerpc: pseries, 64K pages. IPIs: those in /proc/interrupts (function '
        f'calls; on powerpc all) while {TIMES} times anonymous memory is collapsed, the median of '
        f'a boot, and of the boots. Others: what the other CPUs do (nohz_full: half of them in '
        f'user space with nohz_full=, the rest idle; walk: get_user_pages_fast() all the time). '
        f'`{data["command"]}`'
    )
