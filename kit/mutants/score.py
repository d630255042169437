# SPDX-License-Identifier: GPL-2.0-only
"""series/TOPIC/mutants.json: the outcome of each mutant, and a summary for the topic's page."""

import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.bench import measure, provenance
from kit.errors import KitError
from kit.lock import Lock
from kit.mutants import mutant
from kit.paths import BUILD, SERIES, shown

Row = dict[str, Any]


def path_of(topic: str) -> Path:
    return SERIES / topic / 'mutants.json'


def load(topic: str) -> Mapping[str, Row]:
    """Returns {mutant: its row} from the topic's record."""
    path = path_of(topic)
    try:
        rows = json.loads(path.read_text())['rows'] if path.exists() else []
    except ValueError as error:
        raise KitError(f'{shown(path)}: {error}') from error
    return {row['name']: row for row in rows}


def seconds_until_detected(each: mutant.Mutant) -> float:
    """Returns how long it took to build this mutant and to detect it, according to the record. The
    result is infinite if the mutant was not detected."""
    row = load(each.topic).get(each.name, {})
    return float(row['seconds']) if row.get('outcome') == 'caught' else math.inf


def record(topic: str, row: Row) -> None:
    """Replaces the mutant's row, and drops rows of mutants that no longer exist."""
    with Lock(BUILD / 'record'):
        names = [each.name for each in mutant.of(topic)]
        code = provenance.code_of(topic, unmeasured=True)
        rows = {**load(topic), row['name']: {**row, 'code': code}}
        kept = [rows[name] for name in names if name in rows]
        measure.save({'topic': topic, 'rows': kept}, path_of(topic))


def listed(words: str, names: list[str]) -> list[str]:
    return [f'{words}: {", ".join(f"`{name}`" for name in names)}.'] if names else []


def markdown(topic: str) -> str:
    """Returns the summary of the outcomes of the topic's mutants, for the topic's page."""
    rows, code = load(topic), provenance.code_of(topic, unmeasured=True)
    mutants = mutant.of(topic)
    real = [each.name for each in mutants if not each.equivalent]
    tried = [name for name in real if name in rows]
    caught = [name for name in tried if rows[name]['outcome'] == 'caught']
    now = {each.name: (code, each.boot) for each in mutants}
    old = [name for name in tried if (rows[name]['code'], rows[name]['boot']) != now[name]]
    text = ' '.join(
        [
            f'The tests detect {len(caught)} of {len(tried)} seeded bugs '
            f'(`make mutants TOPIC={topic}`).',
            *listed('Not detected', [name for name in tried if name not in caught]),
            *listed('Not tried yet', [name for name in real if name not in rows]),
            *listed('Equivalent', [each.name for each in mutants if each.equivalent]),
            *([f'Bugs that were last tried with older code: {len(old)}.'] if old else []),
        ]
    )
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)
