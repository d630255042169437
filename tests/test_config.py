# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's configuration: the files that it is made from, and their order."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.build import config
from kit.errors import KitError
from tests.support import X86_64


class Fragments(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ('common', 'x86_64', 'plain', 'x86_64-plain', '+rt', 'x86_64+rt', '+gdb'):
            (self.folder / f'{name}.config').write_text(f'# a comment\nCONFIG_A="{name}"\n')
        for what in (
            mock.patch.object(config, 'CONFIGS', self.folder),
            mock.patch.object(config.topics, 'suites', lambda _: []),
            mock.patch.object(config.topics, 'config', lambda _: []),
        ):
            what.start()
            self.addCleanup(what.stop)

    def names(self, flavour):
        return [file.stem for file, _ in config.fragments(X86_64, flavour, self.folder)]

    def test_later_files_win(self):
        self.assertEqual(self.names('plain'), ['common', 'x86_64', 'plain', 'x86_64-plain'])
        # the variant of the architecture replaces the one for all architectures
        self.assertEqual(self.names('plain+rt+gdb')[-2:], ['x86_64+rt', '+gdb'])
        (self.folder / 'x86_64-plain.config').unlink()
        self.assertEqual(self.names('plain'), ['common', 'x86_64', 'plain'])

    def test_what_is_missing_or_unknown(self):
        for flavour, says in ('plain+x', r'\+x.config is missing'), ('other', 'no flavour other'):
            with self.assertRaisesRegex(KitError, says):
                self.names(flavour)

    def test_modules_of_a_suite_are_built_in(self):
        file = self.folder / 'tools/testing/selftests/mm/config'
        file.parent.mkdir(parents=True)
        file.write_text('CONFIG_TEST_HMM=m\nCONFIG_TEST_VMALLOC=m\n')
        wanted = dict(config.fragments(X86_64, 'plain@mm', self.folder))[file]
        self.assertEqual(wanted, {'TEST_HMM': 'y'})

    def test_a_line_that_is_no_symbol(self):
        (self.folder / 'plain.config').write_text('CONFIG_A=y\nA=y\n')
        with self.assertRaisesRegex(KitError, 'plain.config:2: not CONFIG_NAME=value: A=y'):
            self.names('plain')
