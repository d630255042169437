# SPDX-License-Identifier: GPL-2.0-only
"""The file that ./measure writes on a machine. This module shows its figures beside the figures of
a topic's record, and puts them into a cover letter.

The file is a JSON list. The first entry has the digests of the measured code. An entry with `facts`
describes the machine as it was when a kernel was measured. Each other entry is one figure:
`kernel`, `boot`, `topic`, `device` (a BDF, mock, or empty), `row` (fields that identify the row,
and unit), `value`.
"""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import topics
from kit.bench import measure, provenance, table
from kit.bench.bench import about
from kit.bench.measure import TREES, Record, Row
from kit.errors import KitError, fail
from kit.process import say

Key = tuple[tuple[str, Any], ...]
Pair = tuple[Row, Row, str]  # row of the record, the same row on the machine, device
# must be equal for both kernels
SAME = ('cpu', 'cpus', 'product', 'firmware', 'mitigations', 'kvm_mode')
FACTS = (*SAME, 'memory_kib', 'nodes', 'command_line', 'thp', 'governor', 'version')


@dataclass(frozen=True)
class Machine:
    path: Path
    series: dict[str, str]  # {topic: digest of the code that was measured}
    facts: dict[str, Row]  # {kernel: facts}
    figures: dict[tuple[str, Key, str], dict[str, list[float]]]  # by (topic, row, device), kernel
    units: dict[Key, str]


def key_of(row: Row) -> Key:
    """Returns a key that identifies a row. A row of a record and the same row of a machine have the
    same key, although their units may differ."""
    return tuple(sorted(item for item in about(row).items() if item[0] not in ('unit', 'better')))


def load(path: Path) -> Machine:
    try:
        head, *entries = json.loads(path.read_text())
        found = Machine(path, dict(head['series']), {}, {}, {})
        for entry in entries:
            kernel = TREES[TREES.index(entry['kernel'])]
            if 'facts' in entry:
                found.facts[kernel] = {name: entry['facts'][name] for name in FACTS}
                continue
            key = key_of(entry['row'])
            found.units[key] = entry['row']['unit']
            both = found.figures.setdefault((entry['topic'], key, entry['device']), {})
            both.setdefault(kernel, []).append(float(entry['value']))
    except OSError as error:
        raise KitError(f'{path}: {error.strerror}') from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KitError(f'{path}: not a file of ./measure') from error
    return found


def check(machine: Machine, topic: str) -> None:
    """Raises an error unless both kernels were measured, on the same machine."""
    path = machine.path
    if topic not in machine.series:
        raise KitError(f'{path}: figures of another series, without {topic}')
    have = {kernel for key, both in machine.figures.items() if key[0] == topic for kernel in both}
    if not have:
        raise KitError(f'{path}: no figures of {topic}')
    for kernel in TREES:
        if kernel not in have or kernel not in machine.facts:
            raise KitError(f'{path}: no figures of the {kernel} kernel: boot it, run ./measure')
    base, patched = (machine.facts[kernel] for kernel in TREES)
    for name in SAME:
        if base[name] != patched[name]:
            raise KitError(f'{path}: the kernels ran on different machines: {name} differs')


def pairs(data: Record, machine: Machine) -> list[Pair]:
    """Returns the rows that both the record and the machine have. The machine's largest regression
    comes first."""
    topic, found = topics.topic_of(data['topic']), []
    check(machine, topic)
    for row in data['rows']:
        key = key_of(row)
        devices = sorted(  # a BDF sorts before `mock`
            device
            for (of, known, device), both in machine.figures.items()
            if (of, known) == (topic, key) and set(both) == set(TREES)
        )
        if devices:
            both = machine.figures[topic, key, devices[0]]
            before, after = ([[value] for value in both[kernel]] for kernel in TREES)
            fields = {**about(row), 'unit': machine.units[key]}
            here = measure.row(before=before, after=after, **fields)
            here['runs'] = min(len(before), len(after))
            found.append((row, here, devices[0]))
    return sorted(found, key=lambda pair: table.better(pair[1]))


def described(data: Record, row: Row, unit: str) -> list[str]:
    """Returns the cells that identify the row. One of them may contain the row's unit, which is
    replaced by `unit`. If a cell is the unit alone, `ns` would not say what was measured."""
    cells: list[str] = topics.benchmark(data['topic']).describe(row)
    if unit in ('s', row['unit']):
        return cells
    return ['time' if cell == row['unit'] else cell.replace(row['unit'], unit) for cell in cells]


def figures(row: Row) -> list[str]:
    return [*(table.number(row[name], row['unit']) for name in TREES), table.ratio(row['ratio'])]


