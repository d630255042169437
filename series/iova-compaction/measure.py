# SPDX-License-Identifier: GPL-2.0-only
"""Measures iova-compaction: module/iova_bench.c in base and patched kernels, in turn, in guests
whose
time is the number of instructions executed. A run gives the same figures whenever and wherever it
is done."""
import re
import shutil
from pathlib import Path

from kit import build, guest, trees
from kit.common import BUILD, die, load_machine, say, shown, step
from kit.qemu import Options

CPUS = (2, 16, 64)
# An instruction takes 1 << SHIFT ns of guest time. A CPU that waits in a loop lets all others have
# a look first: 100 ms of that at
# boot take minutes with 64 CPUs, unless instructions take longer. The module gives times as if each
# took 1 ns.
SHIFT = {64: 3}
# Loops of that kind which can do without: calibrating delays, waiting for each CPU that starts. 1
# GHz, HZ=250.
APPEND = 'slab_nomerge lpj=4000000 cpu_init_udelay=0'
SOURCE = Path(__file__).parent / 'module'
LINE = re.compile(r'(\w+)((?: -?\d+)+)$')
LABELS = {    # metric: words; `after` is after the burst
    'idle_ranges_after_2s': 'idle ranges, 2 s after',
    'idle_ranges_over_time': 'idle ranges',
    'idle_magazines_after_2s': 'idle magazines, 2 s after',
    'uncached_alloc_ns_after': 'miss, 2 s after, ns',
    'shift_throughput': 'throughput / fresh domain',
    'hit_rate_steady': 'hit rate, %',
    'steady_alloc_free_instructions': 'alloc + free, instructions',
    'idle_wakeups_per_min': 'passes a minute, once idle',
    'pass_instructions': 'a pass in use, instructions',
    'max_irqsoff_us': 'irqs wait at most, us',
}


def module(tree):
    """The module for the tree's kernel."""
    machine, src, folder = (
        load_machine('x86_64'),
        trees.source(tree),
        trees.out('x86_64', 'trace', tree),
    )
    made = BUILD / f'iova-bench-{tree}'
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(SOURCE, made)
    command, env = trees.make(machine, folder, src, 'modules')    # none; but Module.symvers
    step(None, command, log=folder / 'modules.log', env=env)
    command, env = trees.make(machine, folder, src, f'M={made}', 'modules')
    step(f'build {tree} iova_bench.ko', command, log=made / 'log', env=env)
    return made / 'iova_bench.ko'


def boot_once(tree, image, file, jobs, cpus):
    """{name: [numbers]}, and {ms: (ranges, magazines)} of the lines that begin with `at`."""
    figures, over_time = {}, {}

    def on_line(text):
        found = LINE.match(text)
        if found and found[1] == 'at':
            ms, ranges, magazines = map(int, found[2].split())
            over_time[ms] = ranges, magazines
        elif found:
            figures[found[1]] = int(found[2])

    shift = SHIFT.get(cpus, 0)
    job = '#!/bin/sh\nset -e\n' + ''.join(
        f'insmod /job/iova_bench.ko job={name} shift={shift}\nrmmod iova_bench\n' for name in jobs
    )
    job += "dmesg | sed -n 's/.*iova_bench: //p'\n"
    options = Options(
        cpus=cpus,
        icount=True,
        memory='2G',
        devices=[],
        append=APPEND,
        qemu=['-icount', f'shift={shift},sleep=off'],
    )
    options.limits.boot, options.limits.silence, options.limits.total = 1800, 1800, 3600
    ended = guest.run_guest(
        'x86_64',
        image,
        job,
        [file],
        options,
        name=f'bench-iova-{tree}',
        what=f'{tree}, {cpus} CPU(s): {" ".join(jobs)}',
        on_line=on_line,
    )
    if ended.status != guest.OK:
        say(ended.detail)
        die(f'{tree}: {ended.message}', ended.status)
    if not figures:
        die(f'{tree}: no figures in {shown(ended.folder / "results")}')
    return figures, over_time, ended.accelerator


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


