# SPDX-License-Identifier: GPL-2.0-only
"""Seeded bugs: their files, and the conditions under which a test has detected one."""

import dataclasses
import math
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.build.trees import Tree
from kit.errors import KitError
from kit.model import Boot, Options, Test
from kit.mutants import lines, mutant, run, score, uml
from kit.mutants.making import Quiet
from kit.vm import guest
from tests.support import HAS_LINUX, X86_64

DIFF = """diff --git a/a.c b/a.c
--- a/a.c
+++ b/a.c
@@ -1,2 +1 @@
 one
-two
"""
HEAD = 'Breaks: the second\n  line\nTest: t\nBoot: x86_64 debug cpus=4\nFails: ^t: two\n'


class Reading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / 'drop-two.diff'

    def read(self, text):
        self.path.write_text(text)
        return mutant.read('x', self.path)

    def refused(self, text, why):
        with self.assertRaisesRegex(KitError, f'drop-two.diff: {why}'):
            self.read(text)

    def test_a_mistake(self):
        found = self.read(f'{HEAD}\n{DIFF}')
        self.assertEqual((found.name, found.breaks), ('drop-two', 'the second line'))
        self.assertEqual((found.arch, found.flavour), ('x86_64', 'debug'))
        self.assertEqual(found.machine, {'cpus': '4'})
        self.assertEqual(found.diff, DIFF)

    def test_one_that_nothing_can_notice(self):
        self.assertTrue(self.read(f'Breaks: x\nEquivalent: because\n\n{DIFF}').equivalent)

    def test_bad_ones(self):
        self.refused(f'Brakes: x\n\n{DIFF}', 'Brakes: no such key')
        self.refused(f'{HEAD[HEAD.index("Test") :]}\n{DIFF}', 'Breaks: is missing')
        self.refused(f'{HEAD}\nno diff\n', 'there is no diff')
        self.refused(f'{HEAD}Equivalent: y\n\n{DIFF}', 'expected either Test')
        self.refused(f'Breaks: x\n\n{DIFF}', 'expected either Test')
        self.refused(f'Breaks: x\nTest: t\nBoot: x86_64\n\n{DIFF}', 'Boot: x86_64:')
        self.refused(f'{HEAD.replace("^t", "(")}\n{DIFF}', 'Fails: ')

    def test_the_boot(self):
        def boot(**more):
            return Boot(machine=X86_64, flavour='debug', tests=(), **more)

        small = boot(options=Options(icount=True))
        large = boot(options=Options(cpus=4, iommu='amd'), full=True)
        found = self.read(f'{HEAD}\n{DIFF}')
        with mock.patch.object(mutant.plan, 'chosen', lambda *_, **__: [small, large]):
            self.assertIs(mutant.boot_of(found), large)
        with mock.patch.object(mutant.plan, 'chosen', lambda *_, **__: [small]):
            with self.assertRaisesRegex(KitError, 'no boot "x86_64 debug cpus=4" has the test t'):
                mutant.boot_of(found)

    def test_a_boot_with_a_word_of_its_command_lines(self):
        def chosen(words):
            found = self.read(f'{HEAD.replace("cpus=4", words)}\n{DIFF}')
            with mock.patch.object(mutant.plan, 'chosen', lambda *_, **__: boots):
                return boots.index(mutant.boot_of(found))

        boots = [
            Boot(machine=X86_64, flavour='debug', tests=(), options=options)
            for options in (
                Options(append='a.mode=nested'),
                Options(append='quiet a.mode=nvhe'),
                Options(append='a.mode=nvhe', qemu=('-cpu', 'old')),
            )
        ]
        self.assertEqual(chosen('append=a.mode=nested'), 0)
        self.assertEqual(chosen('append=a.mode=nvhe'), 1)
        self.assertEqual(chosen('append=a.mode=nvhe qemu=old'), 2)


@unittest.skipUnless(HAS_LINUX, 'no linux/ here')
class Judging(unittest.TestCase):
    def judged(self, lines, status=guest.OK, message='ok', fails=''):
        said = Quiet([Test(name='t')], '')
        code = any(line.startswith('not') for line in lines)
        for line in ('## begin 0', 'TAP version 13', f'1..{len(lines)}', *lines):
            said.line(line)
        said.line(f'## end 0 {int(code)}')
        each = mutant.Mutant('x', 'm', 'b', 't', 'x86_64 debug', fails, '', DIFF)
        boot = Boot(machine=X86_64, flavour='debug', tests=(), options=Options())
        with (
            mock.patch.object(run, 'boot_of', lambda _: boot),
            mock.patch.object(run.kernel, 'build', lambda *_: Path('image')),
            mock.patch.object(run, 'run_boot', lambda *_: (said, status, message)),
        ):
            return run.judged(each, *run.attempt(each, Tree('mutant', Path('none')), 'm'))

    def test_a_test_that_fails(self):
        self.assertEqual(self.judged(['ok 1 a', 'not ok 2 two']), run.CAUGHT)
        self.assertEqual(self.judged(['not ok 1 two'], fails='^t: two'), run.CAUGHT)
        self.assertEqual(self.judged(['not ok 1 a'], fails='^t: two'), run.OTHERWISE)

    def test_a_survivor(self):
        self.assertEqual(self.judged(['ok 1 a']), run.SURVIVED)
        self.assertEqual(self.judged(['ok 1 two'], fails='two'), run.SURVIVED)

    def test_the_guest_is_stopped_at_the_expected_failure(self):
        said = Quiet([Test(name='t')], '^t: two')
        for line in ('## begin 0', 'TAP version 13', 'not ok 1 one', 'ok 2 two', 'ok 3 two # SKIP'):
            self.assertFalse(said.heard(line))
        self.assertTrue(said.heard('not ok 4 two'))
        self.assertEqual(said.expected, 't: two')
        self.assertTrue(said.failed())

    def test_the_console(self):
        said = 'kernel splat\n  BUG: KASAN: in x'
        self.assertEqual(self.judged(['ok 1 a'], guest.SPLAT, said, 'KASAN'), run.CAUGHT)
        self.assertEqual(self.judged(['ok 1 a'], guest.SPLAT, said, 'WARNING'), run.OTHERWISE)
        self.assertEqual(self.judged(['ok 1 a'], guest.LOST, 'guest lost'), run.CAUGHT)


