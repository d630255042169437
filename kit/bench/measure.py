# SPDX-License-Identifier: GPL-2.0-only
"""Measures topics: boots the base and the patched kernel in turn, and runs the same program on
both.

A record is the content of a bench.json: {topic, base, accelerator, command, date, code, config,
tools, rows}. Its `topic` is the name of a topic, or TOPIC/NN-POSTING. The fields `date`, `code`,
`config` and `tools` come from kit/bench/provenance.py. If parts of the benchmark were measured
separately, the record also has `parts`: {command that measured the part: {date, code}}.

row() makes a row. A row has these fields, and others that identify it:
    metric, unit
    better           lower or higher
    base, patched    the figures of both kernels
    ratio            how many times better the patched kernel is; None: infinitely many times
    runs             the number of boots of each kernel
    min, max         the extremes among the overall ratio and the ratios of single boots
    command          the command that measured the row, if its part was measured separately

A topic's measure.py defines:
    measure(bench, runs, rounds)    returns ([rows], accelerator); `bench` is a Bench
    PARTS                  {value of PART=: a function like measure(), for the rows of this part}
    QUICK                  for `make run`: (architecture, flavour, SUITE/PROGRAM of a selftest)
    counted(bench)         for `make run`: returns rows that do not depend on the host's load
    quick(bench, runs)     for `make run`: after each boot of both kernels, yields (rows so far,
                           accelerator)
    HEAD, describe(row)    titles and cells of the columns that identify a row
    cover(row)             is this row at the top of the page, and in a letter's machine table?
    note(record)           text below the table
    drawn(row)             does the picture have this row? Without drawn(), cover() decides
    hardware(bench, arch)  for `make hardware`: returns ([programs to run on a machine], [Jobs])
"""

import contextlib
import hashlib
import json
import math
import re
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
Figures = dict[str, list[float]]  # {metric: numbers} of one boot
Boots = Sequence[Sequence[float]]  # the figures of each boot
SOAK = TOP / 'soak'
LINE = re.compile(r'([a-z]\w*) (\d+(?:\.\d+)?)$')
TREES = ('base', 'patched')  # the names of the two trees, as the methods of Bench accept them


@dataclass(frozen=True)
class Job:
    """A command that kit/hardware/measure.sh runs on a machine. It prints lines `NAME NUMBER`."""

    command: str  # may use $BDF, $GROUP and $DEVICE
    rows: Mapping[str, Row]  # {NAME: fields that identify its row in the record, and `unit`}
    # `device`: only with a device on vfio-pci; `mock`: only without one; `kvm`: only with /dev/kvm
    device: str = 'any'


