# SPDX-License-Identifier: GPL-2.0-only
"""Prints the output of tests in a guest as it arrives. Then the kernel's KTAP parser judges it."""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.errors import KitError
from kit.model import Test
from kit.paths import LINUX

MARK = re.compile(r'## (begin|end) (\d+)(?: (\d+))?$')
RESULT = re.compile(r'(ok|not ok) \d+ (?:- )?(.*?)( # SKIP.*)?$')
EXIT_SKIPPED = 4
TIMED_OUT = 124, 143  # exit statuses of timeout; the second is busybox's
HEADER = re.compile(r'K?TAP version \d+$')

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'


@dataclass(frozen=True)
class Result:
    """One result of a program."""

    program: str
    name: str
    word: str  # PASSED, FAILED, SKIPPED
    why: str
    log: tuple[str, ...] = ()  # lines of its output


# A shell function that runs a program and prints the program's exit status as KTAP. The program has
# no other result.
PLAIN = r"""plain() {
	name=$1; shift
	echo "TAP version 13"; echo "1..1"
	{ "$@" 2>&1; echo "$?" > /tmp/status; } | tee /tmp/said | sed 's/^/# /'
	code=$(cat /tmp/status)
	# powerpc's harness exits with 0 after a skip
	grep -q '^skip: ' /tmp/said && code=4
	case $code in
	0) echo "ok 1 $name";;
	4) echo "ok 1 $name # SKIP";;
	*) echo "not ok 1 $name"; false;;
	esac
}"""


def command_of(test: Test) -> str:
    name = test.name
    if test.command:
        return test.command
    if test.kunit:
        folder = f'/sys/kernel/debug/kunit/{name}'
        return (
            f'if [ -d {folder} ]; then echo 1 > {folder}/run && cat {folder}/results; '
            f'else echo "no KUnit suite {name}"; false; fi'
        )
    plain = '' if test.tap else f'plain {name} '
    file = f'/job/{test.file or Path(test.program).name}'
    if file.endswith('.ko'):
        file = f'insmod {file}'
    words = test.environment, f'{plain}{file}', test.arguments
    return ' '.join(filter(None, words))


def job_of(tests: Sequence[Test], first: str = '[ ! -e /job/keep_vm ] || /job/keep_vm') -> str:
    """Returns the shell script that runs the tests one after the other, each between two marks.
    `first` is the first command of the script."""
    lines = ['#!/bin/sh', 'cd /tmp', PLAIN, first]
    for number, test in enumerate(tests):
        # start the mark on a new line, even if the output lacks a final newline
        lines += [
            f'echo "## begin {number}"',
            command_of(test),
            f'code=$?; echo; echo "## end {number} $code"',
        ]
    return '\n'.join([*lines, 'exit 0', ''])


Counts = Counter[str]  # of PASSED, FAILED, SKIPPED


def closing(counts: Counts) -> str:
    return ', '.join(f'{counts[word]} {word}' for word in (PASSED, FAILED, SKIPPED))


class Report:
    """Prints each result as it arrives, then counts them."""

    def __init__(self, tests: Sequence[Test], tree: Path = LINUX) -> None:
        """Prepares the report of these tests. `tree` is the tree with the KTAP parser."""
        self.tests, self.tree = tests, tree
        self.output: list[list[str] | None] = [None] * len(tests)  # lines; None = did not start
        self.code: list[int | None] = [None] * len(tests)
        self.current: list[str] | None = None
        self.name, self.since = '', 0.0

    def line(self, text: str) -> None:
        mark, now = MARK.match(text), time.monotonic()
        if mark and mark[1] == 'begin':
            number = int(mark[2])
            self.name, self.since = self.tests[number].name, now
            self.current = self.output[number] = []
        elif mark:
            self.code[int(mark[2])] = int(mark[3])
            self.current = None
        elif self.current is not None:
            self.current.append(text)
            if found := RESULT.match(text.strip()):
                word = 'skip' if found[3] else found[1]
                self.show(word, f'{found[2]}{found[3] or ""}', now - self.since)
                self.since = now

    def show(self, word: str, result: str, seconds: float) -> None:
        print(f'  {word:6} {seconds:6.1f} s  {self.name}: {result}', flush=True)

    def results(self) -> list[Result]:
        """Returns the results of all programs."""
        return [
            result
            for given in zip(self.tests, self.output, self.code)
            for result in results_of(*given, self.tree)
        ]

    def verdict(self) -> Counts:
        """Counts passed, failed and skipped results; prints the reason of each failure."""
        found = self.results()
        for result in found:
            if result.word == FAILED:
                print(
                    f'FAILED {title(result)}: {result.why}',
                    *(f'    {text}' for text in result.log),
                    sep='\n',
                )
        return Counter(result.word for result in found)


