# SPDX-License-Identifier: GPL-2.0-only
"""What tests said in a guest: shown as it comes, then judged with the kernel's own KTAP parser."""
import re
import sys
import time
from collections import Counter
from pathlib import Path

from kit.common import LINUX

MARK = re.compile(r'## (begin|end) (\d+)(?: (\d+))?$')
RESULT = re.compile(r'(ok|not ok) \d+ (?:- )?(.*?)( # SKIP.*)?$')
SKIPPED = 4    # an exit status

# A program that speaks no KTAP: its exit status is the result.
PLAIN = r"""plain() {
	name=$1; shift
	echo "TAP version 13"; echo "1..1"
	{ "$@" 2>&1; echo "$?" > /tmp/status; } | tee /tmp/said | sed 's/^/# /'
	code=$(cat /tmp/status)
	# powerpc's harness ends with 0 then
	grep -q '^skip: ' /tmp/said && code=4
	case $code in
	0) echo "ok 1 $name";;
	4) echo "ok 1 $name # SKIP";;
	*) echo "not ok 1 $name"; false;;
	esac
}"""


def command_of(test):
    name = test['name']
    if 'kunit' in test:
        folder = f'/sys/kernel/debug/kunit/{name}'
        return (f'if [ -d {folder} ]; then echo 1 > {folder}/run && cat {folder}/results; '
                f'else echo "no KUnit suite {name}"; false; fi')
    plain = '' if test.get('tap', True) else f'plain {name} '
    file = f'/job/{test["file"] if "file" in test else Path(test["program"]).name}'
    if file.endswith('.ko'):
        file = f'insmod {file}'
    words = test.get('environment', ''), f'{plain}{file}', test.get('arguments', '')
    return ' '.join(filter(None, words))


def job_of(tests):
    """The shell script that runs the tests one after the other, each between two marks."""
    lines = ['#!/bin/sh', 'cd /tmp', PLAIN, '[ ! -e /job/keep_vm ] || /job/keep_vm']
    for number, test in enumerate(tests):
        # the end on a line of its own even after output that does not end in one
        lines += [f'echo "## begin {number}"', command_of(test),
                  f'code=$?; echo; echo "## end {number} $code"']
    return '\n'.join([*lines, 'exit 0', ''])


def closing(counts):
    return ', '.join(f'{counts[word]} {word}' for word in ('passed', 'failed', 'skipped'))


class Report:
    """Prints each result as it comes, then counts."""

    def __init__(self, tests):
        self.tests = tests
        self.output = [None] * len(tests)    # lines; None = did not start
        self.code = [None] * len(tests)
        self.current, self.since = None, 0

    def line(self, text):
        mark, now = MARK.match(text), time.monotonic()
        if mark and mark[1] == 'begin':
            self.current, self.since = int(mark[2]), now
            self.output[self.current] = []
        elif mark:
            self.code[int(mark[2])] = int(mark[3])
            self.current = None
        elif self.current is not None:
            self.output[self.current].append(text)
            if found := RESULT.match(text.strip()):
                word, name = 'skip' if found[3] else found[1], self.tests[self.current]['name']
                print(f'  {word:6} {now - self.since:6.1f} s  {name}: {found[2]}{found[3] or ""}',
                      flush=True)
                self.since = now

    def verdict(self):
        """Counter of passed, failed, skipped; says why of each failure."""
        counts = Counter()
        for test, lines, code in zip(self.tests, self.output, self.code):
            passed, skipped, failures = judge(test, lines, code)
            counts += Counter(passed=passed, skipped=skipped, failed=len(failures))
            for name, why, log in failures:
                print(f'FAILED {name}: {why}', *(f'    {text}' for text in log), sep='\n')
        return counts


class Failing(Report):
    """Of the base kernel, whose tests have to fail as topic.toml says (`base`): in what the test or
    the console said is what shows the bug."""

    def verdict_of(self, console):
        """Counter of passed and failed, with a line for each test."""
        counts = Counter()
        for test, lines in zip(self.tests, self.output):
            name, text = test['name'], '\n'.join([*(lines or []), console])
            found = re.search(test['base'], text)
            counts['passed' if found else 'failed'] += 1
            if found:
                line = text[text.rfind('\n', 0, found.start()) + 1:].partition('\n')[0]
                print(f'  ok     {name} fails on the base: {line.strip()}', flush=True)
            else:
                print(f'FAILED {name}: nothing on the base is like base = {test["base"]!r}',
                      *(f'    {line}' for line in (lines or [])[-10:]), sep='\n')
        return counts


def parse(lines):
    """The kernel's own parser; linux/ stays as it is."""
    sys.dont_write_bytecode = True
    folder = str(LINUX / 'tools/testing/kunit')
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from kunit_parser import TestStatus, parse_run_tests
    from kunit_printer import null_printer
    return parse_run_tests(lines, null_printer), TestStatus


def leaves(parsed):
    """(path, test) of all tests that have none below them."""
    todo = [(test.name, test) for test in parsed.subtests]
    while todo:
        path, test = todo.pop(0)
        if test.subtests:
            todo[:0] = [(f'{path}.{each.name}', each) for each in test.subtests]
        else:
            yield path, test


def judge(test, lines, code):
    """(passed, skipped, [(name, why it failed, log)]) of a test's output and exit status."""
    name = test['name']
    if lines is None:
        return 0, 0, [(name, 'did not run', [])]
    if code is None:
        return 0, 0, [(name, 'did not end', lines[-10:])]
    parsed, status = parse(lines)
    passed, skipped, failures = 0, 0, []
    for path, each in leaves(parsed):
        if each.status == status.SUCCESS:
            passed += 1
        elif each.status != status.SKIPPED:
            why = each.status.name.lower().replace('_', ' ')
            failures.append((f'{name}: {path}', why, each.log))
        elif any(re.search(skip['test'], path) for skip in test.get('skips', [])):
            skipped += 1
        else:
            why = f'skipped without a reason in a topic.toml: {each.skip_reason}'
            failures.append((f'{name}: {path}', why, each.log))
    if code == SKIPPED and not failures and not passed + skipped:
        failures.append((name, 'skipped', lines[-10:]))
    errors = parsed.counts.errors
    unexplained = code and not failures
    if errors or unexplained or not passed + skipped + len(failures):
        failures.append((name, f'exit status {code}, {errors} error(s) in its KTAP', lines[-10:]))
    return passed, skipped, failures
