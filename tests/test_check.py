# SPDX-License-Identifier: GPL-2.0-only
"""The lanes of make check, and how they end."""

import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from kit.check import check
from kit.errors import TERMINATED, fail
from tests.support import TOP


class Checks(unittest.TestCase):
    def test_a_die_fails_the_check_and_a_signal_ends_all(self):
        def dies():
            fail('on purpose')

        def is_terminated():
            sys.exit(TERMINATED)

        self.assertEqual(check.outcome(dies)[0], 'failed')
        with self.assertRaises(SystemExit):
            check.outcome(is_terminated)

    def lanes(self, reading, compiling):
        """Runs `make check` with two checks, given as lines of Python: one reads, one compiles."""
        script = (
            'import os, signal, threading, time\n'
            'from kit import cli\nfrom kit.check import check\n'
            'from kit.errors import fail\nfrom kit.process import output\n'
            'event = threading.Event()\n'
            f'def reads():\n    """a"""\n    {reading}\n'
            f'def compiles():\n    """b"""\n    {compiling}\n'
            'cli.guarded(lambda: print(check.run([{"r": reads}, {"c": compiles}],'
            ' lambda: None)), "check")\n'
        )
        # the test may have been started with nohup
        return subprocess.run(
            [sys.executable, '-B', '-c', script],
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def test_lanes_run_side_by_side(self):
        done = self.lanes('assert event.wait(200)', 'event.set(); fail("on purpose")')
        self.assertEqual(done.stdout.splitlines()[-1], "{'c': 'failed', 'r': 'passed'}", done)

    def test_a_signal_ends_both_lanes(self):
        self.ends_both_lanes('SIGTERM')

    def test_a_closed_terminal_ends_both_lanes(self):
        self.ends_both_lanes('SIGHUP')

    def ends_both_lanes(self, name):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, 'pid')
            done = self.lanes(
                f'output(["sh", "-c", "echo $$ >{file}.new; mv {file}.new {file}; exec sleep 60"])',
                f'while not os.path.exists("{file}"): time.sleep(0.1)\n'
                f'    os.kill(os.getpid(), signal.{name}); time.sleep(20)',
            )
            self.assertEqual(done.returncode, TERMINATED, done)
            child = Path('/proc', file.read_text().strip(), 'cmdline')
        # the signal was sent, but on a busy machine the process ends a little later
        for _ in range(200):
            try:
                if not child.read_bytes():  # a zombie, which its parent has not reaped
                    return
            except OSError:
                return
            time.sleep(0.1)
        self.fail(f'{child} goes on')
