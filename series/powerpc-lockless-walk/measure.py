# SPDX-License-Identifier: GPL-2.0-only
"""Measures powerpc-lockless-walk: IPIs per collapse of a huge page, instructions of walks, text of gup_fast elsewhere."""
import re
import statistics

import guest
import kernel
from common import BUILD, die, load_record, output, run, say

TREES = ('base', 'patched')
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

    ended = guest.run_guest('powerpc', image, f'#!/bin/sh\n{PROGRAM} {arguments}\n', [program],
                            guest.Options(append=MMUS[mmu], **options), name=f'bench-{tree}', what=what, on_line=on_line)
    if ended.status != guest.OK:
        say(ended.detail)
        die(f'{tree}: {ended.message}', ended.status)
    return figures, ended.accelerator


def row(metric, values, unit, digits, **fields):
    """values: {tree: figures of the boots}; a ratio by zero is None."""
    base, patched = (round(statistics.median(values[tree]), digits) for tree in TREES)
    return {'metric': metric, **fields, 'unit': unit, 'better': 'lower', 'base': base, 'patched': patched,
            'ratio': round(base / patched, 4) if patched else None, 'runs': len(values['patched']),
            'min': round(min(values['patched']), digits), 'max': round(max(values['patched']), digits)}


def ipis(images, program, runs):
    found = []
    for mmu in MMUS:
        for cpus in CPUS:
            seen = {tree: [] for tree in TREES}
            for number in range(1, runs + 1):
                for tree, image in images.items():
                    what = f'{mmu}, {cpus} CPUs, run {number} of {runs}, {tree}'
                    seen[tree].append(boot(tree, image, program, mmu, f'ipis {TIMES}', what, cpus=cpus)[0])
            for name in seen['patched'][0]:
                metric, _, neighbours = name.rpartition('_')
                values = {tree: [each[name] for each in seen[tree]] for tree in TREES}
                unit, digits = ('us', 1) if metric.startswith('collapse_us') else ('IPIs', 2)
                found.append(row(metric, values, unit, digits, mmu=mmu, cpus=cpus, neighbours=neighbours))
    # the shorter reading order: what counts first
    return sorted(found, key=lambda each: each['unit'] != 'IPIs')


def instructions(images, program, rounds):
    found, accelerator = [], ''
    for mmu in MMUS:
        seen = {}
        for tree, image in images.items():
            seen[tree], accelerator = boot(tree, image, program, mmu, f'time {rounds}', f'{mmu}, instructions, {tree}', icount=True)
        for name in seen['patched']:
            metric, memory = (name[:-6], 'small') if name.endswith('_small') else (name[:-4], 'thp') if name.endswith('_thp') else (name, '')
            values = {tree: [seen[tree][name]] for tree in TREES}
            fields = {'mmu': mmu, **({'memory': memory} if memory else {})}
            found.append(row(f'{metric}_instructions', values, 'instructions', 1, **fields))
    return found, accelerator


def text(arch, tree):
    """The machine code of mm/gup.c with its relocations."""
    record, src, folder = load_record(arch), kernel.source(tree), kernel.out(arch, 'plain', tree)
    with kernel.Lock(folder):
        kernel.configure(arch, 'plain', tree)
        command, env = kernel.make(record, folder, src, 'mm/gup.o')
        run(f'mm/gup.o, {tree} {arch}', command, log=BUILD / 'log' / f'gup-{arch}-{tree}.log', env=env)
        return output([f'{record["cross_compile"]}objdump', '-d', '-r', '-j', '.text', folder / 'mm/gup.o']).split('\n', 3)[3]


def identical():
    found = []
    for arch in ('x86_64', 'arm64'):
        same = text(arch, 'base') == text(arch, 'patched')
        found.append({'metric': 'gup_fast_text', 'arch': arch, 'unit': 'text', 'better': 'identical', 'identical': same})
    return found


def measure(runs=1, rounds=20):    # instructions: the minimum of the rounds repeats, with three it may be one more
    """(rows, accelerator)"""
    images = {tree: kernel.build('powerpc', 'plain', tree) for tree in TREES}
    program = kernel.selftests('powerpc', 'patched', ['powerpc/mm'])['powerpc/mm'] / PROGRAM
    counted = ipis(images, program, runs)
    timed, accelerator = instructions(images, program, rounds)
    return counted + timed + identical(), accelerator


def number(value):
    return f'{value:g}'


def cells(data):
    head = ['what', 'MMU', 'CPUs', 'others', 'base', 'patched', 'ratio']
    lines = []
    for each in data['rows']:
        if 'identical' in each:
            lines.append(['text of mm/gup.o', each['arch'], '', '', '', 'identical' if each['identical'] else 'differs', ''])
            continue
        if each['unit'] == 'us':
            continue
        ratio = '' if each['unit'] == 'IPIs' else f'{each["ratio"]:.3f}'
        lines.append([each['metric'].replace('_', ' '), each['mmu'], str(each.get('cpus', 1)),
                      each.get('neighbours') or each.get('memory', ''), number(each['base']), number(each['patched']), ratio])
    return head, lines


def note(data):
    return (f'Base {data["base"]}, accelerator {data["accelerator"]} with -icount shift=0 for instructions, 64K pages, pseries; IPIs from /proc/interrupts, the median of '
            f'{TIMES} collapses, wake-ups of kthreads included; others: what the other CPUs do (walk: get_user_pages_fast() all the time). `{data["command"]}`')


def plot(data, plt):
    rows = [each for each in data['rows'] if each.get('unit') == 'IPIs']
    kinds = list(dict.fromkeys((each['mmu'], each['metric'].rpartition('_')[2]) for each in rows))
    figure, axes = plt.subplots(1, len(kinds), figsize=(2.4 * len(kinds), 3), sharey=True)
    for place, (mmu, memory) in zip(axes, kinds):
        for neighbours, colour in (('idle', '#4477aa'), ('spin', '#228833'), ('walk', '#cc3311')):
            mine = [each for each in rows if each['mmu'] == mmu and each['metric'].endswith(memory) and each['neighbours'] == neighbours]
            for tree, style in (('base', '--'), ('patched', '-')):
                place.plot([each['cpus'] for each in mine], [each[tree] for each in mine], style, color=colour, marker='o', markersize=3,
                           label=f'{tree}, others {neighbours}')
        place.set_title(f'{mmu}, {memory}')
        place.set_xticks(CPUS)
        place.set_xlabel('CPUs')
    axes[0].set_ylabel(f'IPIs per collapse ({data["base"]})')
    axes[0].legend(frameon=False, fontsize=7)
    figure.tight_layout()
    return figure
