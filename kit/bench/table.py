# SPDX-License-Identifier: GPL-2.0-only
"""Tables of records: text for terminals and cover letters, Markdown for pages."""

import math
import re
import textwrap

from kit import topics
from kit.bench import provenance
from kit.bench.measure import Record, Row

COVER_ROWS, COVER_COLUMNS = 16, 75  # the limits of a table in a mail
TOP_ROWS = 10  # of a page; its other rows are folded


def better(row: Row) -> float:
    """Returns the key by which rows are sorted: the ratio of a regression, or 1 for any other row.
    Regressions come first. The other rows stay in the order of the record."""
    base, patched = row.get('base'), row.get('patched')
    if row['ratio'] is None or base is None:
        return 1
    worse = patched > base if row['better'] == 'lower' else patched < base
    return row['ratio'] if worse else 1


def number(value: float | str | None, unit: str) -> str:
    if value is None or isinstance(value, str):
        return value or ''
    if unit == 's':
        return f'{value:.4f}'
    if abs(value) >= 10_000_000:
        return f'{value / 1e6:,.1f}M'
    return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.4g}'


def ratio(value: float | None, infinite: str = '-') -> str:
    if value is None:
        return infinite
    return f'{value:,.0f}' if value >= 100 else f'{value:.1f}' if value >= 10 else f'{value:.3f}'


def cells(data: Record, cover: bool = False) -> tuple[list[str], list[list[str]]]:
    """Returns (column titles, [cells of each row]). The rows are all rows of the record, or only
    those of the cover letter if `cover` is set."""
    topic = topics.benchmark(data['topic'])
    rows = sorted(data['rows'], key=better)
    head = [*topic.HEAD, 'base', 'patched', 'ratio']
    if cover:
        rows = [row for row in rows if topic.cover(row)]
    else:
        head.append('min–max')
    lines = []
    for row in rows:
        line = [
            *topic.describe(row),
            number(row['base'], row['unit']),
            number(row['patched'], row['unit']),
            ratio(row['ratio']),
        ]
        if not cover:
            several = row.get('runs', 1) > 1 and row['min'] is not None
            # a ratio of None is infinite, so the range has no upper end
            most = row['max'] if row['ratio'] is not None else None
            line.append(f'{ratio(row["min"])}–{ratio(most, "∞")}' if several else '')
        lines.append(line)
    return head, lines


def is_text(column: int, lines: list[list[str]]) -> bool:
    """Returns whether the column contains text. Text is left-aligned, and numbers are
    right-aligned."""
    found = [line[column] for line in lines if line[column] not in ('', '-')]
    return not all(re.match(r'[\d.]', cell) for cell in found)


def disagree(row: Row) -> bool:
    """Returns True if the row is in seconds and its boots disagree on which kernel is faster."""
    several = row['unit'] == 's' and row.get('runs', 1) > 1 and row['min'] is not None
    return several and row['min'] <= 1 and (row['max'] is None or row['max'] >= 1)


def aligned(head: list[str], lines: list[list[str]]) -> str:
    """Returns the text of a table with aligned columns."""
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    left = [is_text(column, lines) for column in range(len(head))]
    return '\n'.join(
        '  '.join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left)
        ).rstrip()
        for line in [head, *lines]
    )


def filled(note: str) -> str:
    return textwrap.fill(note, COVER_COLUMNS, break_on_hyphens=False)


def text(data: Record, cover: bool = False) -> str:
    head, lines = cells(data, cover)
    rows = sorted(data['rows'], key=better)
    note = topics.benchmark(data['topic']).note(data).replace('`', '')
    if not cover and any(map(disagree, rows)):
        head = [*head, '']
        lines = [[*line, '?' if disagree(row) else ''] for line, row in zip(lines, rows)]
        note += (
            ' ?: the range of the ratio includes 1, so boots disagree on which kernel is faster.'
        )
    return f'{aligned(head, lines)}\n\n{filled(note)}'


def outside(row: Row) -> bool:
    """Returns whether the row's ratio is outside of the range from its min to its max."""
    least, ratio, most = (
        math.inf if row[key] is None else row[key] for key in ('min', 'ratio', 'max')
    )
    return row['ratio'] is not None and not least <= ratio <= most


def cover_faults(data: Record) -> list[str]:
    """Returns the reasons why the cover letter's table does not fit into a mail."""
    lines = text(data, cover=True).split('\n\n')[0].splitlines()
    wide = [line for line in lines if len(line) > COVER_COLUMNS]
    faults = [f'{len(line)} columns: {line}' for line in wide]
    if len(lines) - 1 > COVER_ROWS:
        faults.append(f'{len(lines) - 1} rows, at most {COVER_ROWS} are allowed')
    shown_rows = [row for row in data['rows'] if topics.benchmark(data['topic']).cover(row)]
    worst = min(data['rows'], key=better)
    if better(worst) < min(map(better, shown_rows), default=1):
        faults.append(f'the largest regression is missing: {worst["metric"]}')
    return faults


def top_rows(data: Record) -> list[Row]:
    """Returns the rows at the top of a page: those of the cover letter, then the regressions."""
    rows, topic = sorted(data['rows'], key=better), topics.benchmark(data['topic'])
    letter = [row for row in rows if topic.cover(row)]
    others = [row for row in rows if better(row) < 1 and row not in letter]
    return sorted([*letter, *others][:TOP_ROWS], key=better)


def grid(data: Record, rows: list[Row]) -> str:
    """Returns these rows of the record as a Markdown table."""
    head, lines = cells({**data, 'rows': rows})
    left = [is_text(column, lines) for column in range(len(head))]
    rule = ['---' if is_left else '---:' for is_left in left]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in [head, rule, *lines])


def markdown(data: Record) -> str:
    """Returns the page's table. Its top rows are shown; all rows are folded."""
    rows, top = data['rows'], top_rows(data)
    said = filter(None, (topics.benchmark(data['topic']).note(data), provenance.mark(data)))
    folded = [
        f'<details>\n<summary>All {len(rows)} rows, regressions first</summary>',
        grid(data, rows),
        '</details>',
    ]
    tables = [grid(data, rows)] if len(rows) <= TOP_ROWS else [grid(data, top), *folded]
    return '\n\n'.join([*tables, '. '.join(said)])
