# SPDX-License-Identifier: GPL-2.0-only
"""The table of the front page. It has a row for each topic and for each posting, and a row for the
programs of `make clients`. Figures, including the largest regression, come from bench.json and
clients.json. A posting's row has the subject of its cover letter, and the `state` of its
[[posting]] in topic.toml.

[front] of a topic.toml, and of clients.toml without `worst`:
    problem    the problem today
    rows       a list of {text, FIELD = value ...}. Exactly one row of bench.json must have all
               these values. In `text`, {base} and {patched} stand for the figures of that row
    worst      one {text, FIELD = value ...} for the row with the largest regression. It is an
               error if the values select a row with a smaller regression
    state      ready, RFC, or what the topic waits for. Each [[posting]] has its own `state`
"""

from collections.abc import Sequence

from kit import topics
from kit.bench import measure, table
from kit.bench.measure import Row
from kit.clients.settings import CLIENTS, settings
from kit.errors import KitError
from kit.mail import cover
from kit.model import Front, FrontRow
from kit.paths import SERIES, shown
from kit.soak import record
from kit.source.patches import patch_files

HEAD = ('series', 'problem today', 'base → patched', 'worst recorded row', 'state')


def where(topic: str) -> str:
    return f'{shown(SERIES / topic / "topic.toml")}: front'


def figures(row: Row) -> dict[str, str]:
    return {tree: in_words(row[tree]) for tree in measure.TREES}


def in_words(value: float) -> str:
    """Returns the value as text. Values below 1,000 have three significant digits. Values of one
    million or more are given in millions, also with three significant digits."""
    if abs(value) >= 1_000_000:
        return f'{value / 1e6:,.3g} million'
    return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'


def said(place: str, wanted: FrontRow, rows: Sequence[Row]) -> tuple[str, Row]:
    """Returns (text, row). The row is the only one whose fields match `wanted`. The text is
    `wanted.text` with the row's figures. `place` names the table in errors."""
    found = [row for row in rows if wanted.fields.items() <= row.items()]
    if len(found) != 1:
        raise KitError(f'{place}: {len(found)} recorded rows have {wanted.fields}, expected one')
    return wanted.text.format(**figures(found[0])), found[0]


def worst(topic: str, front: Front, rows: Sequence[Row]) -> str:
    """Returns the topic's text for the largest regression among the rows, or '-' if there is
    none."""
    row = min(rows, key=table.better)
    if table.better(row) >= 1:
        return '-'
    what = ', '.join(filter(None, topics.benchmark(topic).describe(row)))
    if not front.worst:
        raise KitError(f'{where(topic)}: worst is missing; the largest regression is: {what}')
    text, named = said(where(topic), front.worst, rows)
    if table.better(named) > table.better(row):
        raise KitError(f'{where(topic)}: worst: the largest regression is: {what}')
    return text


def line(topic: str) -> list[str]:
    """Returns the cells of the topic's row."""
    front, data = topics.front(topic), measure.load(topic)
    count = len(patch_files(topic))
    name = f'[{topic}](series/{topic}/README.md), {count} patches'
    if not data:
        return [name, front.problem, '-', '-', front.state]
    rows = data['rows']
    found = '; '.join(said(where(topic), wanted, rows)[0] for wanted in front.rows)
    return [name, front.problem, found, worst(topic, front, rows), front.state]


def posting(part: str) -> list[str]:
    """Returns the cells of the row of the posting `part`."""
    said, patches = topics.posting(part), patch_files(part)
    subject = cover.subject(part)
    count = f'{len(patches)} patches' if len(patches) > 1 else 'one patch'
    name = f'· [{part.partition("/")[2]}](series/{part}), {count}'
    return [name, subject, '', '', said.state if said else '']


def programs() -> list[str]:
    """Returns the cells of the row of unmodified programs."""
    front, rows = settings().front, record.load(CLIENTS / 'clients.json')
    found = '; '.join(said('clients.toml: front', wanted, rows)[0] for wanted in front.rows)
    # without a ratio, the patched kernel's figure is 0
    row = min((row for row in rows if row['ratio'] is not None), key=lambda row: row['ratio'])
    worst = '-'
    if row['ratio'] < 1:
        worst = '{client} {case} ({iommu}), {metric}: {base:.4g} → {patched:.4g} {unit}'
        worst = worst.format(**row)
    return ['[unmodified programs](clients/README.md)', front.problem, found, worst, front.state]


def markdown() -> str:
    lines = [HEAD, ['---'] * len(HEAD)]
    for topic in topics.order():
        lines.append(line(topic))
        lines += [posting(part) for part in topics.parts_of(topic) if '/' in part]
    lines.append(programs())
    return '\n'.join('| ' + ' | '.join(cells) + ' |' for cells in lines)