class UserMode(unittest.TestCase):
    """KUnit suites in user-mode Linux."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Tree('mutant', Path(folder.name))
        self.log = uml.folder(self.tree) / 'test.log'
        self.log.parent.mkdir(parents=True)

    def ran(self, log, code):
        self.log.write_text(log)
        done = mock.Mock(returncode=code)
        with mock.patch.object(uml, 'result', lambda *_, **__: done):
            return uml.run(self.tree, 'suite')

    def test_what_a_suite_says(self):
        good, bad = '    # Subtest: suite\nok 1 suite\n', '    # Subtest: suite\nnot ok 1 suite\n'
        self.assertEqual(self.ran(good, 0), (False, good))
        self.assertEqual(self.ran(bad, 1), (True, bad))
        self.assertEqual(self.ran('Kernel panic', 1), (True, 'Kernel panic'))
        self.assertTrue(self.ran(f'WARNING: possible circular locking\n{good}', 0)[0])

    def test_a_suite_that_does_not_run_is_an_error(self):
        with self.assertRaisesRegex(KitError, 'suite did not run'):
            self.ran('1..0\n', 0)

    def test_where_it_runs(self):
        each = mutant.Mutant('x', 'm', 'b', 'suite', uml.NAME, '', '', DIFF)
        boots = [('x', mock.Mock(test=(Test(kunit='suite'), Test(program='a/b'))))]
        with mock.patch.object(mutant.topics, 'boots', lambda: boots):
            self.assertIsNone(mutant.boot_of(each))
            with self.assertRaisesRegex(KitError, 'm.diff: no KUnit suite b'):
                mutant.boot_of(dataclasses.replace(each, test='b'))
        self.assertEqual([('um', [each])], run.by_arch([each]))

    def test_the_configuration(self):
        some = [mock.Mock(uml='A B=n'), mock.Mock(uml='A C=2')]
        with mock.patch.object(uml.topics, 'all_of_them', lambda: some):
            lines = uml.kunitconfig().splitlines()
        self.assertEqual(lines[-3:], ['CONFIG_A=y', 'CONFIG_B=n', 'CONFIG_C=2'])
        self.assertIn('CONFIG_KASAN=y', lines)


class Score(unittest.TestCase):
    def test_the_sentence(self):
        def made(name, equivalent=''):
            return mutant.Mutant('x', name, 'b', 't', 'x86_64 debug', '', equivalent, DIFF)

        mutants = [made('a'), made('b'), made('c'), made('d', 'same code')]
        rows = {
            'a': {'outcome': 'caught', 'code': 'new', 'boot': 'x86_64 debug', 'seconds': 5},
            'b': {'outcome': 'survived', 'code': 'old', 'boot': 'x86_64 debug', 'seconds': 4},
        }
        with (
            mock.patch.object(score.mutant, 'of', lambda _: mutants),
            mock.patch.object(score, 'load', lambda _: rows),
            mock.patch.object(score.provenance, 'code_of', lambda *_, **__: 'new'),
        ):
            self.assertEqual(
                score.markdown('x').replace('\n', ' '),
                'The tests detect 1 of 2 seeded bugs (`make mutants TOPIC=x`). '
                'Not detected: `b`. Not tried yet: `c`. Equivalent: `d`. '
                'Bugs that were last tried with older code: 1.',
            )
            found = [score.seconds_until_detected(each) for each in mutants[:3]]
            self.assertEqual(found, [5, math.inf, math.inf])


class Lines(unittest.TestCase):
    def altered(self, text, before='\tint a;'):
        return lines.altered(lines.Line('a.c', 3, text, before))

    def test_what_is_deleted(self):
        self.assertEqual(self.altered('\tcall(a, b);'), [('deleted', '')])
        self.assertEqual(self.altered('\t*a = b;'), [('deleted', '')])
        self.assertEqual(self.altered('\tcall(a,'), [])
        self.assertEqual(self.altered('\t     b);'), [])
        self.assertEqual(self.altered('\tb);', before='\tcall(a,'), [])
        self.assertEqual(self.altered('\treturn a;'), [])
        self.assertEqual(self.altered('\t * if (a) b;'), [])

    def test_what_is_altered(self):
        self.assertEqual(
            self.altered('\tif (a < b) {'),
            [('condition negated', '\tif (!(a < b)) {'), ('off by one', '\tif (a <= b) {')],
        )
        self.assertEqual(self.altered('\treturn -EINVAL;'), [('error dropped', '\treturn 0;')])

    def test_the_diff_leaves_the_numbers_of_lines(self):
        found = lines.diff(lines.Line('a.c', 3, '\tcall();', ''), '')
        self.assertEqual(found, '--- a/a.c\n+++ b/a.c\n@@ -3 +3 @@\n-\tcall();\n+\n')
