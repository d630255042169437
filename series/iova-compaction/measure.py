# SPDX-License-Identifier: GPL-2.0-only
"""Measures iova-compaction: loads module/iova_bench.c into the base and the patched kernel. A
guest's time is the number of instructions executed (-icount), so the figures do not depend on the
host."""

import re
from functools import partial
from pathlib import Path

from kit.bench.measure import TREES, commands, digest, row
from kit.errors import KitError
from kit.host import host_cpus
from kit.model import Limits, Options
from kit.paths import BUILD, shown
from kit.process import Pool, say
from kit.vm import guest

# {CPUs: shift}. With this number of CPUs, an instruction takes 1 << shift ns of guest time instead
# of 1 ns. While one CPU waits in a loop, QEMU also runs all other CPUs in turn. With 64 CPUs and 1
# ns per instruction, 100 ms of such waits at boot would take minutes. The module divides its times
# by 1 << shift, so that they are numbers of instructions.
SHIFT = {64: 3}
# Two kernel parameters avoid such loops at boot. lpj= replaces the calibration of delays (4000000:
# for 1 GHz and HZ=250). cpu_init_udelay=0 removes a wait for each CPU that starts.
APPEND = 'slab_nomerge lpj=4000000 cpu_init_udelay=0'
SOURCE = Path(__file__).parent / 'module'
LINE = re.compile(r'([\w-]+)((?: -?\d+)+)$')
BOOTS = {  # {value of PART=: (CPUs, jobs) of one boot of each kernel}
    # irqsoff runs three times, as its timer expires at different moments in each run
    'one-cpu': (1, ('steady', 'irqsoff', 'irqsoff', 'irqsoff')),
    'misses': (64, ('burst', 'burst limit32=1')),
    'running': (64, ('running',)),
    'return': (64, ('locked', 'return', 'return flush_queue=1')),
    '16-cpus': (16, ('burst', 'burst limit32=1', 'running', 'full', 'locked', 'wakeups')),
    'return-16-cpus': (16, ('return', 'return flush_queue=1')),
}
LABELS = {  # metric: words
    'returning_burst': 'burst again',
    'throughput_after_burst': 'throughput',
    'alloc_free_instructions': 'alloc + free',
    'miss_instructions': 'a miss',
    'locked_instructions': "tree's lock held",
    'wakeups_per_min': 'wake-ups a minute',
    'spurious_failures': 'failures, address space full',
    'idle_bytes': 'idle, bytes',
    'max_irqsoff_us': 'irqs wait, us',
}


def module(bench, tree):
    """Returns the folder of the modules for the tree's kernel."""
    return bench.module(
        'x86_64', 'trace', tree, SOURCE / 'iova_bench.c', BUILD / f'iova-bench-{tree}'
    ).parent


def boot_once(bench, tree, image, folder, jobs, cpus):
    """Runs the jobs in one boot, and reads lines `NAME NUMBER...`. Returns four values:

    {name: number} of lines with one number
    {name: [[numbers] of each line]} of lines with several numbers
    {name: [number of each line]} of lines with one number that a repeated job prints again
    the accelerator
    """
    figures, series, again = {}, {}, {}
    files = [folder / 'iova_bench.ko', folder / 'iova_locked.ko']

    def on_line(text):
        found = LINE.match(text)
        numbers = [int(number) for number in found[2].split()] if found else []
        if len(numbers) > 1:
            series.setdefault(found[1], []).append(numbers)
        elif numbers:
            figures[found[1]] = numbers[0]
            again.setdefault(found[1], []).append(numbers[0])

    shift = SHIFT.get(cpus, 0)
    job = '#!/bin/sh\nset -e\n' + ''.join(
        f'insmod /job/{kind}.ko job={name} shift={shift}\nrmmod {kind}\n'
        f"dmesg -c | sed -n 's/.*{kind}: //p'\n"
        for name in jobs
        for kind in ['iova_locked' if name == 'locked' else 'iova_bench']
    )
    options = Options(
        cpus=cpus,
        icount=True,
        memory='2G',
        devices=(),
        append=APPEND,
        qemu=('-icount', f'shift={shift},sleep=off'),
        limits=Limits(boot=1800, silence=1800, total=3600),
    )
    what = f'{tree}, {cpus} CPU(s): {" ".join(jobs)}'

    def measured():
        ended = bench.run_guest(
            'x86_64',
            image,
            job,
            files,
            options,
            name=f'bench-iova-{tree}',
            what=what,
            on_line=on_line,
        )
        if ended.status != guest.OK:
            say(ended.detail)
            raise KitError(f'{tree}: {ended.message}', ended.status)
        if not (figures or series):
            raise KitError(f'{tree}: no figures in {shown(ended.folder / "results")}')
        return figures, series, again, ended.accelerator

    return bench.journaled(what, (repr(options), job, digest(image, *files)), measured)


