# SPDX-License-Identifier: GPL-2.0-only
"""make run: measures the base and the patched kernel. It shows a table as soon as each kernel has
booted once.

Each kernel boots three times. If the boots then disagree on which kernel is faster, each kernel
boots five times. RUNS= sets another number. Times depend on the load of the host. A row on which
the boots disagree is marked. Instruction counts are repeatable. If nothing has changed since the
last `make run`, its table is shown again. RUNS=1 measures again, with one boot of each kernel.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from kit import model, topics
from kit.bench import measure, table
from kit.bench.measure import Bench, Record, Row
from kit.build import kernel
from kit.build.trees import OURS, Trees, source
from kit.errors import KitError, fail
from kit.paths import BUILD, SERIES, shown
from kit.process import say

FEW, MANY = 3, 5  # boots of each kernel


def quick_topic(topic: str) -> str:
    known = measure.quick_topics() or fail('no topic has a quick benchmark')
    topic = topic or known[0]
    if topic not in known:
        raise KitError(f'make run measures {" ".join(known)}; for others: make bench TOPIC={topic}')
    return topic


def key_of(topic: str, bench: Bench) -> str:
    """Returns a digest of all inputs of the figures: both kernels, the program and the
    benchmark."""
    module = topics.benchmark(topic)
    arch, flavour, program = module.QUICK
    # Check out the base first. Its build begins with copies of the patched kernel's objects, and
    # make rebuilds objects that are older than their sources.
    source(bench.trees.base)
    for tree in bench.trees.patched, bench.trees.base:
        bench.build(arch, flavour, tree)
    inputs = [
        kernel.stamp(model.machine(arch), flavour, tree)
        for tree in (bench.trees.base, bench.trees.patched)
    ]
    programs = sorted(
        path for path in (SERIES / topic).rglob('*') if path.suffix in ('.py', '.c', '.h')
    )
    files = bench.selftest(arch, program), *programs, Path(__file__), Path(measure.__file__)
    inputs += [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256(repr(inputs).encode()).hexdigest()


def settled(rows: Sequence[Row]) -> bool:
    """Returns whether all boots agree on which kernel is faster. Rows of at most 50 ms are ignored,
    as one timer tick changes them noticeably."""
    timed = [row for row in rows if row['unit'] == 's' and row['base'] > 0.05]
    return all((row['min'] > 1) == (row['max'] > 1) for row in timed)


def main(topic: str = '', runs: int = 0, trees: Trees = OURS) -> None:
    topic, wanted, bench = quick_topic(topic), runs, Bench(trees)
    key, kept = key_of(topic, bench), BUILD / 'run' / f'{topic}.json'
    kept.parent.mkdir(parents=True, exist_ok=True)
    if kept.exists() and not wanted:
        data = json.loads(kept.read_text())
        if data.pop('key', '') == key:
            print(table.text(data))
            say(f'nothing changed since this was measured ({shown(kept)}); RUNS=1 measures again')
            return
    module = topics.benchmark(topic)
    counted: list[Row] | None = None
    whole: Record = {}
    for done, (rows, accelerator) in enumerate(module.quick(bench, wanted or MANY), 1):
        if counted is None:
            seconds = measure.record(topic, 'make run', rows, accelerator)
            print(f'\nafter the first boot of each kernel:\n{table.text(seconds)}\n', flush=True)
            counted = list(module.counted(bench)) if hasattr(module, 'counted') else []
        whole = measure.record(topic, 'make run', [*counted, *rows], accelerator)
        if done >= (wanted or MANY) or not wanted and done >= FEW and settled(rows):
            break
        print(f'\nafter {done} boot(s) of each kernel:\n{table.text(whole)}\n', flush=True)
    print(table.text(whole))
    measure.save({**whole, 'key': key}, kept)