def rows_of(cpus, base, patched):
    """base, patched: what boot_once() gave for that many CPUs."""
    one, other, rows = base[0], patched[0], []
    if cpus == 1:
        name = 'steady_alloc_free_instructions'
        rows.append(
            row(name, 1, 'instructions', one[f'{name}_x1000'] / 1000, other[f'{name}_x1000'] / 1000)
        )
        late = [
            max(value for name, value in each.items() if name.startswith('irqsoff_ns')) / 1000
            for each in (one, other)
        ]
        return rows + [row('max_irqsoff_us', 1, 'us', *late)]
    for name, unit in (
        ('idle_ranges_after_2s', 'ranges'),
        ('idle_magazines_after_2s', 'magazines'),
    ):
        rows.append(row(name, cpus, unit, one[name], other[name]))
    name = 'uncached_alloc_ns_after'
    before = {
        tree: each['uncached_alloc_ns_before'] for tree, each in (('base', one), ('patched', other))
    }
    rows.append(row(name, cpus, 'ns', one[name], other[name], before=before))
    rows.append(
        row(
            'idle_wakeups_per_min',
            cpus,
            'passes',
            one['idle_wakeups_per_min'],
            other['idle_wakeups_per_min'],
        )
    )
    name = 'pass_instructions'
    rows.append(row(name, cpus, 'instructions', one[name], other[name]))
    for workload, when in (('new', 'after'), ('running', 'later')):
        rates = [
            round(each[f'shift_ns_{workload}_fresh'] / each[f'shift_ns_{workload}_{when}'], 4)
            for each in (one, other)
        ]
        details = {
            tree: {
                name.removeprefix('shift_'): value
                for name, value in each.items()
                if name.startswith('shift_') and workload in name
            }
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
                details=details,
            )
        )
    for name in one:
        if name.startswith('hit_rate_'):
            rates = [each[name] / 1000 for each in (one, other)]
            depth = name.removeprefix('hit_rate_').removesuffix('_x1000')
            rows.append(row('hit_rate_steady', cpus, '%', *rates, better='higher', depth=depth))
    rows += [
        row('idle_ranges_over_time', cpus, 'ranges', base[1][ms][0], patched[1][ms][0], ms=ms)
        for ms in base[1]
    ]
    return rows


def measure(runs=1, rounds=1):
    """One boot of each kernel and number of CPUs: more would give the same figures."""
    trees = ('base', 'patched')
    images = {tree: build.build('x86_64', 'trace', tree) for tree in trees}
    modules = {tree: module(tree) for tree in trees}
    rows, accelerator = [], ''
    for cpus in (1, *CPUS):
        jobs = ('steady', 'irqsoff') if cpus == 1 else ('burst', 'hits', 'shift', 'running')
        got = {}
        for tree in trees:
            *got[tree], accelerator = boot_once(tree, images[tree], modules[tree], jobs, cpus)
        rows += rows_of(cpus, got['base'], got['patched'])
    return rows, accelerator


HEAD = ['what', 'CPUs']


def describe(each):
    """The cells that say what a row is."""
    what = LABELS.get(each['metric'], each['metric'].replace('_', ' '))
    if 'depth' in each:
        what += f', {each["depth"].replace("_", " ")} at a time'
    if 'ms' in each:
        what += f', {each["ms"] / 1000:g} s after the burst'
    if 'before' in each:
        what += f' (before: {each["before"]["patched"]:,})'
    if each.get('workload') == 'running':
        what = what.replace('fresh domain', 'run before')
    return [what, str(each['cpus'])]


def cover(each):
    """What got worse, and the field report's figures: idle ranges, misses, throughput."""
    many = each['cpus'] in (16, 64)
    if each['metric'] in ('idle_ranges_after_2s', 'uncached_alloc_ns_after', 'pass_instructions'):
        return many
    if each['metric'] == 'shift_throughput':
        return each['workload'] == 'running' or each['cpus'] == 16
    return each['metric'] in ('steady_alloc_free_instructions', 'max_irqsoff_us') \
        or each['metric'] == 'shift_throughput' and each['base'] > each['patched']


def note(data):
    many = max(each['cpus'] for each in data['rows'])
    longer = (
        f'; with {many} CPUs one in {1 << SHIFT[many]} ns, and times are divided by that'
        if many in SHIFT
        else ''
    )
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]}, time = instructions executed '
        f'(-icount{longer}): figures repeat. The burst: every CPU '
        f'in turn allocates and frees 1,024 ranges of each of six sizes. `{data["command"]}`'
    )


def plot(data, plt):
    figure, axes = plt.subplots(figsize=(7, 3.6))
    colours = {2: '#ccbb44', 16: '#4477aa', 64: '#aa3377'}
    for cpus in sorted({each['cpus'] for each in data['rows'] if 'ms' in each}, reverse=True):
        points = [
            each
            for each in data['rows']
            if each['metric'] == 'idle_ranges_over_time' and each['cpus'] == cpus
        ]
        for tree, style in (('base', '--'), ('patched', '-')):
            axes.plot(
                [each['ms'] / 1000 for each in points],
                [each[tree] for each in points],
                style,
                color=colours[cpus],
                label=f'{cpus} CPUs, {tree}',
            )
    axes.set_yscale('symlog', linthresh=100)
    axes.set_ylim(bottom=0)
    axes.set_xlabel('seconds since the burst')
    axes.set_ylabel('idle IOVA ranges')
    axes.set_title(
        f'{data["topic"]}: cached ranges that nobody uses ({data["base"]}, {data["accelerator"]}, '
        f'-icount)'
    )
    axes.legend(frameon=False, fontsize=8, loc=(0.76, 0.1))
    figure.tight_layout()
    return figure
