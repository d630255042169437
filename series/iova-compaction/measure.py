# SPDX-License-Identifier: GPL-2.0-only
"""Measures iova-compaction: module/iova_bench.c in base and patched kernels, in guests whose time
is the number of instructions executed. A run gives the same figures whenever and wherever it is
done."""

import re
from pathlib import Path
from statistics import median

from kit.bench.measure import digest, plugin
from kit.errors import KitError
from kit.host import host_cpus
from kit.model import Limits, Options
from kit.paths import BUILD, shown
from kit.process import Pool, say
from kit.vm import guest

# An instruction takes 1 << SHIFT ns of guest time. A CPU that waits in a loop lets all others have
# a look first: 100 ms of that at boot take minutes with 64 CPUs, unless instructions take longer.
# The module gives times as if each took 1 ns.
SHIFT = {64: 3}
# Loops of that kind which can do without: calibrating delays, waiting for each CPU that starts.
# 1 GHz, HZ=250.
APPEND = 'slab_nomerge lpj=4000000 cpu_init_udelay=0'
SOURCE = Path(__file__).parent / 'module'
LINE = re.compile(r'(\w+)((?: -?\d+)+)$')
BURSTS = 'burst', 'running', 'pass'
RETURNS = 'return', 'return flush_queue=1'
JOBS = {  # by CPUs
    1: ('steady', *5 * ('irqsoff',)),  # the timer looks at other moments each time
    2: (*BURSTS, 'hits', 'shift'),
    16: (*BURSTS, 'hits', 'shift', 'full', *RETURNS),
    64: (*BURSTS, *RETURNS),
}
# with -icount 128 did not boot within 30 minutes; an xAPIC addresses 255
MANY = 128, 255
INTERVAL = 3  # seconds from pass to pass
LABELS = {  # metric: words; "after" is after the burst
    'returning_burst': 'burst again',
    'kept_after': 'kept, %',
    'shift_throughput': 'throughput / fresh domain',
    'steady_alloc_free_instructions': 'alloc + free, instructions',
    'pass_instructions': 'a pass, all CPUs and sizes in use, instructions',
    'pass_cost_share': 'passes, % of one CPU',
    'idle_wakeups_per_min': 'passes a minute, once idle',
    'spurious_failures': 'failures, full address space',
    'hit_rate_steady': 'hit rate, %',
    'idle_ranges': 'idle ranges',
    'idle_magazines': 'idle magazines',
    'uncached_alloc_ns': 'miss, ns',
    'max_irqsoff_us': 'irqs wait at most, us',
}


def module(bench, tree):
    """The module for the tree's kernel."""
    return bench.module(
        'x86_64', 'trace', tree, SOURCE / 'iova_bench.c', BUILD / f'iova-bench-{tree}'
    )


def boot_once(bench, tree, image, file, jobs, cpus):
    """{name: number}, {name: [numbers]} of lines that have several, {name: all numbers} of jobs
    that run several times, and the accelerator."""
    figures, series, again = {}, {}, {}

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
        f'insmod /job/iova_bench.ko job={name} shift={shift}\nrmmod iova_bench\n'
        "dmesg -c | sed -n 's/.*iova_bench: //p'\n"
        for name in jobs
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
            [file],
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

    return bench.journaled(what, (repr(options), job, digest(image, file)), measured)


def text_of(names, folder):
    """BEGIN-END of the first of these functions that the kernel has; gcc splits and inlines."""
    lines = sorted((folder / 'System.map').read_text().splitlines())
    symbols = [line.split() for line in lines]
    found = {
        symbol.split('.')[0]: f'{begin}-{end}'
        for (begin, _, symbol), (end, *_) in zip(symbols, symbols[1:])
    }
    for name in names:
        if name in found:
            return found[name]
    raise KitError(f'no {" or ".join(names)} in {shown(folder)}/System.map')