def title(result: Result) -> str:
    same = result.name == result.program
    return result.program if same else f'{result.program}: {result.name}'


class Failing(Report):
    """A report of tests on the base kernel. Each must fail: the regular expression
    `base` in topic.toml must match the test's output or the console's."""

    def verdict_of(self, console: str) -> Counts:
        """Counts passed and failed tests; prints a line for each."""
        counts: Counts = Counter()
        for test, lines in zip(self.tests, self.output):
            name, text = test.name, '\n'.join([*(lines or []), console])
            found = re.search(test.base, text)
            counts['passed' if found else 'failed'] += 1
            if found:
                line = text[text.rfind('\n', 0, found.start()) + 1 :].partition('\n')[0]
                print(f'  ok     {name} fails on the base: {line.strip()}', flush=True)
            else:
                print(
                    f'FAILED {name}: no output on the base matches base = {test.base!r}',
                    *(f'    {line}' for line in (lines or [])[-10:]),
                    sep='\n',
                )
        return counts


def parse(lines: Sequence[str], tree: Path = LINUX) -> tuple[Any, Any]:
    """Parses lines with the kernel's own parser, without changing the tree; returns (parsed test,
    TestStatus)."""
    sys.dont_write_bytecode = True
    folder = str(tree / 'tools/testing/kunit')
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        from kunit_parser import TestStatus, parse_run_tests
        from kunit_printer import null_printer
    except ImportError as error:
        raise KitError(f'the KTAP parser of this kernel is too old ({error}): make tree') from error
    return parse_run_tests(lines, null_printer), TestStatus


def leaves(parsed: Any) -> Iterator[tuple[str, Any]]:
    """Yields (path, test) for all tests without subtests."""
    todo = [(test.name, test) for test in parsed.subtests]
    while todo:
        path, test = todo.pop(0)
        if test.subtests:
            todo[:0] = [(f'{path}.{each.name}', each) for each in test.subtests]
        else:
            yield path, test


def judge(
    test: Test, lines: list[str] | None, code: int | None, tree: Path = LINUX
) -> tuple[int, int, list[tuple[str, str, tuple[str, ...]]]]:
    """Returns (passed, skipped, [(name, reason of the failure, log)]) for a test's output and exit
    status."""
    found = results_of(test, lines, code, tree)
    words = [result.word for result in found]
    return (
        words.count(PASSED),
        words.count(SKIPPED),
        [(title(result), result.why, result.log) for result in found if result.word == FAILED],
    )


def results_of(
    test: Test, lines: list[str] | None, code: int | None, tree: Path = LINUX
) -> list[Result]:
    """Returns the results for a test's output and exit status."""
    name = test.name

    def whole(word: str, why: str, log: Sequence[str] = ()) -> Result:
        return Result(name, name, word, why, tuple(log))

    if lines is None:
        return [whole(FAILED, 'did not run')]
    if code is None:
        return [whole(FAILED, 'did not end', lines[-10:])]
    if test.tap is None and not any(HEADER.match(line.strip()) for line in lines):
        return [of_status(whole, code, lines)]
    parsed, status = parse(lines, tree)
    found = [of_leaf(test, status, path, each) for path, each in leaves(parsed)]
    failed = [result for result in found if result.word == FAILED]
    if code == EXIT_SKIPPED and not found:
        return [
            of_status(whole, code, lines)
            if test.tap is None
            else whole(FAILED, 'skipped', lines[-10:])
        ]
    errors = parsed.counts.errors
    if errors or code and not failed or not found:
        found.append(
            whole(FAILED, f'exit status {code}, {errors} error(s) in its KTAP', lines[-10:])
        )
    return found


def of_status(whole: Callable[..., Result], code: int, lines: list[str]) -> Result:
    """Returns the result of a program that prints no KTAP, or whose KTAP has no results."""
    if code == EXIT_SKIPPED:
        return whole(SKIPPED, next((line for line in reversed(lines) if line.strip()), ''))
    if code:
        why = 'timed out' if code in TIMED_OUT else f'exit status {code}'
        return whole(FAILED, why, lines[-10:])
    return whole(PASSED, '')


def of_leaf(test: Test, status: Any, path: str, each: Any) -> Result:
    """Returns the result for one line of KTAP."""
    name, log, path = test.name, tuple(each.log), path or 'a result that is missing'
    if each.status == status.SUCCESS:
        return Result(name, path, PASSED, '', log)
    if each.status != status.SKIPPED:
        return Result(name, path, FAILED, each.status.name.lower().replace('_', ' '), log)
    reasons = [skip.reason for skip in test.skips if re.search(skip.test, path)]
    if reasons:
        return Result(name, path, SKIPPED, each.skip_reason or reasons[0], log)
    return Result(
        name, path, FAILED, f'skipped without a reason in a topic.toml: {each.skip_reason}', log
    )