def rows_of_returns(cpus, base, patched):
    """Returns the rows of job=return. The module prints their figures in lines `return[_fq] IDLE_MS
    INSTRUCTIONS WARM PEAK KEPT NOW`."""
    rows = []
    for name, queued in (('return', False), ('return_fq', True)):
        pairs = list(zip(base.get(name, ()), patched.get(name, ())))
        for idle in sorted({one[0] for one, _ in pairs}):
            took = [
                [[each[1]] for each in tree]
                for tree in zip(*(pair for pair in pairs if pair[0][0] == idle))
            ]
            rows.append(
                row(
                    'returning_burst',
                    *took,
                    'instructions',
                    cpus=cpus,
                    idle_s=idle / 1000,
                    flush_queue=queued,
                    all={tree: sum(each, []) for tree, each in zip(TREES, took)},
                )
            )
    return rows


def rows_of_traffic(cpus, one, other):
    """Returns the rows of mixed traffic. The figure is its speed after the burst, as a share of its
    speed before any burst."""
    rows = []
    for name in one:
        found = re.fullmatch(r'traffic_(\d)_(\d+)s', name)
        if found:
            before, after = ([[each['traffic_0_before'] / each[name]]] for each in (one, other))
            rows.append(
                row(
                    'throughput_after_burst',
                    before,
                    after,
                    'of before',
                    'higher',
                    cpus=cpus,
                    after_s=int(found[2]),
                    bursts_beside=found[1] != '0',
                    instructions={'base': one[name], 'patched': other[name]},
                )
            )
    return rows


def rows_of_misses(cpus, one, other):
    """Returns the rows of job=burst, with limits of 32 and 64 bits."""
    rows = []
    for limit in (64, 32):
        name = f'miss_after_{limit}'
        if name in one:
            before = [each[f'miss_before_{limit}'] for each in (one, other)]
            rows.append(
                row(
                    'miss_instructions',
                    [[one[name]]],
                    [[other[name]]],
                    'instructions',
                    cpus=cpus,
                    idle_ranges=one[f'idle_ranges_{limit}'],
                    limit=limit,
                    earlier=dict(zip(TREES, before)),
                )
            )
    return rows


def rows_of(cpus, base, patched):
    """Returns all rows for this number of CPUs. `base` and `patched` are results of boot_once()."""
    one, other, rows = base[0], patched[0], []
    if cpus == 1:
        rows.append(
            row(
                'alloc_free_instructions',
                *([[each['steady_alloc_free_instructions_x1000'] / 1000]] for each in (one, other)),
                'instructions',
                cpus=1,
            )
        )
        for name in one:
            if name.startswith('irqsoff_ns_'):
                late = ([[number / 1000] for number in each[2][name]] for each in (base, patched))
                rows.append(
                    row(
                        'max_irqsoff_us',
                        *late,
                        'us',
                        middle=max,
                        cpus=1,
                        during=name.removeprefix('irqsoff_ns_'),
                    )
                )
        return rows
    rows += rows_of_misses(cpus, one, other)
    rows += rows_of_traffic(cpus, one, other)
    rows += rows_of_returns(cpus, base[1], patched[1])
    for name in one:
        kind, _, what = name.partition('_')
        numbers = [[one[name]]], [[other[name]]]
        if kind == 'locked':
            rows.append(
                row(
                    'locked_instructions',
                    *numbers,
                    'instructions',
                    cpus=cpus,
                    workload=what.partition('_')[2],
                    longest=what.startswith('longest'),
                )
            )
        if kind == 'wakeups':
            rows.append(
                row(
                    'wakeups_per_min',
                    [[one[name] / 2]],
                    [[other[name] / 2]],
                    'works',
                    cpus=cpus,
                    workload=what.removesuffix('_x2'),
                )
            )
        if name.startswith('idle_bytes_'):
            rows.append(
                row(
                    'idle_bytes',
                    *numbers,
                    'bytes',
                    cpus=cpus,
                    pressure=name.removeprefix('idle_bytes_'),
                )
            )
    if 'spurious_failures' in one:
        rows.append(
            row(
                'spurious_failures',
                [[one['spurious_failures']]],
                [[other['spurious_failures']]],
                'allocations',
                cpus=cpus,
            )
        )
    return rows


