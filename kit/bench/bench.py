# SPDX-License-Identifier: GPL-2.0-only
"""make bench: measures a topic or a posting. The base kernel has the patches that the topic or
posting is based on. The patched kernel also has the patches of the topic or posting itself, and no
others. Writes bench.json into the folder of the topic or posting, and updates the picture and the
tables."""

from collections.abc import Sequence
from typing import Any

from kit import topics
from kit.bench import measure, pages, plot, provenance, table
from kit.bench.measure import Bench, Record, Row
from kit.build import alone
from kit.errors import KitError, fail
from kit.lock import Lock
from kit.paths import BUILD

# These fields of a row are results. All other fields identify the row.
FIGURES = {'base', 'patched', 'ratio', 'runs', 'min', 'max', 'command'}


def about(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in FIGURES}


def new_record(topic: str, command: str, rows: Sequence[Row], accelerator: str) -> Record:
    below = [name for name in provenance.below(topic) if name != topic]
    return measure.record(topic, command, rows, accelerator, below)


def with_part(topic: str, part: str, bench: Bench, given: dict[str, Any], command: str) -> Record:
    """Measures one part of the benchmark. Returns the record, in which the new rows replace the
    part's old rows."""
    known = getattr(topics.benchmark(topic), 'PARTS', {})
    if part not in known:
        raise KitError(f'PART={part}: {topic} has {" ".join(known) or "no parts"}')
    rows, accelerator = known[part](bench, **given)
    data = measure.load(topic) or new_record(topic, command, [], accelerator)
    anew = [about(row) for row in rows]
    data['rows'] = [
        row for row in data['rows'] if row.get('command') != command and about(row) not in anew
    ]
    data['rows'] += [{**row, 'command': command} for row in rows]
    used = {row.get('command') for row in data['rows']}
    parts = {**data.get('parts', {}), command: provenance.measured(topic)}
    data['parts'] = {name: said for name, said in parts.items() if name in used}
    return data


def main(topic: str = '', part: str = '', full: bool = False, **given: Any) -> None:
    """Measures a topic or a posting, and records the figures. `part` is a key of PARTS in the
    topic's measure.py; without it, all parts are measured. `given` has the numbers of runs and
    rounds that the user set."""
    topic = topic or next(iter(topics.measured()), '') or fail('no topic has a measure.py')
    benchmark = topics.benchmark(topic)
    topics.posting(topic)  # raises an error for an unknown posting
    # all topics use the same two folders for their kernels
    with Lock(BUILD / 'bench'):
        journal = measure.Journal(BUILD / 'bench' / f'{topic.replace("/", "-")}.jsonl')
        bench = Bench(alone.trees(topic), journal)
        said = {'part': part, **given, 'full': int(full)}
        words = [f'{name.upper()}={value}' for name, value in said.items() if value]
        command = ' '.join(['make bench', f'TOPIC={topic}', *words])
        if part:
            data = with_part(topic, part, bench, given, command)
        else:
            data = new_record(topic, command, *benchmark.measure(bench, **given))
        measure.save(data, measure.path_of(topic))
        journal.end()
        pages.write()
        print(table.text(data))
        plot.draw(topic)
