# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts on the output of tests in a guest. The output is canned."""

import contextlib
import io
import unittest

from kit.model import Skip, Test
from kit.test import verdict
from tests.support import HAS_LINUX


class Failing(unittest.TestCase):
    def counts_of(self, said, console):
        results = verdict.Failing([Test(name='a', base=r'KASAN: .* in x')])
        for line in ('## begin 0', *said, '## end 0 1'):
            results.line(line)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return results.verdict_of(console), out.getvalue()

    def test_the_console_shows_the_bug(self):
        counts, said = self.counts_of(['ok 1 a'], 'up\n[1] BUG: KASAN: use-after-free in x\ndown')
        self.assertEqual((counts['passed'], counts['failed']), (1, 0))
        self.assertIn('a fails on the base: [1] BUG: KASAN: use-after-free in x\n', said)

    def test_the_program_shows_it(self):
        self.assertEqual(self.counts_of(['# KASAN: as if in x'], '')[0]['passed'], 1)

    def test_the_base_without_the_bug(self):
        counts, said = self.counts_of(['not ok 1 a'], 'BUG: KASAN: in y')
        self.assertEqual((counts['passed'], counts['failed']), (0, 1))
        self.assertIn('no output on the base matches base =', said)


@unittest.skipUnless(HAS_LINUX, 'no linux/ here')
class Judge(unittest.TestCase):
    def judge(self, text, code=0, **test):
        passed, skipped, failures = verdict.judge(Test(name='t', **test), text.splitlines(), code)
        return passed, skipped, [why for _, why, _ in failures]

    def test_results(self):
        head = 'TAP version 13\n1..2\n'
        self.assertEqual(self.judge(f'{head}ok 1 a\nok 2 b\n'), (2, 0, []))
        self.assertEqual(self.judge(f'{head}ok 1 a\nnot ok 2 b\n', 1), (1, 0, ['failure']))
        skipping = f'{head}ok 1 a\nok 2 b # SKIP no device\n'
        self.assertEqual(self.judge(skipping, skips=(Skip('b', 'x'),)), (1, 1, []))
        self.assertIn('skipped without a reason', self.judge(skipping)[2][0])

    def test_what_passes_for_nothing_fails(self):
        self.assertEqual(verdict.judge(Test(name='t'), None, None)[2][0][1], 'did not run')
        self.assertEqual(verdict.judge(Test(name='t'), [], None)[2][0][1], 'did not end')
        self.assertTrue(self.judge('')[2])
        self.assertTrue(self.judge('TAP version 13\n1..1\nok 1 a\n', 1)[2])
        self.assertTrue(self.judge('TAP version 13\n1..2\nok 1 a\n')[2])
        self.assertTrue(self.judge('TAP version 13\n1..0 # SKIP no device\n', 4)[2])

    def test_a_program_twice(self):
        results = verdict.Report([Test(name='same'), Test(name='same')])
        for number, word in enumerate(('ok', 'not ok')):
            for line in (
                f'## begin {number}',
                'TAP version 13',
                '1..1',
                f'{word} 1 a',
                '',
                f'## end {number} {number}',
            ):
                results.line(line)
        self.assertEqual(dict(results.verdict()), {'passed': 1, 'failed': 1})
