# SPDX-License-Identifier: GPL-2.0-only
"""Measures topics: base and patched booted in turn, the same program in both.

A record is {topic, base, accelerator, command, date, code, config, tools, rows}: see
kit/bench/provenance.py; `topic` may be a posting, TOPIC/NN-POSTING. `parts` is {command: {date,
code}} of the parts that were measured by themselves. A row is what row() gives: `metric`, `unit`,
`better` (lower or higher), `base`, `patched`, `ratio` (how many times better patched is; None:
infinitely, as nothing is left), `runs`, and `min` and `max`: the smallest and the largest of this
ratio and of those of one boot of each kernel. A row of a part that was measured by itself has the
`command` that did so.

A topic's measure.py defines:
    measure(bench, runs, rounds)    ([rows], accelerator); bench: a Bench
    PARTS                     {PART=: what gives the rows of that part, with the same arguments}
    counted(bench)            rows for `make run` that repeat however busy the host is
    quick(bench, runs)        for `make run`: yields (rows so far, accelerator) after each pair
    HEAD, describe(row)       titles and cells of the columns that say what a row is
    cover(row)                is it in the cover letter's table?
    note(record)              what to know below the table
    drawn(row)                is it in the picture? without it: those of the cover letter
"""

import contextlib
import hashlib
import json
import math
import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kit import model, topics
from kit.bench import provenance
from kit.build import kernel, program, reproducer, selftest
from kit.build.trees import BASE, OURS, Tree, Trees, release
from kit.errors import KitError
from kit.model import Options
from kit.paths import SERIES, TOP, shown
from kit.process import say
from kit.vm import guest

Row = dict[str, Any]
Record = dict[str, Any]
Figures = dict[str, list[float]]  # {metric: numbers}, of one boot
Boots = Sequence[Sequence[float]]  # figures of each
SOAK = TOP / 'soak'
LINE = re.compile(r'([a-z]\w*) (\d+(?:\.\d+)?)$')
TREES = ('base', 'patched')  # of a Bench


class Journal:
    """The boots of a `make bench` that has not ended: the next one goes on after them."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.boots: dict[tuple[str, ...], Any] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):  # half a line, of one that was killed
                key, figures = json.loads(line)
                self.boots[tuple(key)] = figures

    def add(self, key: Sequence[str], figures: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.lock, open(self.path, 'a', encoding='ascii') as file:
            # there may be half a line before
            file.write(f'\n{json.dumps([key, figures])}\n')

    def end(self) -> None:
        self.path.unlink(missing_ok=True)


def digest(*files: Path) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()


@dataclass(frozen=True)
class Bench:
    """What a topic's measure.py measures with. Trees are given by their names, see TREES, or as a
    Tree that it has made itself."""

    trees: Trees = OURS
    journal: Journal | None = None  # that of `make bench`; none while `make run` measures

    def tree(self, tree: str | Tree) -> Tree:
        return self.trees.named(tree) if isinstance(tree, str) else tree

    def build(self, arch: str, flavour: str, tree: str | Tree) -> Path:
        """A kernel's image."""
        return kernel.build(model.machine(arch), flavour, self.tree(tree))

    def out(self, arch: str, flavour: str, tree: str | Tree) -> Path:
        """The folder that it was built in."""
        return self.tree(tree).out(arch, flavour)

    def selftest(self, arch: str, program: str) -> Path:
        """The file of a selftest SUITE/PROGRAM: one binary for both kernels, built from the patched
        tree, or from the series' when that is the user's own and has it not."""
        for tree in (self.trees.patched, self.trees.series):
            if selftest.has(tree, program):
                return selftest.build(model.machine(arch), tree, [program])[program]
        raise KitError(
            f'{program} is not there to measure with: no topic adds it to what linux/ '
            'has checked out'
        )

    def program(self, arch: str, name: str, files: Sequence[Path]) -> Path:
        """A program of these files; SOAK is where they find headers, too."""
        folder = self.trees.patched.root / 'build' / f'{arch}-bench'
        return program.build(
            model.machine(arch), self.trees.patched, folder, name, files, '-I', SOAK
        )

    def module(self, arch: str, flavour: str, tree: str | Tree, file: Path, made: Path) -> Path:
        """A module of this file, see reproducer.module()."""
        return reproducer.module(model.machine(arch), flavour, self.tree(tree), file, made)

    def run_guest(
        self, arch: str, image: Path, job: str, files: Sequence[Path], options: Options, **more: Any
    ) -> guest.Outcome:
        """See guest.run_guest()."""
        return guest.run_guest(model.machine(arch), image, job, files, options, **more)

    def journaled(self, what: str, key: Sequence[str], measured: Callable[[], Any]) -> Any:
        """What measured() gives, or gave before a `make bench` was interrupted; it is JSON. key:
        words that tell this boot from others."""
        if not self.journal:
            return measured()
        found = self.journal.boots.get((what, *key))
        if found is not None:
            say(f'{what}: measured already, by the make bench that did not end')
            return found
        found = measured()
        self.journal.add((what, *key), found)
        return found

    def figures_of(
        self, arch: str, image: Path, job: str, files: Sequence[Path], options: Options, what: str
    ) -> tuple[Figures, str]:
        """({metric: [numbers]}, accelerator) of one boot, from the job's lines `METRIC NUMBER`."""
        figures, accelerator = self.journaled(
            what,
            (repr(options), job, digest(image, *files)),
            lambda: boot(arch, image, job, files, options, what),
        )
        return figures, accelerator


