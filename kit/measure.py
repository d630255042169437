# SPDX-License-Identifier: GPL-2.0-only
"""Measures a topic: base and patched booted in turn, the same program in both. One code for run, bench and table.

What is particular to TOPIC is in measure_TOPIC.py (dashes as underscores):
    measure(runs, rounds)   ([rows of the record], accelerator)
    cells(data)             (head, lines) of the table
    note(data)              what to know below the table
    plot(data, pyplot)      a figure
"""
import importlib
import re
import statistics
import textwrap
import time
from pathlib import Path

import guest
import kernel
from common import die, say, shown

LINE = re.compile(r'([a-z]\w*) (\d+(?:\.\d+)?)$')


def topics():
    return sorted(path.stem.removeprefix('measure_').replace('_', '-') for path in Path(__file__).parent.glob('measure_*.py'))


def topic_module(topic):
    if topic not in topics():
        die(f'no benchmark for topic {topic} (known: {" ".join(topics())})')
    return importlib.import_module(f'measure_{topic.replace("-", "_")}')


def figures_of(arch, image, job, files, options, what):
    """({metric: [numbers]}, accelerator) of one boot, from the job's lines `METRIC NUMBER`."""
    figures = {}

    def on_line(text):
        found = LINE.match(text)
        if found:
            figures.setdefault(found[1], []).append(float(found[2]))

    ended = guest.run_guest(arch, image, job, files, options, name='bench', what=what, on_line=on_line)
    if ended.status != guest.OK:
        say(ended.detail)
        die(f'{what}: {ended.message}', ended.status)
    if not figures:
        die(f'{what}: no figures in {shown(ended.folder / "results")}')
    return figures, ended.accelerator


def selftest(arch, program):
    """The file of a selftest SUITE/PROGRAM, built from the patched tree: one binary for both kernels."""
    suite, name = kernel.suite_of('patched', program)
    file = kernel.selftests(arch, 'patched', [suite], [program])[suite] / name
    if not file.exists():
        die(f'linux/ has no tools/testing/selftests/{program}: is the series applied?')
    return file


def warn_if_busy(seconds=1):
    """Ratios of times are spoilt by whatever else the host does."""
    def times():
        with open('/proc/stat', encoding='ascii') as file:
            return [int(number) for number in file.readline().split()[1:9]]
    before = times()
    time.sleep(seconds)
    spent = [after - then for then, after in zip(before, times())]
    share = 1 - (spent[3] + spent[4]) / (sum(spent) or 1)    # idle, iowait
    if share > 0.05:
        say(f'warning: the host is {share:.0%} busy with something else: two vCPUs need two idle CPUs, the ratios will be too low')


def row(metric, before, after, unit='s', **more):
    """before, after: one list of figures per run; min and max are the ratio's over the runs."""
    base, patched = (statistics.median([value for run in runs for value in run]) for runs in (before, after))
    ratios = [statistics.median(one) / statistics.median(other) for one, other in zip(before, after)]
    return {'metric': metric, **more, 'unit': unit, 'better': 'lower', 'base': round(base, 6), 'patched': round(patched, 6),
            'ratio': round(base / patched, 3), 'runs': len(before), 'min': round(min(ratios), 3), 'max': round(max(ratios), 3)}


def record(topic, command, what='measure', **how):
    rows, accelerator = getattr(topic_module(topic), what)(**how)
    version = kernel.release('base')
    return {'topic': topic, 'base': f'v{version}', 'accelerator': accelerator.split(',')[0], 'command': command, 'rows': rows}


def text_table(data):
    topic = topic_module(data['topic'])
    head, lines = topic.cells(data)
    left = [not re.match(r'[\d.]', lines[0][column]) for column in range(len(head))] if lines else []
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    show = ['  '.join(cell.ljust(width) if is_left else cell.rjust(width) for cell, width, is_left in zip(line, widths, left)).rstrip()
            for line in [head, *lines]]
    return '\n'.join([*show, '', textwrap.fill(topic.note(data).replace('`', ''), 75, break_on_hyphens=False)])


def markdown_table(data):
    topic = topic_module(data['topic'])
    head, lines = topic.cells(data)
    left = [not re.match(r'[\d.]', cell) for cell in lines[0]] if lines else [True] * len(head)
    rule = ['---' if is_left else '---:' for is_left in left]
    show = ['| ' + ' | '.join(line) + ' |' for line in [head, rule, *lines]]
    return '\n'.join([*show, '', topic.note(data)])