def part(bench, cpus, jobs, **_):
    """Boots each kernel once; more boots would give the same figures."""

    def boot(tree):
        image = bench.build('x86_64', 'trace', tree)
        return boot_once(bench, tree, image, module(bench, tree), jobs, cpus)

    # a guest with -icount is one thread of the host, and its time does not depend on the host's
    # load
    with Pool(host_cpus()) as pool:
        base, patched = pool.map(boot, TREES)
    return rows_of(cpus, base, patched), base[3]


PARTS = {name: partial(part, cpus=cpus, jobs=jobs) for name, (cpus, jobs) in BOOTS.items()}


def measure(bench, **_):
    parts = [each(bench) for each in PARTS.values()]
    return [each for rows, _ in parts for each in rows], parts[0][1]


HEAD = ['what', 'CPUs']


def describe(each):
    """Returns the cells that identify a row."""
    what = LABELS[each['metric']]
    if 'during' in each:
        what += f', {each["during"].replace("_", " ")}'
    if 'limit' in each:
        what += f', {each["idle_ranges"]:,} idle, {each["limit"]}-bit limit'
    if 'workload' in each:
        what += f', {each["workload"].replace("_", " ")}'
    if each.get('longest'):
        what += ', longest hold'
    if 'pressure' in each:
        what += ', after drop_caches' if each['pressure'] == 'all' else ', after a burst'
    after = each.get('idle_s', each.get('after_s'))
    if after is not None:
        what += f', {after:g} s after'
    if each.get('bursts_beside'):
        what += ', bursts beside'
    if each.get('flush_queue'):
        what += ', flush queue'
    return [what, str(each['cpus'])]


def cover(each):
    """Returns whether the cover letter has this row."""
    if each['metric'] == 'max_irqsoff_us':
        return each['during'].endswith(('flush_32-bit', 'shrink_32-bit'))
    if each['cpus'] != 64:
        return False
    return (
        each['metric'] == 'miss_instructions'
        and each['limit'] == 32
        or each['metric'] == 'throughput_after_burst'
        and each['after_s'] == 5
        and each['bursts_beside']
        or each['metric'] == 'returning_burst'
        and each['idle_s'] == 10
        and each['flush_queue']
        or each['metric'] == 'idle_bytes'
        or each['metric'] == 'locked_instructions'
        and each['workload'] == 'shrink'
        and not each['longest']
    )


def drawn(each):
    """Returns whether the picture has this row. It has the rows with 64 CPUs."""
    return each['cpus'] == 64


def note(data):
    longer = ' '.join(
        f'With {cpus} CPUs, an instruction takes {1 << SHIFT[cpus]} ns, and times are divided by '
        f'{1 << SHIFT[cpus]}.'
        for cpus in SHIFT
    )
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}. The time of the guest is the '
        f'number of instructions executed (-icount). {longer} Figures are instructions, unless the '
        'row names a unit. The burst: each CPU in turn allocates and frees 1,024 ranges of each of '
        'six sizes. Burst again: all CPUs simultaneously allocate and free 256 ranges of each '
        'size; the row has the instructions of all CPUs, including those spent waiting. '
        'Throughput: the speed as a share of the speed before the burst. '
        f'{commands(data)}'
    )