def boot(
    arch: str, image: Path, job: str, files: Sequence[Path], options: Options, what: str
) -> tuple[Figures, str]:
    """See Bench.figures_of()."""
    figures: Figures = {}

    def on_line(text: str) -> None:
        if found := LINE.match(text):
            figures.setdefault(found[1], []).append(float(found[2]))

    ended = guest.run_guest(
        model.machine(arch), image, job, files, options, name='bench', what=what, on_line=on_line
    )
    if ended.status != guest.OK:
        say(ended.detail)
        raise KitError(f'{what}: {ended.message}', ended.status)
    if not figures:
        raise KitError(f'{what}: no figures in {shown(ended.folder / "results")}')
    return figures, ended.accelerator


def warn_if_busy(seconds: float = 1) -> None:
    """Other load on the host distorts ratios of times."""

    def times() -> list[int]:
        with open('/proc/stat', encoding='ascii') as file:
            return [int(number) for number in file.readline().split()[1:9]]

    before = times()
    time.sleep(seconds)
    spent = [after - then for then, after in zip(before, times())]
    share = 1 - (spent[3] + spent[4]) / (sum(spent) or 1)  # idle, iowait
    if share > 0.05:
        say(
            f'warning: the host is {share:.0%} busy with something else: two vCPUs need two idle '
            'CPUs, the ratios will be too low'
        )


def times_better(base: float, patched: float, better: str) -> float:
    worse, good = (base, patched) if better == 'lower' else (patched, base)
    if good:
        return worse / good
    return math.inf if worse else 1


def row(
    metric: str,
    before: Boots,
    after: Boots,
    unit: str = 's',
    better: str = 'lower',
    middle: Callable[[Sequence[float]], float] = statistics.median,
    **more: object,
) -> Row:
    """before, after: one list of figures per boot of each kernel; middle: what stands for them
    all."""
    base, patched = (middle([value for run in runs for value in run]) for runs in (before, after))
    boots = zip(map(statistics.median, before), map(statistics.median, after))
    ratios = [times_better(*pair, better) for pair in ((base, patched), *boots)]
    spread = {'ratio': ratios[0], 'runs': len(before), 'min': min(ratios), 'max': max(ratios)}
    return {
        'metric': metric,
        **more,
        'unit': unit,
        'better': better,
        'base': round(base, 6),
        'patched': round(patched, 6),
        # JSON has no infinity
        **{key: None if value == math.inf else round(value, 3) for key, value in spread.items()},
    }


def record(
    topic: str, command: str, rows: Sequence[Row], accelerator: str, below: Sequence[str] = ()
) -> Record:
    """below: the topics and postings that the base has, too."""
    return {
        'topic': topic,
        'base': f'v{release(BASE)}{" with " if below else ""}{", ".join(below)}',
        'accelerator': accelerator.split(',')[0],
        'command': command,
        **provenance.of(topic),
        'rows': rows,
    }


def commands(data: Record) -> str:
    """What made the record, for its note: the whole, and parts measured since."""
    parts = (row['command'] for row in data['rows'] if 'command' in row)
    return '; '.join(f'`{command}`' for command in dict.fromkeys((data['command'], *parts)))


def path_of(topic: str) -> Path:
    """topic: or a posting, TOPIC/NN-POSTING."""
    return SERIES / topic / 'bench.json'


def load(topic: str) -> Record | None:
    """The recorded benchmark, or None."""
    path = path_of(topic)
    if not path.exists():
        return None
    try:
        return cast(Record, json.loads(path.read_text()))
    except ValueError as error:
        raise KitError(f'{shown(path)}: {error}') from error


def save(data: Record, path: Path) -> None:
    """A row a line, for readable diffs; the last record stays until the new one is whole."""
    rows = ',\n'.join('    ' + json.dumps(row) for row in data['rows'])
    head = ',\n'.join(
        f'  {json.dumps(key)}: {json.dumps(value)}' for key, value in data.items() if key != 'rows'
    )
    try:
        part = path.with_suffix('.part')
        part.write_text(f'{{\n{head},\n  "rows": [\n{rows}\n  ]\n}}\n')
        part.rename(path)
    except OSError as error:
        raise KitError(f'{path.name}: {error.strerror}') from error


def quick_topics() -> list[str]:
    """Those that `make run` can show."""
    return [topic for topic in topics.measured() if hasattr(topics.benchmark(topic), 'quick')]
