# SPDX-License-Identifier: GPL-2.0-only
"""Measures powerpc-lockless-walk: IPIs per collapse of a huge page, instructions of walks, text of
gup_fast elsewhere."""
import re
import statistics

from kit import build, config, guest, trees
from kit.common import BUILD, die, load_machine, output, say, step
from kit.measure import TREES, selftest
from kit.qemu import Options

MMUS = {'radix': '', 'hash': 'disable_radix'}
CPUS = (2, 4, 8)
PROGRAM = 'lockless_walk_perf'
TIMES = 10                       # collapses of each kind in a boot
LINE = re.compile(r'([a-z]\w*) (\d+(?:\.\d+)?)$')


def boot(tree, image, program, mmu, arguments, what, **options):
    """({metric: value}, accelerator) of one boot."""
    figures = {}

    def on_line(text):
        found = LINE.match(text)
        if found:
            figures[found[1]] = float(found[2])

    ended = guest.run_guest(
        'powerpc',
        image,
        f'#!/bin/sh\n{PROGRAM} {arguments}\n',
        [program],
        Options(append=MMUS[mmu], **options),
        name=f'bench-{tree}',
        what=what,
        on_line=on_line,
    )
    if ended.status != guest.OK:
        say(ended.detail)
        die(f'{tree}: {ended.message}', ended.status)
    return figures, ended.accelerator


def row(metric, values, unit, digits, **fields):
    """values: {tree: figures of the boots}; a ratio by zero is None."""
    base, patched = (round(statistics.median(values[tree]), digits) for tree in TREES)
    ratios = [
        round(one / other, 4) for one, other in zip(values['base'], values['patched']) if other
    ]
    return {
        'metric': metric,
        **fields,
        'unit': unit,
        'better': 'lower',
        'base': base,
        'patched': patched,
        'ratio': round(base / patched, 4) if patched else None,
        'runs': len(values['patched']),
        'min': min(ratios, default=None),
        'max': max(ratios, default=None),
    }


def ipis(images, program, runs):
    found = []
    for mmu in MMUS:
        for cpus in CPUS:
            seen = {tree: [] for tree in TREES}
            for number in range(1, runs + 1):
                for tree, image in images.items():
                    what = f'{mmu}, {cpus} CPUs, run {number} of {runs}, {tree}'
                    seen[tree].append(
                        boot(tree, image, program, mmu, f'ipis {TIMES}', what, cpus=cpus)[0]
                    )
            for name in seen['patched'][0]:
                metric, _, neighbours = name.rpartition('_')
                values = {tree: [each[name] for each in seen[tree]] for tree in TREES}
                unit, digits = ('us', 1) if metric.startswith('collapse_us') else ('IPIs', 2)
                found.append(
                    row(metric, values, unit, digits, mmu=mmu, cpus=cpus, neighbours=neighbours)
                )
    # the shorter reading order: what counts first
    return sorted(found, key=lambda each: each['unit'] != 'IPIs')


def instructions(images, program, rounds):
    found, accelerator = [], ''
    for mmu in MMUS:
        seen = {}
        for tree, image in images.items():
            seen[tree], accelerator = boot(
                tree,
                image,
                program,
                mmu,
                f'time {rounds}',
                f'{mmu}, instructions, {tree}',
                icount=True,
            )
        for name in seen['patched']:
            metric, memory = (
                (name[:-6], 'small')
                if name.endswith('_small')
                else (name[:-4], 'thp')
                if name.endswith('_thp')
                else (name, '')
            )
            values = {tree: [seen[tree][name]] for tree in TREES}
            fields = {'mmu': mmu, **({'memory': memory} if memory else {})}
            found.append(row(f'{metric}_instructions', values, 'instructions', 1, **fields))
    return found, accelerator


