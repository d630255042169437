# SPDX-License-Identifier: GPL-2.0-only
"""Writes the tables of the pages from the records."""

import re
from pathlib import Path

from kit import topics
from kit.bench import front, measure, table
from kit.clients import record as clients
from kit.mutants import score
from kit.paths import SERIES, TOP, shown
from kit.soak import record


def filled(page: str) -> str:
    """Returns the page's text after filling in all tables between their marks."""

    def fill(found: re.Match[str]) -> str:
        known = topics.topic_of(found[2]) in topics.measured()
        data = measure.load(found[2]) if known else None
        text = table.markdown(data) if data else f'Not measured yet: `make bench TOPIC={found[2]}`'
        return f'{found[1]}\n{text}\n{found[3]}'

    page = re.sub(r'(<!-- bench (\S+) -->)\n.*?(<!-- end -->)', fill, page, flags=re.S)
    page = re.sub(
        r'(<!-- mutants (\S+) -->)\n.*?(<!-- end -->)',
        lambda found: f'{found[1]}\n{score.markdown(found[2])}\n{found[3]}',
        page,
        flags=re.S,
    )
    # these tables cover all topics
    for mark, text in (
        ('soak', record.tables()),
        ('clients', clients.tables()),
        ('front', front.markdown()),
    ):
        if f'<!-- {mark} -->' in page:
            begin, _, rest = page.partition(f'<!-- {mark} -->\n')
            page = (
                f'{begin}<!-- {mark} -->\n{text}\n<!-- end -->{rest.partition("<!-- end -->")[2]}'
            )
    return page


def pages() -> list[Path]:
    own = [TOP / folder / 'README.md' for folder in ('', 'soak', 'clients')]
    return [
        page
        for page in (*own, *(SERIES / topic / 'README.md' for topic in topics.order()))
        if page.exists()
    ]


def write(_: object = None) -> None:
    """make tables: rewrites the tables of all pages from the records."""
    for page in pages():
        page.write_text(filled(page.read_text()))


def stale() -> list[object]:
    """Returns the pages whose tables differ from the records."""
    return [shown(page) for page in pages() if filled(page.read_text()) != page.read_text()]
