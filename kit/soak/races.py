# SPDX-License-Identifier: GPL-2.0-only
"""Selects KCSAN's reports of data races that concern the series. The base has many races, so a
report counts only if one of its two accesses is in a function that the series changes.

Reports contain function names from the kernel's symbol table. If the compiler inlined a changed
function, this function has no symbol, and its callers count instead. Files that were not built are
ignored: common names such as probe() would match functions of other drivers.

The series may also allow a race in functions that it does not change. The report of such a race
does not count. The function below() selects such a report if the stacks of both accesses contain
changed functions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kit.build.trees import PATCHED, source
from kit.errors import fail
from kit.model import Machine
from kit.source.git import git, try_git

SOURCES = '*.c', '*.h', ':!tools', ':!Documentation', ':!*test*', ':!*kunit*'
BEFORE = re.compile(r'[;}]\s*$|^#|\*/\s*$|^\s*$')  # a line that can precede a function
# DOMAIN_NS(name)(...) and MAKE_LEVELS(name, ...) define symbols like x86_64_name and name0
MADE = re.compile(r'\b[A-Z]\w*\((\w+)\)\s*\(|^[A-Z]\w*_MAKE_\w+\((\w+), ')
TITLE = re.compile(r'BUG: KCSAN: data-race in (.*)')
SIDE = re.compile(r' to 0x\w+ of \d+ bytes by ')
FRAME = re.compile(r'^(?:\[[^]]*\])* *(\w+)[\w.]*\+0x')
LAST = 'Reported by Kernel Concurrency Sanitizer'


Function = tuple[str, bool]  # (name, does a macro define it?)


def functions(text: str) -> Iterator[tuple[str, bool, int, int, list[str]]]:
    """Yields (name, whether a macro defines it, first line, last line, lines) for each function in
    the text of a file."""
    lines, start = text.splitlines(), 0
    while start < len(lines):
        first = last = start
        if lines[start].rstrip() == '{':
            while first and not BEFORE.search(lines[first - 1]):
                first -= 1
            while last + 1 < len(lines) and not lines[last].startswith('}'):
                last += 1
        head = ' '.join(lines[first : max(start, first + 1)])
        if found := MADE.search(head):
            yield found[1] or found[2], True, first + 1, last + 1, lines[first : last + 1]
        elif first < last and (found := re.search(r'(\w+)\s*\(', head)):
            yield found[1], False, first + 1, last + 1, lines[first : last + 1]
        start = last + 1


def changed_lines(diff: str) -> set[int]:
    """Returns the line numbers of all added lines in a diff without context. If a hunk only deletes
    lines, returns the number of the line before them instead."""
    found: set[int] = set()
    for first, count in re.findall(r'^@@ -\S+ \+(\d+)(?:,(\d+))? @@', diff, re.M):
        found.update(range(int(first), int(first) + max(1, int(count or 1))))
    return found


def symbols(machine: Machine, flavour: str) -> set[str]:
    """Returns the functions in the built kernel's symbol table, without the compiler's suffixes."""
    table = (PATCHED.out(machine.arch, flavour) / 'System.map').read_text()
    return {name.split('.')[0] for name in re.findall(r' [tTwW] (\S+)$', table, re.M)}


def compiled(machine: Machine, flavour: str) -> set[str]:
    """Returns the files that the kernel was built from, according to kbuild's .cmd files."""
    src = source(PATCHED)
    found: set[str] = set()
    name = re.compile(rf'(?:{re.escape(str(src))}|\.\./\.\./linux)/(\S+\.[ch])\b')
    for noted in PATCHED.out(machine.arch, flavour).rglob('.*.o.cmd'):
        found.update(name.findall(noted.read_text()))
    return found


def users(src: Path, files: set[str], names: set[str]) -> set[Function]:
    """Searches these files, and returns each function whose code contains one of the names."""
    asked = [word for name in sorted(names) for word in ('-e', name)]
    named = try_git('grep', '-lwF', *asked, '--', *SOURCES, cwd=src).stdout.split()
    word = re.compile(rf'\b({"|".join(sorted(names))})\b')
    return {
        (name, made)
        for file in files.intersection(named)
        for name, made, _, _, lines in functions((src / file).read_text())
        if word.search('\n'.join(lines))
    }


def changed_functions(machine: Machine, flavour: str) -> list[str]:
    """Returns the symbols of new and modified functions, in the series and in uncommitted changes.
    If a function is inlined, returns the symbols of its callers."""
    src, known, files = source(PATCHED), symbols(machine, flavour), compiled(machine, flavour)
    found: set[Function] = set()
    new: set[Function] = set()
    for file in files.intersection(
        git('diff', '--name-only', 'base', '--', *SOURCES, cwd=src).split()
    ):
        lines = changed_lines(git('diff', '-U0', 'base', '--', file, cwd=src))
        new |= {
            (name, made)
            for name, made, first, last, _ in functions((src / file).read_text())
            if lines & set(range(first, last + 1))
        }
    named: set[str] = set()
    while new:
        found |= new
        inlined: set[str] = set()
        for name, made in new:
            mine = (
                {each for each in known if re.fullmatch(rf'(\w+_)?{name}\d*', each)}
                if made
                else {name} & known
            )
            named |= mine
            inlined |= set() if mine else {name}
        new = users(src, files, inlined) - found if inlined else set()
    return sorted(named) or fail(f'the series changes nothing of {machine.arch} {flavour}')


def of_others(names: Iterable[str]) -> str:
    """Returns a regular expression for the reports that do not count. `names` are the changed
    functions."""
    return rf'BUG: KCSAN: data-race in (?!.*\b({"|".join(names)})\b)'


def reports(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields (title, the functions in the stack of each access) for each report on a console."""
    title: str | None = None
    sides: list[list[str]] = []
    for line in text.splitlines():
        if found := TITLE.search(line):
            title, sides = found[1].strip(), []
        elif title and SIDE.search(line):
            sides.append([])
        elif title and LAST in line:
            yield title, sides
            title = None
        elif sides and (found := FRAME.match(line)):
            sides[-1].append(found[1])


def below(text: str, names: Sequence[str]) -> Counter[str]:
    """Returns {title: number of reports}. These reports do not count, although the stacks of both
    accesses contain changed functions (`names`)."""
    wanted, rule = set(names), re.compile(of_others(names))
    return Counter(
        title
        for title, sides in reports(text)
        if rule.search(f'BUG: KCSAN: data-race in {title}')
        and len(sides) == 2
        and all(wanted & set(side) for side in sides)
    )