def text(arch, tree):
    """The machine code of mm/gup.c with its relocations."""
    machine, src, folder = load_machine(arch), trees.source(tree), trees.out(arch, 'plain', tree)
    with trees.Lock(folder):
        config.configure(arch, 'plain', tree)
        command, env = trees.make(machine, folder, src, 'mm/gup.o')
        step(
            f'mm/gup.o, {tree} {arch}',
            command,
            log=BUILD / 'log' / f'gup-{arch}-{tree}.log',
            env=env,
        )
        return output(
            [f'{machine["cross_compile"]}objdump', '-d', '-r', '-j', '.text', folder / 'mm/gup.o']
        ).split('\n', 3)[3]


def identical():
    found = []
    for arch in ('x86_64', 'arm64'):
        same = text(arch, 'base') == text(arch, 'patched')
        found.append(
            {
                'metric': 'gup_fast_text',
                'arch': arch,
                'unit': 'text',
                'better': 'lower',
                'identical': same,
                'base': 'as it is',
                'patched': 'identical' if same else 'differs',
                'ratio': None,
            }
        )
    return found


# instructions: the minimum of the rounds repeats, with three it may be one more
def measure(runs=1, rounds=20):
    """(rows, accelerator)"""
    images = {tree: build.build('powerpc', 'plain', tree) for tree in TREES}
    program = selftest('powerpc', f'powerpc/mm/{PROGRAM}')
    counted = ipis(images, program, runs)
    timed, accelerator = instructions(images, program, rounds)
    return counted + timed + identical(), accelerator


HEAD = ['what', 'MMU', 'CPUs', 'others']


def describe(each):
    """The cells that say what a row is."""
    if 'identical' in each:
        return ['text of mm/gup.o', each['arch'], '', '']
    what = each['metric'].replace('_instructions', ', instructions').replace('_', ' ')
    what = what.replace('ipis per collapse', 'IPIs,').replace('collapse us', 'time, us,')
    return [what, each['mmu'], str(each.get('cpus', 1)),
            each.get('neighbours') or each.get('memory', '')]


def cover(each):
    """IPIs of anonymous memory with many CPUs, and what got worse: the walks."""
    if each['unit'] == 'instructions':
        return each.get('memory') != 'thp'
    worst = each['metric'] == 'ipis_per_collapse_shmem' and each['base'] < each['patched']
    return worst or each['metric'] == 'ipis_per_collapse_anon' and each['cpus'] == 8


def note(data):
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]} with -icount shift=0 for '
        f'instructions, 64K pages, pseries; IPIs from /proc/interrupts, the median of '
        f'{TIMES} collapses, wake-ups of kthreads included; others: what the other CPUs do (walk: '
        f'get_user_pages_fast() all the time). `{data["command"]}`'
    )


def plot(data, plt):
    """Bars, base beside patched, of anonymous memory: a group for each number of CPUs."""
    rows = [each for each in data['rows'] if each['metric'] == 'ipis_per_collapse_anon']
    figure, axes = plt.subplots(1, len(MMUS), figsize=(9, 3.2), sharey=True)
    colours = {'idle': '#4477aa', 'spin': '#228833', 'walk': '#cc3311'}
    for panel, mmu in zip(axes, MMUS):
        for group, cpus in enumerate(CPUS):
            for number, (neighbours, colour) in enumerate(colours.items()):
                found = [
                    each
                    for each in rows
                    if (each['mmu'], each['cpus'], each['neighbours']) == (mmu, cpus, neighbours)
                ]
                for each in found:
                    place = group * 8 + number * 2
                    first = group == 0
                    panel.bar(place, each['base'], color=colour, alpha=0.4,
                              label=f'base, others {neighbours}' if first else None)
                    panel.bar(place + 0.85, each['patched'], color=colour,
                              label=f'patched, others {neighbours}' if first else None)
        panel.set_xticks(
            [group * 8 + 2.4 for group in range(len(CPUS))], [f'{cpus} CPUs' for cpus in CPUS]
        )
        panel.set_title(f'{mmu} MMU')
    axes[0].set_ylabel(f'IPIs a collapse ({data["base"]})')
    axes[0].legend(frameon=False, fontsize=7)
    return figure