def counted(bench, tree, image, file, job, cpus, name, words=()):
    """The numbers that NAME/plugin.c wrote while the job ran, called with words; no -icount."""
    found = BUILD / f'iova-{name}-{tree}'
    counter = plugin(Path(__file__).parent / name / 'plugin.c')
    script = f'#!/bin/sh\nset -e\ninsmod /job/iova_bench.ko job={job}\nrmmod iova_bench\n'
    options = Options(
        cpus=cpus,
        memory='2G',
        devices=(),
        append=APPEND,
        qemu=('-plugin', ','.join([f'file={counter}', *words, f'out={found}'])),
        limits=Limits(boot=3600, silence=1800),
    )
    what = f'{tree}, {cpus} CPU(s): {job}, counted by a plugin'
    ended = bench.run_guest(
        'x86_64', image, script, [file], options, name=f'bench-iova-{tree}', what=what
    )
    if ended.status != guest.OK:
        say(ended.detail)
        raise KitError(f'{tree}: {ended.message}', ended.status)
    return [int(line) for line in found.read_text().split()]


def longest_irqsoff(bench, tree, image, file, cpus=16):
    """The most instructions with interrupts off where a magazine is freed, while all drains and all
    CPUs allocate: irqsoff/plugin.c."""
    folder = bench.out('x86_64', 'trace', tree)
    words = [
        f'code={text_of(["iova_magazine_free_pfns"], folder)}',
        f'wait={text_of(["queued_spin_lock_slowpath"], folder)}',
    ]
    return counted(bench, tree, image, file, 'crowd', cpus, 'irqsoff', words)[0]


def pass_of_many(bench, tree, image, file, cpus):
    """The median instructions of a pass, interrupts included: passes/plugin.c."""
    return bench.journaled(
        f'{tree}, {cpus} CPUs: passes',
        (digest(image, file),),
        lambda: median(counted(bench, tree, image, file, 'pass', cpus, 'passes') or [0]),
    )


def row(metric, cpus, unit, base, patched, better='lower', **more):
    """ratio: how many times better patched is; none where it is nothing."""
    one, other = (base, patched) if better == 'lower' else (patched, base)
    ratio = round(one / other, 4) if other else None
    return {
        'metric': metric,
        'cpus': cpus,
        'unit': unit,
        'better': better,
        'base': base,
        'patched': patched,
        'ratio': ratio,
        'runs': 1,
        'min': ratio,
        'max': ratio,
        **more,
    }


def rows_of_bursts(cpus, base, patched):
    """Of job=burst: `at SECONDS RANGES MAGAZINES`, and what a miss takes then."""
    rows = []
    before = dict(
        zip(('base', 'patched'), (each[0]['uncached_alloc_ns_before'] for each in (base, patched)))
    )
    for (after, ranges, magazines), (_, *other) in zip(base[1]['at'], patched[1]['at']):
        rows.append(row('idle_ranges', cpus, 'ranges', ranges, other[0], after_s=after))
        if after in (10, 60):
            rows.append(
                row('idle_magazines', cpus, 'magazines', magazines, other[1], after_s=after)
            )
    for after in (10, 60):
        name = f'uncached_alloc_ns_{after}'
        rows.append(
            row(
                'uncached_alloc_ns',
                cpus,
                'ns',
                base[0][name],
                patched[0][name],
                after_s=after,
                before=before,
            )
        )
    return rows


def rows_of_returns(cpus, base, patched):
    """Of job=return: `return[_fq] IDLE_MS INSTRUCTIONS WARM PEAK KEPT NOW`; WARM is the same burst
    without a pause before it. The short pauses come several times."""
    rows = []
    for name, queued in (('return', False), ('return_fq', True)):
        pairs = list(zip(base[name], patched[name]))
        for idle in sorted({one[0] for one, _ in pairs}):
            same = [pair for pair in pairs if pair[0][0] == idle]
            took = [[each[1] for each in tree] for tree in zip(*same)]
            kept = [
                round(median(100 * each[4] / each[3] for each in tree), 2) for tree in zip(*same)
            ]
            ratios = [round(one / other, 4) for one, other in zip(*took)]
            details = {'idle_s': idle / 1000}
            rows.append(
                row(
                    'returning_burst',
                    cpus,
                    'instructions',
                    *map(median, took),
                    **details,
                    runs=len(same),
                    min=min(ratios),
                    max=max(ratios),
                    flush_queue=queued,
                    all=dict(zip(('base', 'patched'), took)),
                )
            )
            if not queued:
                rows.append(
                    row('kept_after', cpus, '% of the peak', *kept, **details, runs=len(same))
                )
    return rows


