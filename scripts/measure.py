# SPDX-License-Identifier: GPL-2.0-only
"""Measures a topic: base and patched booted in turn, the same program in both. One code for run and bench."""
import re
import statistics
import time

import guest
import kernel
from common import die, say, shown

BACKINGS = {'4k': '4K', 'thp': 'THP', 'hugetlb': '2M hugetlb'}
# topic: (selftest, job, seconds without a word after which the guest counts as lost)
TOPICS = {'padata-vfio': ('vfio/vfio_pin_perf', 'vfio_pin_perf -s {size} -n {rounds} $BDF', 180)}
LINE = re.compile(r'([a-z]\w*) (\d+\.\d+)$')


def boot_once(topic, tree, image, program, size, rounds, what):
    """One boot's figures: {metric: [seconds]}."""
    figures = {}

    def on_line(text):
        found = LINE.match(text)
        if found:
            figures.setdefault(found[1], []).append(float(found[2]))

    job = f'#!/bin/sh\n{TOPICS[topic][1].format(size=size, rounds=rounds)}\n'
    # each backing in turn, the huge pages reserved all the time, and the kernel; touched by the host before it counts
    options = guest.Options(memory=f'{2 * size + 1024}M', prealloc=True)
    options.limits.silence, options.limits.total = TOPICS[topic][2], 900
    ended = guest.run_guest('x86_64', image, job, [program], options, name=f'bench-{tree}', what=what, on_line=on_line)
    if ended.status != guest.OK:
        say(ended.detail)
        die(f'{tree}: {ended.message}', ended.status)
    if not figures:
        die(f'{tree}: no figures in {shown(ended.folder / "results")}')
    return figures, ended.accelerator


def busy(seconds=1):
    """The share of the host's CPU time that others use just now."""
    def times():
        with open('/proc/stat', encoding='ascii') as file:
            return [int(number) for number in file.readline().split()[1:9]]
    before = times()
    time.sleep(seconds)
    spent = [after - then for then, after in zip(before, times())]
    return 1 - (spent[3] + spent[4]) / (sum(spent) or 1)    # idle, iowait


def measure(topic, runs=5, rounds=3, size=1024):
    """([(figures of base, figures of patched)] per run, accelerator)."""
    if topic not in TOPICS:
        die(f'no benchmark for topic {topic} (known: {" ".join(TOPICS)})')
    suite, program = TOPICS[topic][0].split('/')
    images = {tree: kernel.build('x86_64', 'plain', tree) for tree in ('base', 'patched')}
    file = kernel.selftests('x86_64', 'patched', [suite])[suite] / program
    if not file.exists():
        die(f'linux/ has no tools/testing/selftests/{suite}/{program}: is the series applied?')
    share = busy()
    if share > 0.05:
        say(f'warning: the host is {share:.0%} busy with something else: two vCPUs need two idle CPUs, the ratios will be too low')
    pairs, accelerator = [], ''
    for number in range(1, runs + 1):
        pair = []
        for tree, image in images.items():
            figures, accelerator = boot_once(topic, tree, image, file, size, rounds, f'run {number} of {runs}, {tree}')
            pair.append(figures)
        pairs.append(pair)
    return pairs, accelerator


def row(metric, before, after):
    """before, after: one list of seconds per run; min and max are the ratio's over the runs."""
    base, patched = (statistics.median([value for run in runs for value in run]) for runs in (before, after))
    ratios = [statistics.median(one) / statistics.median(other) for one, other in zip(before, after)]
    return {'metric': metric, 'threads': 2, 'unit': 's', 'better': 'lower', 'base': round(base, 6), 'patched': round(patched, 6),
            'ratio': round(base / patched, 3), 'runs': len(before), 'min': round(min(ratios), 3), 'max': round(max(ratios), 3)}


def rows(pairs):
    """The record's rows, in the order of the program's output."""
    metrics = [metric for metric in pairs[0][0] if all(metric in figures for pair in pairs for figures in pair)]
    found = [row(metric, [base[metric] for base, _ in pairs], [patched[metric] for _, patched in pairs])
             for metric in metrics if not metric.startswith('prefault')]
    for backing in BACKINGS:
        one, two = f'prefault1_{backing}', f'prefault2_{backing}'
        if one in metrics and two in metrics:    # user space's own: both kernels' figures count
            found.append(row(f'prefault_bound_{backing}', [base[one] + patched[one] for base, patched in pairs],
                             [base[two] + patched[two] for base, patched in pairs]))
    return found


def record(topic, command, **how):
    pairs, accelerator = measure(topic, **how)
    version = kernel.release('base')
    return {'topic': topic, 'base': f'v{version}', 'accelerator': accelerator.split(',')[0], 'command': command, 'rows': rows(pairs)}


def cells(data):
    """The table's head and lines, for a terminal and for Markdown alike."""
    by_metric = {each['metric']: each for each in data['rows']}
    head = ['what', 'pages', 'base s', 'patched s', 'ratio', 'min–max', 'prefault bound', 'of bound']
    words = {'map_cold': 'map, not prefaulted', 'map_warm': 'map, prefaulted', 'unmap': 'unmap', 'halves': 'two threads map halves'}
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
    return (f'Base {data["base"]}, accelerator {data["accelerator"]}, 2 vCPUs, 1 GiB, medians of {data["rows"][0]["runs"]} boots each in turn; '
            f'ratio = base/patched; min–max: of the ratio over the runs; prefault bound: what two user threads gain over one. `{data["command"]}`')


def text_table(data):
    head, lines = cells(data)
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    show = ['  '.join(cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
            for line in [head, *lines]]
    return '\n'.join([*show, '', note(data).replace('`', '')])


def markdown_table(data):
    head, lines = cells(data)
    show = ['| ' + ' | '.join(line) + ' |' for line in [head, ['---', '---', *['---:'] * (len(head) - 2)], *lines]]
    return '\n'.join([*show, '', note(data)])
