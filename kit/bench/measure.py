# SPDX-License-Identifier: GPL-2.0-only
"""Measures topics: base and patched booted in turn, the same program in both.

A record is {topic, base, accelerator, command, rows}. A row has `metric`, `unit`, `better` (lower
or higher), `base`, `patched`, `ratio` (how many times better patched is; None: patched is nothing),
`runs`, and `min` and `max`: the smallest and the largest of this ratio and of those of one boot of
each kernel. A row of a part that was measured by itself has the `command` that did so.

What is particular to a topic is in its measure.py:
    measure(runs, rounds)     ([rows], accelerator)
    PARTS                     {PART=: what gives the rows of that part, with the same arguments}
    quick(runs, rounds)       for `make run`: yields (rows so far, accelerator) after each pair
    HEAD, describe(row)       titles and cells of the columns that say what a row is
    cover(row)                is it in the cover letter's table?
    note(record)              what to know below the table
    plot(record, pyplot)      a figure
"""
import contextlib
import hashlib
import json
import re
import statistics
import threading
import time
from pathlib import Path

from kit import topics
from kit.build import selftest as selftests
from kit.build.trees import ROOTS, release
from kit.errors import KitError
from kit.paths import BUILD, SERIES, TOP, shown
from kit.process import say, step
from kit.vm import guest

LINE = re.compile(r'([a-z]\w*) (\d+(?:\.\d+)?)$')
TREES = ('base', 'patched')


class Journal:
    """The boots of a `make bench` that has not ended: the next one goes on after them."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.boots = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):    # half a line, of one that was killed
                key, figures = json.loads(line)
                self.boots[tuple(key)] = figures

    def add(self, key, figures):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.lock, open(self.path, 'a', encoding='ascii') as file:
            # there may be half a line before
            file.write(f"\n{json.dumps([key, figures])}\n")

    def end(self):
        self.path.unlink(missing_ok=True)


JOURNALS = []    # that of `make bench`; none while `make run` measures


def digest(*files):
    whole = hashlib.sha256()
    for file in files:
        whole.update(Path(file).read_bytes())
    return whole.hexdigest()


def journaled(what, key, measured):
    """What measured() gives, or gave before a `make bench` was interrupted; it is JSON. key: words
    that tell this boot from others."""
    if not JOURNALS:
        return measured()
    found = JOURNALS[0].boots.get((what, *key))
    if found is not None:
        say(f'{what}: measured already, by the make bench that did not end')
        return found
    found = measured()
    JOURNALS[0].add((what, *key), found)
    return found


def figures_of(arch, image, job, files, options, what):
    """({metric: [numbers]}, accelerator) of one boot, from the job's lines `METRIC NUMBER`."""
    return journaled(what, (repr(options), job, digest(image, *files)),
                     lambda: boot(arch, image, job, files, options, what))


def boot(arch, image, job, files, options, what):
    figures = {}

    def on_line(text):
        found = LINE.match(text)
        if found:
            figures.setdefault(found[1], []).append(float(found[2]))

    ended = guest.run_guest(arch, image, job, files, options, name='bench', what=what,
                            on_line=on_line)
    if ended.status != guest.OK:
        say(ended.detail)
        raise KitError(f'{what}: {ended.message}', ended.status)
    if not figures:
        raise KitError(f'{what}: no figures in {shown(ended.folder / "results")}')
    return figures, ended.accelerator


def selftest(arch, program):
    """The file of a selftest SUITE/PROGRAM: one binary for both kernels, built from the patched
    tree, or from the series' when that is the user's own and has it not."""
    tree = 'patched'
    if 'series' in ROOTS and not selftests.has(tree, program):
        tree = 'series'
    if not selftests.has(tree, program):
        raise KitError(
            f'{program} is not there to measure with: no topic adds it to what linux/ has '
            'checked out')
    return selftests.build(arch, tree, [program])[program]


def plugin(source):
    """A TCG plugin, compiled for QEMU on this host."""
    made = BUILD / 'plugins' / f'{source.parent.name}.so'
    made.parent.mkdir(parents=True, exist_ok=True)
    step(None, ['gcc', '-O2', '-Wall', '-shared', '-fPIC', '-fvisibility=hidden',
                '-I', TOP / 'kit/bench', '-o', made, source])
    return made


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
        say(f'warning: the host is {share:.0%} busy with something else: two vCPUs need two idle '
            'CPUs, the ratios will be too low')


def row(metric, before, after, unit='s', **more):
    """before, after: one list of figures per boot of each kernel; lower is better."""
    base, patched = (statistics.median([value for run in runs for value in run])
                     for runs in (before, after))
    ratios = [base / patched, *(statistics.median(one) / statistics.median(other)
                                for one, other in zip(before, after))]
    return {'metric': metric, **more, 'unit': unit, 'better': 'lower', 'base': round(base, 6),
            'patched': round(patched, 6), 'ratio': round(ratios[0], 3), 'runs': len(before),
            'min': round(min(ratios), 3), 'max': round(max(ratios), 3)}


def record(topic, command, rows, accelerator):
    return {'topic': topic, 'base': f'v{release("base")}',
            'accelerator': accelerator.split(',')[0], 'command': command, 'rows': rows}


def commands(data):
    """What made the record, for its note: the whole, and parts measured since."""
    parts = dict.fromkeys(row['command'] for row in data['rows'] if 'command' in row)
    return '; '.join(f'`{command}`' for command in (data['command'], *parts))


def path_of(topic):
    return SERIES / topic / 'bench.json'


def load(topic):
    """The recorded benchmark, or None."""
    path = path_of(topic)
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise KitError(f'{shown(path)}: {error}')


def save(data, path):
    """A row a line, for readable diffs; the last record stays until the new one is whole."""
    rows = ',\n'.join('    ' + json.dumps(row) for row in data['rows'])
    head = ',\n'.join(f'  {json.dumps(key)}: {json.dumps(value)}'
                      for key, value in data.items() if key != 'rows')
    try:
        part = path.with_suffix('.part')
        part.write_text(f'{{\n{head},\n  "rows": [\n{rows}\n  ]\n}}\n')
        part.rename(path)
    except OSError as error:
        raise KitError(f'{path.name}: {error.strerror}')


def quick_topics():
    """Those that `make run` can show."""
    return [topic for topic in topics.measured() if hasattr(topics.benchmark(topic), 'quick')]
