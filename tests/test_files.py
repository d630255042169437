# SPDX-License-Identifier: GPL-2.0-only
"""Checks for forbidden contents in the repository's own files."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.check import files


class Contents(unittest.TestCase):
    LICENCE = '# SPDX-License-Identifier: GPL-2.0-only\n'

    def faults(self, name, text):
        with tempfile.TemporaryDirectory() as top, mock.patch.object(files, 'TOP', Path(top)):
            path = Path(top) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return files.faults_of(Path(name))

    def test_a_program_has_its_licence(self):
        self.assertEqual(self.faults('kit/a.py', self.LICENCE + 'x = 1\n'), [])
        self.assertIn('no SPDX', self.faults('kit/a.py', 'x = 1\n')[0])
        for name in 'README.md', 'series/order', 'series/x/bench.json', 'kit/__init__.py':
            self.assertEqual(self.faults(name, '' if name.endswith('.py') else 'x\n'), [])

    def test_paths_of_one_machine(self):
        for line in 'see /' + 'work/x', '"/' + 'home/me"', 'cd=/' + 'root/x':
            self.assertEqual(self.faults('README.md', f'\n{line}\n')[0][:12], 'README.md:2:', line)
        self.assertEqual(self.faults('README.md', 'a framework/x, /dev/kvm, ~/linux\n'), [])

    def test_hosts(self):
        # concatenated, because the check also reads this file
        for host in 'deb.' + 'debian.org', 'http' + '://example':
            self.assertIn('a host', self.faults('kit/a.py', f'{self.LICENCE}{host}\n')[0])
        # pages may have links, and cargo writes one for each crate
        self.assertEqual(self.faults('clients/x/Cargo.lock', f'{self.LICENCE}http' + '://x\n'), [])
        self.assertEqual(self.faults('README.md', 'http' + '://example\n'), [])
        self.assertIn('a host', self.faults('README.md', 'ftp.' + 'de.debian.org\n')[0])

    def test_columns(self):
        self.assertEqual(self.faults('README.md', f'{"x" * 100}\n|{"x" * 200}\n'), [])
        self.assertEqual(self.faults('README.md', 'x' * 101), ['README.md:1: 101 columns'])
        record = f'<!-- bench x -->\n|a|\n{"x" * 200}\n<!-- end -->\n'
        self.assertEqual(self.faults('README.md', record), [])
        self.assertEqual(self.faults('README.md', record + 'x' * 101), ['README.md:5: 101 columns'])
