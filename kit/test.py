#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/test [PATTERN]: boots the guests of guest/tests.toml and runs their selftests and KUnit suites.

PATTERN (or TEST=) selects tests by a part of their name, ARCH= and FLAVOUR= select guests. FULL=1 adds the boots
that take long, a boot's `topic` has to be in series/order. Closes with `N passed, N failed, N skipped`. Exit status: 0, 1 a test failed, 2 a guest was lost, 3 a kernel splat.
"""
import argparse
import dataclasses
import os
import re
import sys
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import guest
import kernel
from common import LINUX, TOP, die, say, shown
from series import topics

sys.dont_write_bytecode = True    # linux/ stays as it is
sys.path.insert(0, str(LINUX / 'tools/testing/kunit'))

MARK = re.compile(r'## (begin|end) (\S+)(?: (\d+))?$')
RESULT = re.compile(r'(ok|not ok) \d+ (?:- )?(.*?)( # SKIP.*)?$')


# A program that speaks no KTAP: its exit status is the result, 4 is a skip.
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


def check_keys(table, known):
    for key in table.keys() - known:
        die(f'guest/tests.toml: {key}: no such key (known: {" ".join(sorted(known))})')


def read_tests(arch, flavour, pattern):
    """The boots with those of their tests that were asked for."""
    with open(TOP / 'guest' / 'tests.toml', 'rb') as file:
        try:
            boots = tomllib.load(file)['boot']
        except (tomllib.TOMLDecodeError, KeyError) as error:
            die(f'guest/tests.toml: {error}')
    known = {field.name for field in dataclasses.fields(guest.Options)} - {'limits'} | {'arch', 'flavour', 'full', 'topic', 'test'}
    for boot in boots:
        check_keys(boot, known)
        for test in boot['test']:
            check_keys(test, {'program', 'kunit', 'arguments', 'environment', 'name', 'tap', 'timeout', 'skips'})
            test.setdefault('name', test.get('kunit') or Path(test['program']).name)
        boot['test'] = [test for test in boot['test'] if re.search(pattern, test['name'])]
    full = os.environ.get('FULL', '') not in ('', '0')
    boots = [boot for boot in boots if boot['test'] and arch in ('', boot['arch']) and flavour in ('', boot['flavour'])
             and (full or not boot.get('full')) and boot.get('topic') in (None, *topics())]
    if not boots:
        die('no test in guest/tests.toml is meant by that')
    return boots


def job_of(tests):
    """The shell script that runs the tests one after the other, each between two marks."""
    lines = ['#!/bin/sh', 'cd /tmp', PLAIN]
    for test in tests:
        name = test['name']
        lines.append(f'echo "## begin {name}"')
        if 'kunit' in test:
            folder = f'/sys/kernel/debug/kunit/{name}'
            lines.append(f'if [ -d {folder} ]; then echo 1 > {folder}/run && cat {folder}/results; else echo "no KUnit suite {name}"; false; fi')
        else:
            plain = '' if test.get('tap', True) else f'plain {name} '
            lines.append(f'{test.get("environment", "")} {plain}/job/{Path(test["program"]).name} {test.get("arguments", "")}'.strip())
        # on a line of its own even after output that does not end in one
        lines.append(f'code=$?; echo; echo "## end {name} $code"')
    return '\n'.join([*lines, 'exit 0', ''])


class Report:
    """Prints each result as it comes, then counts with the kernel's own KTAP parser."""

    def __init__(self, tests):
        self.tests = {test['name']: test for test in tests}
        self.output = {name: None for name in self.tests}    # lines; None = did not start
        self.code = {}
        self.current, self.since, self.begun = None, 0, 0

    def line(self, text):
        mark = MARK.match(text)
        now = time.monotonic()
        if mark and mark[1] == 'begin':
            self.current, self.begun, self.since = mark[2], now, now
            self.output[mark[2]] = []
        elif mark:
            self.code[mark[2]] = int(mark[3])
            self.current = None
        elif self.current:
            self.output[self.current].append(text)
            found = RESULT.match(text.strip())
            if found:
                word = 'skip' if found[3] else found[1]
                print(f'  {word:6} {now - self.since:6.1f} s  {self.current}: {found[2]}{found[3] or ""}', flush=True)
                self.since = now

    def verdict(self):
        """Counter of passed, failed, skipped; says why of each failure."""
        counts = Counter()
        for name, lines in self.output.items():
            counts += self.judge(name, lines)
        return counts

    def judge(self, name, lines):
        from kunit_parser import TestStatus, parse_run_tests
        from kunit_printer import null_printer
        if lines is None:
            return self.fail(name, 'did not run', [])
        if name not in self.code:
            return self.fail(name, 'did not end', lines[-10:])
        parsed = parse_run_tests(lines, null_printer)
        counts, skips = Counter(), self.tests[name].get('skips', [])
        todo = [(test, test.name) for test in parsed.subtests]
        while todo:
            test, path = todo.pop(0)
            if test.subtests:
                todo[:0] = [(each, f'{path}.{each.name}') for each in test.subtests]
            elif test.status == TestStatus.SUCCESS:
                counts['passed'] += 1
            elif test.status == TestStatus.SKIPPED and any(re.search(skip['test'], path) for skip in skips):
                counts['skipped'] += 1
            else:
                what = f'skipped without a reason in guest/tests.toml: {test.skip_reason}' if test.status == TestStatus.SKIPPED \
                    else test.status.name.lower().replace('_', ' ')
                counts += self.fail(f'{name}: {path}', what, test.log)
        if self.code[name] == 4 and not counts['failed'] and counts['passed'] + counts['skipped'] == 0:
            return self.fail(name, 'skipped', lines[-10:])
        if parsed.counts.errors or self.code[name] and not counts['failed'] or not counts:
            counts += self.fail(name, f'exit status {self.code[name]}, {parsed.counts.errors} error(s) in its KTAP', lines[-10:])
        return counts

    @staticmethod
    def fail(name, why, log):
        print(f'FAILED {name}: {why}')
        for text in log:
            print(f'    {text}')
        return Counter(failed=1)


