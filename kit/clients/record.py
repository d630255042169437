# SPDX-License-Identifier: GPL-2.0-only
"""clients/clients.json: the results of `make clients`, and the table of clients/README.md."""

import datetime
from collections.abc import Sequence

from kit.bench import measure, table
from kit.lock import Lock
from kit.paths import BUILD, TOP
from kit.soak.record import Row, load, markdown

PATH = TOP / 'clients' / 'clients.json'


def key_of(row: Row) -> tuple[str, ...]:
    return row['client'], row['iommu'], row['case'], row['metric'], row['unit']


def record(rows: Sequence[Row]) -> None:
    """Replaces recorded rows of these cases."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    with Lock(BUILD / 'record'):
        known = {key_of(row): row for row in load(PATH)}
        known |= {key_of(row): {**row, 'date': date} for row in rows}
        measure.save({'of': 'make clients', 'rows': list(known.values())}, PATH)


def number(value: float) -> str:
    """Returns the figure with three digits after the point, or with six if it is small."""
    return f'{value:,.3f}' if value >= 0.1 else f'{value:.6f}'


def tables() -> str:
    head = ['program', 'IOMMU', 'case', 'figure', 'base', 'patched', 'ratio', 'boots', 'min–max']
    lines = [
        [
            f'{row["client"]} {row["version"]}',
            row['iommu'],
            row['case'],
            f'{row["metric"]}, {row["unit"]}',
            *(number(row[tree]) for tree in measure.TREES),
            table.ratio(row['ratio']),
            row['runs'],
            f'{table.ratio(row["min"])}–{table.ratio(row["max"])}' if row['runs'] > 1 else '',
        ]
        for row in load(PATH)
    ]
    return markdown(head, lines)