def origin(data: Record, machine: Machine, found: list[Pair]) -> str:
    """Returns a description of the machine and of the programs that ran on it."""
    facts, topic = machine.facts['patched'], topics.topic_of(data['topic'])
    devices = {device for *_, device in found}
    times = sorted({row['runs'] for _, row, _ in found})
    count = str(times[0]) if len(times) == 1 else f'{times[0]} to {times[-1]}'
    taken = 'one repetition' if times == [1] else f'medians of {count} repetitions'
    now = {name: provenance.code_of(name) for name in (*topics.after(topic), topic)}
    changed = [name for name, code in now.items() if machine.series.get(name) != code]
    return ''.join(
        (
            f'{facts["cpu"]}, {facts["cpus"]} CPUs, {facts["nodes"]} NUMA node(s), ',
            f'{facts["memory_kib"] / (1 << 20):.0f} GiB; {taken}. ',
            'The patched kernel has all series.',
            ' iommufd: its mock device, without an IOMMU.' if 'mock' in devices else '',
            f' Stale: it ran other code of {", ".join(changed)}.' if changed else '',
        )
    )


def text(data: Record, machine: Machine) -> str:
    """Returns a table, and below it the facts of the machine. The table has the rows that exist
    both in the record and in the machine's file."""
    found = pairs(data, machine)
    head = [*topics.benchmark(data['topic']).HEAD, 'base', 'patched', 'ratio']
    head += ['machine: base', 'patched', 'ratio', 'min–max', 'unit']
    lines = [
        [
            *described(data, row, row['unit']),
            *figures(row),
            *figures(here),
            f'{table.ratio(here["min"], "∞")}–{table.ratio(here["max"], "∞")}',
            here['unit'],
        ]
        for row, here, _ in found
    ]
    facts = [f'{name}: {machine.facts["patched"][name]}' for name in FACTS[2:]]
    note = f'Machine: {origin(data, machine, found)}'
    return '\n'.join([table.aligned(head, lines), '', table.filled(note), *facts])


def rows_of_letter(part: str, machine: Machine) -> tuple[Record, list[Pair]]:
    """Returns (record, those rows of the letter's table that the machine has)."""
    data = measure.load(part) or measure.load(topics.topic_of(part))
    if not data:
        raise KitError(f'MACHINE={machine.path}: {part} has no bench.json')
    cover = topics.benchmark(part).cover
    return data, [pair for pair in pairs(data, machine) if cover(pair[0])]


def in_letters(parts: Sequence[str], path: str) -> Sequence[str]:
    """Returns the postings of a topic whose letters get a table of the machine: all that have rows
    for it, or all postings if none has."""
    machine = load(Path(path))
    return [part for part in parts if rows_of_letter(part, machine)[1]] or parts


def paragraph(part: str, path: str) -> str:
    """Returns the paragraph and the table for a posting's cover letter. `path` is the file of the
    machine."""
    machine = load(Path(path))
    data, found = rows_of_letter(part, machine)
    if not found:
        raise KitError(f'{path}: no row of the table in the cover letter of {part}')
    head = [*topics.benchmark(part).HEAD, 'base', 'patched', 'ratio', '']
    lines = []
    for row, here, _ in found:
        # the record has the number and the model of the guest's CPUs, and the guest's mode of KVM
        facts = machine.facts['patched']
        own = {'cpus': facts['cpus'], 'cpu': 'machine'}
        if row.get('mode') == 'vhe':
            own['mode'] = facts['kvm_mode'] or 'unknown'
        row = {**row, **{name: value for name, value in own.items() if name in row}}
        cells, unit = described(data, row, here['unit']), here['unit']
        known = any(cell.endswith(f', {unit}') for cell in cells)
        lines.append([*cells, *figures(here), '' if known else unit])
    rows = textwrap.indent(table.aligned(head, lines), '    ')
    note = f'On a machine: {origin(data, machine, found)} ratio = how many times better:'
    return f'{table.filled(note)}\n\n{rows}'


def in_letter(part: str, letter: tuple[str, str] | None, path: str) -> tuple[str, str]:
    """Inserts the machine's table before the costs in the letter; returns the letter. `path` is the
    file of the machine."""
    if not letter:
        raise KitError(f'MACHINE={path}: {part} has no cover letter for the table')
    subject, text = letter
    if 'hardware' in text:
        say(f'mail: note: the letter of {part} mentions hardware: is that still right?')
    return subject, text.replace('\nCosts: ', f'\n{paragraph(part, path)}\n\nCosts: ', 1)


def show(topic: str, machine: str = '') -> None:
    """Prints the topic's recorded table. `machine` is the file of a machine, or empty. If it is
    given, the machine's figures are printed beside the recorded ones."""
    data = measure.load(topic) or fail(f'no record of topic {topic}: make bench TOPIC={topic}')
    print(text(data, load(Path(machine))) if machine else table.text(data))