def prepare(boot):
    """Builds what the boot needs: (image, the tests' programs)."""
    image = kernel.build(boot['arch'], boot['flavour'], 'patched')
    programs = sorted({test['program'] for test in boot['test'] if 'program' in test})
    suites = sorted({kernel.suite_of('patched', program)[0] for program in programs})
    folders = kernel.selftests(boot['arch'], 'patched', suites, programs)
    files = []
    for name in programs:
        suite, program = kernel.suite_of('patched', name)
        files.append(folders[suite] / program)
        if not files[-1].exists():
            die(f'{shown(files[-1])} was not built: is {name} in its Makefile?')
    return image, files


def run_boot(boot, image, files):
    arch, flavour = boot['arch'], boot['flavour']
    options = guest.Options(**{key: value for key, value in boot.items() if key not in ('arch', 'flavour', 'full', 'topic', 'test')})
    options.limits.silence = max(test.get('timeout', 360) for test in boot['test'])
    report = Report(boot['test'])
    say(f'{arch} {flavour}: {len(boot["test"])} test program(s)')
    ended = guest.run_guest(arch, image, job_of(boot['test']), files, options, name=f'test-{arch}-{flavour}', on_line=report.line)
    counts = report.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {arch} {flavour}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    boot_seconds = f'{ended.boot_seconds:.1f}' if ended.boot_seconds else '-'
    print(f'{arch} {flavour} ({ended.accelerator}): {counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped, '
          f'boot {boot_seconds} s, {ended.seconds:.0f} s in all; {shown(ended.folder)}', flush=True)
    return counts, ended.status


def side_by_side(boots):
    """Lists of boots: with icount a guest is one thread of the host, so those run beside each other."""
    parts = []
    for boot in boots:
        if parts and boot.get('icount') and parts[-1][0].get('icount') and len(parts[-1]) < os.cpu_count():
            parts[-1].append(boot)
        else:
            parts.append([boot])
    return parts


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('pattern', nargs='?', default=os.environ.get('TEST', ''))
    arguments.add_argument('--arch', default=os.environ.get('ARCH', ''))
    arguments.add_argument('--flavour', default=os.environ.get('FLAVOUR', ''))
    given = arguments.parse_args()
    groups = side_by_side(read_tests(given.arch, given.flavour, given.pattern))
    total, worst, prepared = Counter(), 0, []
    with ThreadPoolExecutor() as pool:
        for boots, following in zip(groups, [*groups[1:], []]):
            running = [pool.submit(run_boot, boot, *ready) for boot, ready in zip(boots, prepared or map(prepare, boots))]
            # one thread leaves CPUs to build on what comes next
            prepared = [prepare(boot) for boot in following] if boots[0].get('icount') and len(boots) < os.cpu_count() else []
            for counts, status in (guest_run.result() for guest_run in running):
                total += counts
                worst = {0: worst, guest.FAILED: max(worst, 1)}.get(status, status if worst != guest.LOST else worst)
    print(f'{total["passed"]} passed, {total["failed"]} failed, {total["skipped"]} skipped')
    sys.exit(worst or (1 if total['failed'] else 0))


main()
