# SPDX-License-Identifier: GPL-2.0-only
"""Measures collapse-ipis: IPIs per collapse, instructions per collapse and per call of GUP-fast,
and the time of a collapse while other CPUs are busy."""

import functools
import re

from kit.bench.measure import TREES, Job, commands, row
from kit.host import host_cpus
from kit.model import Options
from kit.process import Pool

PROGRAM = 'collapse_ipis_perf'
CPUS = (2, 8)  # a guest with 64 CPUs did not boot within 180 s on two of the host's
ORDERS = (2, 4, 7, 9)  # of x86's folios, as the program prints them
TIMES = 10  # collapses of each kind in a boot
MACHINES = {  # (architecture, MMU): words for the kernel's command line
    ('powerpc', 'radix'): '',
    ('powerpc', 'hash'): 'disable_radix',
    ('arm64', ''): '',
    ('x86_64', ''): '',
}
# The kernels that count IPIs need tracepoints. `plain` of arm64 and powerpc has them.
FLAVOURS = {'powerpc': 'plain', 'arm64': 'plain', 'x86_64': 'trace'}
# On the base, this test fails, but still prints how many IPIs it has counted.
UNSHARE = r"""collapse_ipis_test -f unshare 2>&1 | awk '
    $2 == "RUN" { split($3, name, ".") }
    / IPIs in / { sub(".*:", ""); printf "ipis_unshare_%s %.2f\n", name[2], $1 / $4 }'"""
IPIS = re.compile(r'ipis_(sync|tlb)_(\d+)_(\w+)')


def has_times(options):
    """Returns whether the host has a CPU for each vCPU. Otherwise, a collapse may have to wait for
    a vCPU that does not run."""
    return not options.icount and options.cpus <= host_cpus()


def boot_both(bench, arch, images, command, file, options, what):
    """Boots both kernels, one after the other if times can be measured: see has_times(). Counts do
    not depend on the load of the host, so otherwise both boot at the same time. Returns ({tree:
    figures}, accelerator)."""

    def boot(tree):
        return bench.figures_of(
            arch, images[tree], f'#!/bin/sh\n{command}\n', [file], options, f'{what}, {tree}'
        )

    with Pool(1 if has_times(options) else len(TREES)) as pool:
        ended = dict(zip(TREES, pool.map(boot, TREES)))
    return {tree: figures for tree, (figures, _) in ended.items()}, ended['base'][1]


def fields_of(name):
    """Returns the fields of a row, parsed from the name that the program prints."""
    if found := IPIS.fullmatch(name):
        kind, order, neighbours = found.groups()
        return {
            'metric': 'ipis_per_collapse',
            'unit': 'IPIs',
            'kind': kind,
            'order': int(order),
            'neighbours': neighbours,
        }
    if name == 'ipis_munmap':
        return {'metric': 'ipis_per_munmap', 'unit': 'IPIs'}
    if name.startswith('ipis_unshare_'):
        neighbours = name.removeprefix('ipis_unshare_')
        return {'metric': 'ipis_per_unshare', 'unit': 'IPIs', 'neighbours': neighbours}
    neighbours = name.removeprefix('collapse_time_')
    return {'metric': 'collapse_time', 'unit': 'ns', 'neighbours': neighbours}


def timed_fields(name):
    """Returns the fields of a row that is measured with -icount."""
    metric, _, rest = name.partition('_')
    if metric != 'gup':
        return {'metric': f'{name}_instructions'}
    memory, pages = rest.split('_')
    return {'metric': 'gup_fast_instructions', 'memory': memory, 'pages': int(pages)}


def counts(bench, machine, command, file, options, runs):
    """Boots both kernels `runs` times. Returns (rows, accelerator). There is a row for each name
    that the command prints."""
    (arch, mmu), seen, accelerator = machine, {}, ''
    images = {tree: bench.build(arch, FLAVOURS[arch], tree) for tree in TREES}
    for run in range(1, runs + 1):
        what = f'{" ".join(filter(None, machine))}, {options.cpus} CPUs, run {run} of {runs}'
        both, accelerator = boot_both(bench, arch, images, command, file, options, what)
        for name in both['base']:
            seen.setdefault(name, []).append([both[tree][name] for tree in TREES])
    found = []
    for name, boots in seen.items():
        if name.startswith('collapse_time') and not has_times(options):
            continue
        before, after = zip(*boots)
        fields = {'arch': arch, 'mmu': mmu, 'cpus': options.cpus, **fields_of(name)}
        found.append(row(before=before, after=after, **fields))
    return found, accelerator


def ipis(bench, machine, file, runs, cpus=CPUS):
    found = []
    for number in cpus:
        # on a busy host, a guest with spinning CPUs may starve one of them
        stalls = 'rcupdate.rcu_cpu_stall_suppress=1'
        append = f'{MACHINES[machine]} nohz_full={number // 2}-{number - 1} {stalls}'
        options = Options(append=append, devices=(), cpus=number)
        found += counts(bench, machine, f'{PROGRAM} ipis {TIMES}', file, options, runs)[0]
    return found


