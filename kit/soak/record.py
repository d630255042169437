# SPDX-License-Identifier: GPL-2.0-only
"""soak/soak.json: the results of `make soak` and `make differ`, and the tables of
soak/README.md."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.bench import measure
from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, TOP, shown
from kit.process import say

PATH = TOP / 'soak' / 'soak.json'
COUNTS = (
    'minutes',
    'operations',
    'vms',
    'hotplugs',
    'kills',
    'injections',
    'splats',
    'leaks',
    'failed',
)


Row = dict[str, Any]


def load(path: Path | None = None) -> list[Row]:
    path = path or PATH
    try:
        return json.loads(path.read_text())['rows'] if path.exists() else []
    except ValueError as error:
        raise KitError(f'{shown(path)}: {error}') from error


def place(row: Row) -> tuple[str, str, str]:
    """Returns (architecture, flavour, IOMMU), which identifies a recorded row."""
    return row['arch'], row.get('flavour', ''), row.get('iommu', '')


def length(row: Row) -> int:
    return int(row['minutes'] if 'minutes' in row else row['calls_compared'])


def record(rows: Sequence[Row], path: Path | None = None) -> None:
    """Records the rows. A new row replaces the recorded row with the same place(), unless the
    recorded row is of a longer run."""
    path = path or PATH
    with Lock(BUILD / 'record'):
        known = {place(row): row for row in load(path)}
        for row in rows:
            old = known.get(place(row))
            if old and length(old) > length(row):
                say(f'{shown(path)}: keeps the longer run of {" ".join(filter(None, place(row)))}')
            else:
                known[place(row)] = row
        measure.save(
            {'of': 'make soak, make differ', 'rows': [known[key] for key in sorted(known)]}, path
        )


def markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    rule = ['---', *['---:'] * (len(head) - 2), '---']
    return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in [head, rule, *lines])


def cell(value: int | dict[str, int] | None) -> str:
    """Returns the text of a value, or '-' if the row was recorded before the column existed."""
    if value is None:
        return '-'
    return f'{sum(value.values()) if isinstance(value, dict) else value:,}'


def tables() -> str:
    """Returns two tables: the soaks, and the compared calls."""
    rows = load()
    soaks = [
        [
            f'{row["arch"]} {row["flavour"]}',
            *(cell(row.get(key)) for key in COUNTS),
            f'`{row["command"]}`',
        ]
        for row in rows
        if 'minutes' in row
    ]
    compared = [
        [
            f'{row["arch"]} {row["iommu"]}',
            f'{row["calls_compared"]:,}',
            row['differences'],
            f'`{row["command"]}`',
        ]
        for row in rows
        if 'calls_compared' in row
    ]
    return '\n\n'.join(
        [
            markdown(['kernel', *COUNTS, 'command'], soaks),
            markdown(['IOMMU', 'calls', 'differences', 'command'], compared),
        ]
    )
