# SPDX-License-Identifier: GPL-2.0-only
"""A guest's file system: a reproducible archive that cpio can read."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from kit.vm import initrd


class Archive(unittest.TestCase):
    MEMBERS = [
        ('job', 0o40755),
        ('job/run', 0o100755, b'#!/bin/sh\n'),
        ('sh', 0o120777, b'job/run'),
    ]

    def test_the_order_of_members_does_not_matter(self):
        one = initrd.archive(self.MEMBERS)
        self.assertEqual(one, initrd.archive(reversed(self.MEMBERS)))
        self.assertEqual(one[:6], b'070701')
        self.assertIn(b'TRAILER!!!', one)

    @unittest.skipUnless(shutil.which('cpio'), 'no cpio here')
    def test_cpio_reads_it(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ['cpio', '-idm', '--quiet'],
                input=initrd.archive(self.MEMBERS),
                cwd=folder,
                check=True,
            )
            self.assertEqual(Path(folder, 'job/run').read_bytes(), b'#!/bin/sh\n')
            self.assertEqual(Path(folder, 'job/run').stat().st_mode & 0o777, 0o755)
            self.assertEqual(Path(folder, 'sh').readlink(), Path('job/run'))

    def test_a_file_is_written_when_it_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, 'a/initrd')
            initrd.write(path, b'one')
            written = path.stat().st_mtime_ns
            initrd.write(path, b'one')
            self.assertEqual(path.stat().st_mtime_ns, written)
            initrd.write(path, b'two')
            self.assertEqual(path.read_bytes(), b'two')

    def test_a_program_that_needs_an_interpreter(self):
        shell = Path(sys.executable).resolve()
        self.assertFalse(initrd.static(shell))
