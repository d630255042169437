# SPDX-License-Identifier: GPL-2.0-only
"""This repository's topics: each can be removed, together with the topics that need it."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import model, topics
from kit.bench import front, measure
from kit.build.selftest import BELOW
from kit.errors import KitError
from kit.source.patches import patch_files
from kit.typed import load
from tests.support import TOP

# All that the verbs read from topics without a kernel: boots, configurations, tables, letters.
ASK = """
from kit import topics
from kit.bench import measure, pages, table
from kit.setup import deps
from kit.test import plan
print([topics.after(topic) for topic in topics.order()], deps.archs_of('all'))
for arch in deps.archs_of('all'):
    print(plan.chosen(arch, full=True), topics.suites(arch))
    print(topics.config([arch, arch + '-debug']))
print(topics.compiled(), measure.quick_topics(), *map(topics.programs, topics.suites('x86_64')))
for data in filter(None, map(measure.load, topics.measured())):
    print(table.text(data), table.cover_faults(data))
pages.write()
print('stale pages:', *pages.stale())
"""

PATCH = """Subject: [PATCH] a: add it

diff --git a/lib/Kconfig b/lib/Kconfig
--- a/lib/Kconfig
+++ b/lib/Kconfig
@@ -1 +1,3 @@
 config OLD
+config A_KUNIT
+	tristate
diff --git a/lib/a_kunit.c b/lib/a_kunit.c
new file mode 100644
--- /dev/null
+++ b/lib/a_kunit.c
@@ -0,0 +1,3 @@
+static struct kunit_suite suite = {
+	.name = "a",
+};
"""


def added_in(patch):
    """Files, Kconfig symbols and KUnit suites that a patch's text adds."""
    found = set()
    for part in patch.split('\ndiff --git ')[1:]:
        path = re.match(r'a/\S+ b/(\S+)\n', part)[1]
        if '\n--- /dev/null\n' in part:
            found.add(path)
        if 'Kconfig' in path:
            found |= {
                f'CONFIG_{name}' for name in re.findall(r'^\+(?:menu)?config (\w+)$', part, re.M)
            }
        found |= {f'suite {name}' for name in re.findall(r'^\+\t\.name = "(\w+)"', part, re.M)}
    return found


def added_by(topic):
    """Files, Kconfig symbols and KUnit suites that the topic adds to the base."""
    return set().union(*(added_in(path.read_text(errors='replace')) for path in patch_files(topic)))


def asked_by(topic):
    """Files, Kconfig symbols and KUnit suites that its topic.toml names, as in added_by()."""
    said, names = model.topic(topic), set()
    tests = [test for boot in said.boot for test in boot.test]
    programs = [test.program for test in tests if test.program]
    programs += [name for boot in said.boot for name in boot.programs]
    programs += [f'{suite}/{name}' for suite, built in said.programs.items() for name in built]
    names |= {f'{BELOW}/{program}.c' for program in programs}
    names |= {f'suite {test.kunit}' for test in tests if test.kunit}
    texts = [*said.config.values(), *(one.symbols for one in said.compile)]
    names |= {f'CONFIG_{symbol}' for text in texts for symbol in topics.symbols(text)}
    return names.union(*(one.also for one in said.compile))


class Topics(unittest.TestCase):
    def copy(self):
        """A copy of the repository."""
        top = Path(tempfile.mkdtemp(prefix='topics-'))
        self.addCleanup(shutil.rmtree, top)
        for name in ('kit', 'guest', 'series', 'clients'):
            shutil.copytree(TOP / name, top / name, ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copy(TOP / 'README.md', top)
        return top

    def test_each_taken_away(self):
        """The remaining topics still define boots, compilations and tables, none of which names the
        removed topic."""
        top, order = self.copy(), topics.order()
        for topic in order:
            gone = {topic, *(each for each in order if topic in topics.after(each))}
            if gone == set(order):
                continue
            (top / 'series/order').write_text(
                ''.join(f'{each}\n' for each in order if each not in gone)
            )
            for each in gone:
                shutil.move(top / 'series' / each, top / f'away-{each}')
            done = subprocess.run(
                [sys.executable, '-B', '-c', ASK],
                cwd=top,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, f'without {topic}: {done.stderr}')
            for each in gone:
                self.assertNotIn(each, done.stdout)
                self.assertNotIn(f'(series/{each}/', (top / 'README.md').read_text())
                shutil.move(top / f'away-{each}', top / 'series' / each)
            self.assertEqual(done.stdout.splitlines()[-1], 'stale pages:')

    def test_nothing_asks_for_what_another_adds(self):
        added = {topic: added_by(topic) for topic in topics.order()}
        for topic in topics.order():
            stands_on = {topic, *topics.after(topic)}
            for other in set(topics.order()) - stands_on:
                self.assertEqual(
                    asked_by(topic) & added[other],
                    set(),
                    f'{topic} needs additions of {other}: add {other} to `after`',
                )

    def test_what_a_patch_adds(self):
        self.assertEqual(added_in(PATCH), {'lib/a_kunit.c', 'CONFIG_A_KUNIT', 'suite a'})

    def test_programs_name_no_topic(self):
        files = [
            TOP / 'Makefile',
            TOP / '.ci/run',
            *TOP.glob('kit/**/*.py'),
            *(path for path in TOP.glob('guest/**/*') if path.is_file()),
        ]
        # only strings and paths, as the name of a topic may also be an ordinary word
        named = {
            topic
            for path in files
            for topic in topics.order()
            if re.search(rf'["\'/]{re.escape(topic)}["\'/]', path.read_text())
        }
        self.assertEqual(named, set())


class Front(unittest.TestCase):
    """A topic's row on the front page, made from a record with two rows."""

    ROWS = [
        {
            'metric': 'map',
            'unit': 's',
            'better': 'lower',
            'base': 2.0,
            'patched': 1.0,
            'ratio': 2.0,
        },
        {
            'metric': 'unmap',
            'unit': 's',
            'better': 'lower',
            'base': 1.0,
            'patched': 4.0,
            'ratio': 0.25,
        },
    ]

    def line(self, **said):
        module = mock.Mock(describe=lambda row: [row['metric'], ''])
        settings = {'problem': 'slow', 'rows': [{'text': '{base} to {patched}', 'metric': 'map'}]}
        shown = load(model.Front, {**settings, **said}, 'x')
        with (
            mock.patch.multiple(topics, front=lambda topic: shown, benchmark=lambda topic: module),
            mock.patch.object(measure, 'load', lambda topic: {'rows': self.ROWS}),
            mock.patch.object(front, 'patch_files', lambda topic: ['a patch']),
        ):
            try:
                return front.line('mine')[1:4]
            except KitError as error:
                return str(error)

    def test_the_worst_row_is_the_record_s(self):
        worse = {'text': 'unmap, {patched} s', 'metric': 'unmap'}
        self.assertEqual(self.line(worst=worse), ['slow', '2 to 1', 'unmap, 4 s'])
        self.assertIn(
            'the largest regression is: unmap', self.line(worst={'text': 'x', 'metric': 'map'})
        )
        self.assertIn('worst is missing; the largest regression is: unmap', self.line())

    def test_a_row_that_is_not_there(self):
        self.assertIn(
            "0 recorded rows have {'metric': 'x'}, expected one",
            self.line(rows=[{'text': 'x', 'metric': 'x'}]),
        )
