# SPDX-License-Identifier: GPL-2.0-only
"""Finds lines on a guest's console that make a run fail, and reads files while they grow."""

import datetime
import re
from collections.abc import Iterable
from pathlib import Path

from kit.errors import KitError
from kit.model import archs
from kit.paths import GUEST, shown

Rule = re.Pattern[str]
Rules = tuple[list[Rule], list[Rule]]  # (lines that fail a run, exceptions)


def read(path: Path) -> str:
    try:
        return path.read_text(errors='replace')
    except OSError:
        return ''


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Returns (number, line) for all lines of the file except comments. A missing file is an
    error."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise KitError(f'{shown(path)}: {error.strerror}') from error
    return [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith('#')
    ]


def compiled(where: str, text: str) -> Rule:
    try:
        return re.compile(text)
    except re.error as error:
        raise KitError(f'{where}: {error}') from error


def exception(where: str, line: str) -> tuple[str, Rule, str, datetime.date]:
    """Returns (architecture, expression, reason, last day) from a line of splats.allowed. `where`
    names the line in errors."""
    parts = [part.strip() for part in line.split(' | ')]
    if len(parts) != 5 or not all(parts):
        raise KitError(f'{where}: expected ARCH | REGEX | REASON | LINK | YYYY-MM-DD')
    if parts[0] not in archs():
        raise KitError(f'{where}: no architecture {parts[0]}')
    try:
        expiry = datetime.date.fromisoformat(parts[4])
    except ValueError:
        raise KitError(f'{where}: not a date: {parts[4]}') from None
    return parts[0], compiled(where, parts[1]), parts[2], expiry


def exceptions(folder: Path = GUEST) -> dict[str, tuple[str, Rule, str, datetime.date]]:
    """Returns {FILE:NUMBER: exception()} for each line of splats.allowed."""
    found = [
        (f'guest/splats.allowed:{number}', line)
        for number, line in numbered_lines(folder / 'splats.allowed')
    ]
    return {where: exception(where, line) for where, line in found}


def expired(folder: Path = GUEST, today: datetime.date | None = None) -> list[str]:
    """Returns the expired exceptions, one per line. An expired exception makes `make check` fail.
    Its console lines are no longer allowed: they make runs on its architecture fail again."""
    today = today or datetime.date.today()
    return [
        f'{where}: expired on {expiry} ({arch}): {reason}'
        for where, (arch, _, reason, expiry) in exceptions(folder).items()
        if expiry < today
    ]


def splat_rules(
    arch: str,
    expected: Iterable[str] = (),
    folder: Path = GUEST,
    today: datetime.date | None = None,
) -> Rules:
    """Returns two lists of regular expressions. A line that matches the first list fails the run,
    unless it also matches the second. The second list has the lines of splats.allowed for this
    architecture. It also has `expected`: expressions for lines that the boot's tests provoke."""
    bad = [
        compiled(f'guest/splats:{number}', line)
        for number, line in numbered_lines(folder / 'splats')
    ]
    if not bad:
        raise KitError('guest/splats has no pattern')
    today = today or datetime.date.today()
    allowed = [
        rule
        for its_arch, rule, _, expiry in exceptions(folder).values()
        if its_arch == arch and expiry >= today
    ]
    return bad, [*allowed, *(compiled('splats', text) for text in expected)]


def splats(text: str, rules: Rules) -> list[str]:
    bad, allowed = rules
    return [
        line.rstrip()
        for line in text.splitlines()
        if any(rule.search(line) for rule in bad) and not any(rule.search(line) for rule in allowed)
    ]


def tail(path: Path, lines: int = 15) -> str:
    return '\n'.join(f'  {line}' for line in read(path).splitlines()[-lines:])


class Follow:
    """Reads complete new lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.rest = path, 0, b''

    def lines(self) -> list[str]:
        try:
            with open(self.path, 'rb') as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b'\n')
        return [line.decode(errors='replace').rstrip('\r') for line in whole]


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