def instructions(bench, machine, file, rounds):
    arch, mmu = machine
    images = {tree: bench.build(arch, FLAVOURS[arch], tree) for tree in TREES}
    options = Options(append=MACHINES[machine], devices=(), icount=True)
    what = f'{" ".join(filter(None, machine))}, instructions'
    command = f'{PROGRAM} time {rounds}'
    seen, accelerator = boot_both(bench, arch, images, command, file, options, what)
    found = []
    for name in seen['base']:
        fields = {'arch': arch, 'mmu': mmu, **timed_fields(name)}
        before, after = ([seen[tree][name]] for tree in TREES)
        found.append(row(before=before, after=after, unit='instructions', **fields))
    return found, accelerator


# The minimum number of instructions is repeatable with 20 rounds. With three rounds, it may be
# higher by one.
def one_machine(machine, bench, runs=5, rounds=20):
    """Measures one architecture and MMU, and returns (rows, accelerator)."""
    file = bench.selftest(machine[0], f'mm/{PROGRAM}')
    found, accelerator = instructions(bench, machine, file, rounds)
    return found + ipis(bench, machine, file, runs), accelerator


def unshare(bench, runs=5, **_):
    """Measures the IPIs per page table of hugetlb that is unshared; returns (rows, accelerator)."""
    file = bench.selftest('arm64', 'mm/collapse_ipis_test')
    options = Options(append='nohz_full=3-4', devices=(), cpus=5)
    return counts(bench, ('arm64', ''), UNSHARE, file, options, runs)


PARTS = {machine[1] or machine[0]: functools.partial(one_machine, machine) for machine in MACHINES}
PARTS['unshare'] = unshare


def measure(bench, **given):
    """Measures all machines, and returns (rows, accelerator)."""
    found = [one_machine(machine, bench, **given) for machine in MACHINES]
    return [each for rows, _ in found for each in rows], found[-1][1]


def hardware(bench, arch):
    """A machine's IPIs are compared with those of the largest guest, and its times with those of
    the smallest, as only that one has times. There, `spin` equals `nohz_full`. The record has no
    times of arm64."""
    machine, program = {'arch': arch, 'mmu': ''}, bench.selftest(arch, f'mm/{PROGRAM}')
    names = ['ipis_munmap']
    for each in ('idle', 'nohz_full', 'spin', 'walk', 'other_process'):
        if each != 'spin' and arch == 'x86_64':
            names.append(f'collapse_time_{each}')
        names += [f'ipis_{kind}_{order}_{each}' for order in ORDERS for kind in ('sync', 'tlb')]
    cpus = {name: CPUS[0] if name.startswith('collapse_time') else CPUS[-1] for name in names}
    counted = {name: {**machine, 'cpus': cpus[name], **fields_of(name)} for name in names}
    names = ['collapse', *(f'gup_small_{pages}' for pages in (1, 16, 512))]
    names += [f'gup_huge_{pages}' for pages in (1, 512)]
    timed = {name: {**machine, **timed_fields(name), 'unit': 'ns'} for name in names}
    jobs = [Job(f'{PROGRAM} ipis {TIMES}', counted), Job(f'{PROGRAM} time 5', timed)]
    return [program], jobs


HEAD = ['what', 'on', 'CPUs', 'order', 'others']


def describe(each):
    """Returns the cells that identify a row."""
    what = each['metric'].replace('collapse_instructions', 'instructions').replace('_', ' ')
    what = what.replace('ipis per', 'IPIs per')
    if 'kind' in each:
        what = {'sync': 'IPIs for walks', 'tlb': 'IPIs for TLBs'}[each['kind']]
    if 'pages' in each:
        what = f'GUP-fast, {each["memory"]}, {each["pages"]}'
    on = ' '.join(filter(None, (each['arch'], each['mmu'])))
    cpus, order = str(each.get('cpus', 1)), str(each.get('order', ''))
    return [what, on, cpus, order, each.get('neighbours', '')]


def cover(each):
    """Returns whether the cover letter has this row. The letter of 02-skip-unwatched has the rows
    about unsharing. That of 01-no-wait has only rows of x86: some of the rows that count IPIs with
    8 CPUs, and the row with the instructions of a collapse."""
    if each['metric'] == 'ipis_per_unshare':
        return True
    if each['arch'] != 'x86_64':
        return False
    if each['metric'] == 'ipis_per_collapse':
        worst = each['kind'] == 'tlb' and each['order'] == 9 and each['neighbours'] == 'idle'
        walks = each['neighbours'] == 'walk' and each['order'] in (2, 9)
        return each['cpus'] == 8 and (worst or walks)
    return each['metric'] == 'collapse_instructions'


def note(data):
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}. Instructions are counted with '
        '-icount shift=0; times are in ns. GUP-fast: instructions per page. The row tells small '
        'from huge pages, and how many pages a call pins. IPIs: csd_queue_cpu events per collapse '
        'or per page table of hugetlb that is unshared; only events of functions that wait for '
        'walks or flush TLBs are counted. MADV_COLLAPSE '
        'collapses memory to the PMD order, and khugepaged collapses it to mTHP orders. powerpc: '
        f'pseries with 64K pages. Half of the CPUs are in nohz_full=. {commands(data)}'
    )