class Journal:
    """Stores the figures of each boot. If `make bench` is interrupted, the next `make bench` reuses
    them."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.boots: dict[tuple[str, ...], Any] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):  # a killed process may leave an incomplete line
                key, figures = json.loads(line)
                self.boots[tuple(key)] = figures

    def add(self, key: Sequence[str], figures: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.lock, open(self.path, 'a', encoding='ascii') as file:
            # begin a new line, as the last line may be incomplete
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
    """The methods that a topic's measure.py calls. An argument `tree` is a name in TREES, or a Tree
    that measure.py has made."""

    trees: Trees = OURS
    journal: Journal | None = None  # only `make bench` has one

    def tree(self, tree: str | Tree) -> Tree:
        return self.trees.named(tree) if isinstance(tree, str) else tree

    def build(self, arch: str, flavour: str, tree: str | Tree) -> Path:
        """Builds a kernel if anything changed; returns its image."""
        return kernel.build(model.machine(arch), flavour, self.tree(tree))

    def out(self, arch: str, flavour: str, tree: str | Tree) -> Path:
        """Returns the folder in which the kernel is built."""
        return self.tree(tree).out(arch, flavour)

    def selftest(self, arch: str, program: str) -> Path:
        """Builds a selftest SUITE/PROGRAM and returns its file, which both kernels run. It is built
        from the patched tree. If that is a user's tree without this selftest, it is built from
        linux/."""
        for tree in (self.trees.patched, self.trees.series):
            if selftest.has(tree, program):
                return selftest.build(model.machine(arch), tree, [program])[program]
        raise KitError(
            f'{program} is missing, so nothing can be measured: no topic adds it to the commit '
            'that linux/ has checked out'
        )

    def program(self, arch: str, name: str, files: Sequence[Path]) -> Path:
        """Builds a program from these C files and returns its path. The files can include headers
        of soak/."""
        folder = self.trees.patched.root / 'build' / f'{arch}-bench'
        return program.build(
            model.machine(arch), self.trees.patched, folder, name, files, '-I', SOAK
        )

    def module(self, arch: str, flavour: str, tree: str | Tree, file: Path, made: Path) -> Path:
        """Builds a module from this C file and returns its path: see reproducer.module()."""
        return reproducer.module(model.machine(arch), flavour, self.tree(tree), file, made)

    def run_guest(
        self, arch: str, image: Path, job: str, files: Sequence[Path], options: Options, **more: Any
    ) -> guest.Outcome:
        """Boots the image and runs the job in a guest: see guest.run_guest()."""
        return guest.run_guest(model.machine(arch), image, job, files, options, **more)

    def journaled(self, what: str, key: Sequence[str], measured: Callable[[], Any]) -> Any:
        """Returns the result of measured(). If an interrupted `make bench` has already called
        measured() for this boot, returns the result of that call from the journal. The arguments
        `what` and `key` identify the boot. JSON must be able to represent the result."""
        if not self.journal:
            return measured()
        found = self.journal.boots.get((what, *key))
        if found is not None:
            say(f'{what}: already measured by the make bench that was interrupted')
            return found
        found = measured()
        self.journal.add((what, *key), found)
        return found

    def figures_of(
        self, arch: str, image: Path, job: str, files: Sequence[Path], options: Options, what: str
    ) -> tuple[Figures, str]:
        """Boots the image and runs the job, which prints lines `METRIC NUMBER`. Returns ({metric:
        [numbers]}, accelerator)."""
        figures, accelerator = self.journaled(
            what,
            (repr(options), job, digest(image, *files)),
            lambda: boot(arch, image, job, files, options, what),
        )
        return figures, accelerator


def boot(
    arch: str, image: Path, job: str, files: Sequence[Path], options: Options, what: str
) -> tuple[Figures, str]:
    """Boots the image once and returns its figures: see Bench.figures_of()."""
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
    """Prints a warning if other programs use the host's CPUs. They distort ratios of times."""

    def times() -> list[int]:
        with open('/proc/stat', encoding='ascii') as file:
            return [int(number) for number in file.readline().split()[1:9]]

    before = times()
    time.sleep(seconds)
    spent = [after - then for then, after in zip(before, times())]
    share = 1 - (spent[3] + spent[4]) / (sum(spent) or 1)  # idle, iowait
    if share > 0.05:
        say(
            f'warning: other load uses {share:.0%} of the host. Two vCPUs need two idle CPUs; the '
            'ratios will be too low'
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
    """Makes a row of a record. `before` has the figures of the base, `after` those of the patched
    kernel, with one list for each boot. `middle` reduces all figures of a kernel to one."""
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
    """Makes a record. `below` names the topics and postings that both kernels contain."""
    return {
        'topic': topic,
        'base': f'v{release(BASE)}{" with " if below else ""}{", ".join(below)}',
        'accelerator': accelerator.split(',')[0],
        'command': command,
        **provenance.of(topic),
        'rows': rows,
    }


def commands(data: Record) -> str:
    """Returns the commands that measured the record and its separate parts, as text."""
    parts = (row['command'] for row in data['rows'] if 'command' in row)
    return '; '.join(f'`{command}`' for command in dict.fromkeys((data['command'], *parts)))


def path_of(topic: str) -> Path:
    """Returns the path of the record of a topic, or of a posting TOPIC/NN-POSTING."""
    return SERIES / topic / 'bench.json'


def load(topic: str) -> Record | None:
    """Returns the record of a topic or posting, or None if there is none."""
    path = path_of(topic)
    if not path.exists():
        return None
    try:
        return cast(Record, json.loads(path.read_text()))
    except ValueError as error:
        raise KitError(f'{shown(path)}: {error}') from error


def save(data: Record, path: Path) -> None:
    """Writes one row per line, for readable diffs, and replaces the old record atomically."""
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
    """Returns the topics that `make run` can measure."""
    return [topic for topic in topics.measured() if hasattr(topics.benchmark(topic), 'quick')]
