# SPDX-License-Identifier: GPL-2.0-only
"""Compares the table of a cover letter, which is written by hand, with the record."""

import re

from kit import topics
from kit.bench import measure
from kit.bench.measure import Row
from kit.mail import cover

TABLE = re.compile(r'^ .*\bbase +patched\n((?: .*\n)*)', re.M)
CELLS = re.compile(r' ([\d.,]+) +([\d.,]+)$')
# A letter may show a figure in thousands or in millions. A row "per 2M" may be shown per GiB.
SCALES = (1, 1e-3, 1e-6)
PER_2M, PER_GIB = 'per_2m', 512


def shows(cell: str, value: float | None, scale: float) -> bool:
    """Returns whether the cell is this value, rounded to the digits of the cell."""
    digits = len(cell.partition('.')[2])
    shown = float(cell.replace(',', ''))
    return value is not None and abs(shown - value * scale) <= 0.500001 * 10**-digits


def is_of(cells: tuple[str, ...], row: Row) -> bool:
    scales = (*SCALES, PER_GIB) if PER_2M in row['metric'] else SCALES
    return any(
        all(shows(cell, row[tree], scale) for cell, tree in zip(cells, measure.TREES))
        for scale in scales
    )


def faults(part: str) -> list[str]:
    """Returns a fault for each row of the letter's table whose figures no recorded row has. If the
    posting has no record, the topic's record is used."""
    data = measure.load(part) or measure.load(topics.topic_of(part))
    path = cover.path_of(part)
    if not data or not path.is_file():
        return []
    return [
        f'no recorded row has these figures: {line.strip()}'
        for table in TABLE.findall(path.read_text())
        for line in table.splitlines()
        if (cells := CELLS.search(line))
        and not any(is_of(cells.groups(), row) for row in data['rows'])
    ]
