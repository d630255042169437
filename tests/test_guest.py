# SPDX-License-Identifier: GPL-2.0-only
"""Guests that are followed and judged: shell scripts in QEMU's place."""

import shutil
import tempfile
import unittest
from pathlib import Path

from kit.model import Limits
from kit.vm import console, guest

RULES = [console.compiled('here', r'\bBUG: ')], []


class Watch(unittest.TestCase):
    # long ones, however busy the host is; a test shortens the one that it is about
    LIMITS = {'boot': 60, 'silence': 60, 'total': 60, 'shutdown': 60}

    def watch(self, script, **limits):
        folder = Path(tempfile.mkdtemp(prefix='watch-'))
        self.addCleanup(shutil.rmtree, folder)
        lines = []
        limits = Limits(**{**self.LIMITS, **limits})
        ended = guest.watch(['sh', '-c', script], folder, limits, RULES, on_line=lines.append)
        return ended, lines

    def check(self, script, status, says, **limits):
        ended, _ = self.watch(script, **limits)
        self.assertEqual(ended.status, status, ended.message)
        self.assertIn(says, ended.message)

    def test_good_and_failed(self):
        ended, lines = self.watch(
            'echo up > status; printf "a\\r\\nb\\nhalf" > results; '
            'echo debug_locks 0 >> status; echo exit 0 >> status'
        )
        self.assertEqual((ended.status, ended.lockdep, lines), (guest.OK, False, ['a', 'b']))
        self.check('echo up > status; echo exit 3 >> status', guest.FAILED, 'exit status 3')

    def test_splats_and_panics(self):
        done = 'echo up > status; echo exit 0 >> status'
        self.check(f'echo "BUG: here" > console; {done}', guest.SPLAT, '1 line(s)')
        self.check('echo up > status; echo "Kernel panic" > console', guest.LOST, 'panicked')

    def test_lost(self):
        self.check('echo no such device >&2; exit 1', guest.LOST, 'QEMU: no such device')
        self.check('echo up > status', guest.LOST, 'without an exit status')
        self.check('sleep 99', guest.LOST, 'did not reach its init', boot=1)
        self.check('echo up > status; sleep 99', guest.LOST, 'was silent', silence=1)
        self.check(
            'echo up > status; while sleep 0.1; do echo x >> results; done',
            guest.LOST,
            'did not finish its job',
            total=1,
        )
        self.check(
            'echo up > status; echo exit 0 >> status; sleep 99',
            guest.LOST,
            'did not power off',
            shutdown=1,
        )
