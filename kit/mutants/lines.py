# SPDX-License-Identifier: GPL-2.0-only
"""Random bugs: deletes or alters randomly drawn lines of the series."""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kit.check.common import arch_of
from kit.source.git import git
from kit.topics import parts, parts_of

# a statement of exactly one line; the code may still compile after its deletion
STATEMENT = re.compile(r'\t+(?!return\b|break;|case\b|goto\b|\w+:)[\w*(>.-].*;$')
DELETED = 'deleted'
# (name of the bug, pattern, replacement)
RULES = (
    ('condition negated', r'\bif \((.+)\)( \{)?$', r'if (!(\1))\2'),
    ('off by one', r' <= ', ' < '),
    ('off by one', r' < ', ' <= '),
    ('off by one', r' >= ', ' > '),
    ('off by one', r' [-+] 1\b', ''),
    ('and for or', r' \|\| ', ' && '),
    ('or for and', r' && ', ' || '),
    ('once dropped', r'\bREAD_ONCE\(([^()]+)\)', r'\1'),
    ('acquire dropped', r'_acquire\(', '_relaxed('),
    ('error dropped', r'\breturn -E\w+;', 'return 0;'),
)


@dataclass(frozen=True)
class Line:
    path: str
    number: int
    text: str
    before: str  # the line above


def code(path: str) -> bool:
    """Returns whether the path belongs to a C file or header of the kernel. Tests do not count."""
    tests = ('test', 'selftest', 'kunit')
    others = ('tools/', 'samples/', 'scripts/', 'Documentation/')
    stem = Path(path).stem
    return path.endswith(('.c', '.h')) and not (
        path.startswith(others) or any(word in stem for word in tests)
    )


def lines_of(topic: str) -> list[Line]:
    """Returns the lines of code that the topic's patches add, and that are still there after the
    last patch of the series."""
    names = parts()
    first = names.index(parts_of(topic)[0])
    below = f'refs/heads/{names[first - 1]}' if first else 'base'
    last, tip = f'refs/heads/{parts_of(topic)[-1]}', f'refs/heads/{names[-1]}'
    own = set(git('rev-list', f'{below}..{last}').split())
    paths = git('diff', '--name-only', '--no-renames', '--diff-filter=d', below, last).splitlines()
    found = []
    for path in filter(code, paths):
        before = ''
        for number, line in enumerate(
            git('blame', '-l', '-s', f'base..{tip}', '--', path).splitlines(), 1
        ):
            commit, _, text = line.partition(' ')
            text = text.partition(') ')[2]
            if commit in own:
                found.append(Line(path, number, text, before))
            before = text
    return found


def whole(line: Line) -> bool:
    """Returns whether a statement begins on this line."""
    return not line.before.strip() or line.before.rstrip().endswith((';', '{', '}', '*/', ':'))


def altered(line: Line) -> list[tuple[str, str]]:
    """Returns [(name of the bug, the line with it)]. An empty line replaces a deleted one, so that
    line numbers in other code (WARN_ON) do not change."""
    found = [(what, re.sub(old, new, line.text, count=1)) for what, old, new in RULES]
    if line.text.lstrip().startswith(('*', '/*', '#')):
        found = []
    if STATEMENT.match(line.text) and whole(line):
        found.append((DELETED, ''))
    return [(what, text) for what, text in found if text != line.text]


def diff(line: Line, text: str) -> str:
    """Returns a diff that replaces the line with this text. The diff has no context, and is meant
    for git apply."""
    return (
        f'--- a/{line.path}\n+++ b/{line.path}\n@@ -{line.number} +{line.number} @@\n'
        f'-{line.text}\n+{text}\n'
    )


@dataclass(frozen=True)
class Drawn:
    topic: str
    line: Line
    what: str
    diff: str

    @property
    def name(self) -> str:
        return f'{self.line.path}:{self.line.number}: {self.what}'

    @property
    def arch(self) -> str:
        return arch_of(self.line.path)


def drawn(names: Iterable[str], seed: int, deleted: bool = False) -> list[Drawn]:
    """Returns all possible bugs of the topics, in a random order that depends on the seed. If
    `deleted` is set, returns only bugs that delete a line. Some bugs do not compile, and some
    change nothing."""
    found = [
        Drawn(topic, line, f'{what}: {line.text.strip()}', diff(line, text))
        for topic in names
        for line in lines_of(topic)
        for what, text in altered(line)
        if what == DELETED or not deleted
    ]
    random.Random(seed).shuffle(found)
    return found