def rows_of_shifts(cpus, one, other):
    """Mixed traffic after the burst, against that before it."""
    rows = []
    for name in one:
        found = re.fullmatch(r'shift_ns_(new|running)_(\d+)s', name)
        if not found:
            continue
        workload, after = found[1], int(found[2])
        rates = [round(each[f'shift_ns_{workload}_fresh'] / each[name], 4) for each in (one, other)]
        details = {
            tree: {what: each[f'shift_{what}_{workload}_{after}s'] for what in ('ns', 'misses')}
            for tree, each in (('base', one), ('patched', other))
        }
        rows.append(
            row(
                'shift_throughput',
                cpus,
                'of a fresh domain',
                *rates,
                better='higher',
                workload=workload,
                after_s=after,
                details=details,
            )
        )
    return rows


def row_of_crowds(bench, images, modules, runs=3):
    """Not of one thread, so that figures differ from boot to boot."""
    pairs = [
        [
            longest_irqsoff(bench, tree, images[tree], modules[tree]) / 1000
            for tree in ('base', 'patched')
        ]
        for _ in range(runs)
    ]
    ratios = [round(one / other, 4) for one, other in pairs]
    return row(
        'max_irqsoff_us',
        16,
        'us',
        *map(median, zip(*pairs)),
        runs=runs,
        min=min(ratios),
        max=max(ratios),
        during='drain all, all CPUs allocate',
        all=pairs,
    )


def row_of_passes_of_many(bench, images, modules, cpus):
    passes = [
        pass_of_many(bench, tree, images[tree], modules[tree], cpus) for tree in ('base', 'patched')
    ]
    return row('pass_instructions', cpus, 'instructions', *passes)


def rows_of(cpus, base, patched):
    """base, patched: what boot_once() gave for that many CPUs."""
    one, other, rows = base[0], patched[0], []
    if cpus == 1:
        name = 'steady_alloc_free_instructions'
        rows.append(
            row(name, 1, 'instructions', one[f'{name}_x1000'] / 1000, other[f'{name}_x1000'] / 1000)
        )
        for name in one:
            if name.startswith('irqsoff_ns_'):
                late = [[number / 1000 for number in each[2][name]] for each in (base, patched)]
                ratios = [round(before / after, 4) for before, after in zip(*late) if after]
                rows.append(
                    row(
                        'max_irqsoff_us',
                        1,
                        'us',
                        *map(median, late),
                        runs=len(late[0]),
                        min=min(ratios, default=None),
                        max=max(ratios, default=None),
                        during=name.removeprefix('irqsoff_ns_'),
                    )
                )
        return rows
    if 'at' in base[1]:
        rows += rows_of_bursts(cpus, base, patched)
    for name, unit in (
        ('idle_wakeups_per_min', 'passes'),
        ('pass_instructions', 'instructions'),
        ('spurious_failures', 'allocations'),
    ):
        if name in one:
            rows.append(row(name, cpus, unit, one[name], other[name]))
    rows += rows_of_shifts(cpus, one, other)
    for name in one:
        if name.startswith('hit_rate_'):
            rates = [each[name] / 1000 for each in (one, other)]
            depth = name.removeprefix('hit_rate_').removesuffix('_x1000')
            rows.append(row('hit_rate_steady', cpus, '%', *rates, better='higher', depth=depth))
    return rows + (rows_of_returns(cpus, base[1], patched[1]) if 'return' in base[1] else [])


def rows_of_passes(rows):
    """What passes take of a CPU; 512 CPUs are on the straight line through the fewest and the
    most CPUs measured."""
    points = {
        each['cpus']: each['patched'] for each in rows if each['metric'] == 'pass_instructions'
    }
    few, many = min(points), max(points)
    slope = (points[many] - points[few]) / (many - few)

    def share(cpus, domains):
        instructions = points.get(cpus, points[few] + slope * (cpus - few))
        return round(100 * domains * instructions / (INTERVAL * 1e9), 5)

    return [
        row('pass_cost_share', cpus, '% of one CPU', 0, share(cpus, domains), domains=domains)
        for cpus, domains in [*((cpus, 1) for cpus in points), (512, 100)]
    ]


def measure(bench, runs=1, rounds=1):
    """One boot of each kernel and number of CPUs: more would give the same figures."""
    trees = ('base', 'patched')
    images = {tree: bench.build('x86_64', 'trace', tree) for tree in trees}
    modules = {tree: module(bench, tree) for tree in trees}
    boots = [(tree, cpus) for cpus in JOBS for tree in trees]

    def boot(tree, cpus):
        return boot_once(bench, tree, images[tree], modules[tree], JOBS[cpus], cpus)

    # a guest with -icount is one thread of the host, and knows no time but its own
    with Pool(host_cpus()) as pool:
        got = dict(zip(boots, pool.map(boot, *zip(*boots))))
    rows = [
        row_of_crowds(bench, images, modules),
        *(row_of_passes_of_many(bench, images, modules, cpus) for cpus in MANY),
    ]
    for cpus in JOBS:
        rows += rows_of(cpus, *(got[tree, cpus] for tree in trees))
    accelerator = got[boots[0]][3]
    return rows + rows_of_passes(rows), accelerator


HEAD = ['what', 'CPUs']


def describe(each):
    """The cells that say what a row is."""
    what = LABELS[each['metric']]
    if 'during' in each:
        what += f', {each["during"].replace("_", " ")}'
    if 'depth' in each:
        what += f', {each["depth"].replace("_", " ")} at a time'
    after = each.get('idle_s', each.get('after_s'))
    if after is not None:
        what += f', {after:g} s after'
    if 'before' in each:
        what += f' (before: {each["before"]["patched"]:,})'
    if each.get('flush_queue'):
        what += ', flush queue'
    if 'domains' in each:
        what += f', {each["domains"]} domain' + 's' * (each['domains'] > 1)
    if each.get('workload') == 'running':
        what = what.replace('fresh domain', 'run before')
    return [what, str(each['cpus'])]


def cover(each):
    """What got worst, and what the letter answers with."""
    many = each['cpus'] == 64
    if each['metric'] in ('returning_burst', 'kept_after'):
        return many and not each.get('flush_queue') and each['idle_s'] in (5, 10, 60)
    if each['metric'] == 'shift_throughput':
        return many and each['workload'] == 'running' and each['after_s'] in (10, 60)
    if each['metric'] in ('uncached_alloc_ns', 'idle_ranges'):
        return many and each['after_s'] == 60
    if each['metric'] == 'pass_cost_share':
        return each['cpus'] == 512
    if each['metric'] == 'max_irqsoff_us':
        return each['during'] == 'flush'
    return (
        each['metric'] == 'steady_alloc_free_instructions' or each['metric'] == 'spurious_failures'
    )


def note(data):
    longer = ', '.join(f'with {cpus} CPUs one in {1 << SHIFT[cpus]} ns' for cpus in SHIFT)
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}, time = instructions executed '
        f'(-icount; {longer}, and times are divided by that): figures repeat. The burst: every CPU '
        f'in turn allocates and frees 1,024 ranges of each of six sizes. Burst again, and kept: '
        f'all CPUs at the same time allocate 256 of each size and free them; the instructions are '
        f'those of all CPUs, waiting included. `{data["command"]}`'
    )


def plot(data, plt):
    """What a burst leaves, and what it takes when it returns, over the time between."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 6), sharex=True)
    for cpus, colour in ((16, '#4477aa'), (64, '#aa3377')):
        for metric, axes, scale in (('kept_after', upper, 1), ('returning_burst', lower, 1e6)):
            points = [
                each
                for each in data['rows']
                if each['metric'] == metric and each['cpus'] == cpus and not each.get('flush_queue')
            ]
            for tree, style in (('base', '--'), ('patched', '-')):
                axes.plot(
                    [each['idle_s'] for each in points],
                    [each[tree] / scale for each in points],
                    style,
                    color=colour,
                    label=f'{cpus} CPUs, {tree}',
                )
    upper.set_ylabel('kept, % of the peak')
    upper.set_ylim(bottom=0)
    lower.set_ylabel('million instructions')
    lower.set_yscale('log')
    lower.set_xscale('log')
    lower.set_xlabel('seconds of idleness')
    upper.set_title(
        f'{data["topic"]}: what a burst leaves, and what it takes when it returns\n'
        f'({data["base"]}, {data["accelerator"]}, -icount)',
        fontsize=10,
    )
    upper.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure
