# SPDX-License-Identifier: GPL-2.0-only
"""Installs packages with a private apt configuration and a fake apt-get."""

import contextlib
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

from kit.errors import KitError
from kit.setup import apt
from tests.support import ARM64


class Apt(unittest.TestCase):
    MIRROR = 'mirror:/debian/'

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top, self.steps = Path(folder.name), []
        (self.top / 'debian-archive-keyring.gpg').touch()
        self.ends, self.installs, self.says, self.files = 0, 0, 'E: no such host', ()
        self.after_an_update = True
        self.enter(
            mock.patch.multiple(
                apt,
                BUILD=self.top / 'build',
                KEYRINGS=self.top,
                shown=str,
                suite=lambda: 'bookworm',
                result=self.result,
                step=self.step,
            )
        )
        self.enter(mock.patch('shutil.which', lambda _: '/x'))

    def enter(self, changed):
        stack = contextlib.ExitStack()
        stack.enter_context(changed)
        self.addCleanup(stack.close)

    def result(self, words):
        """A fake apt-get indextargets. Before the first update, its targets have no Origin."""
        asked_of_debian = 'Origin: Debian' in words
        return mock.Mock(stdout='' if asked_of_debian > self.after_an_update else self.uris())

    def uris(self):
        return f'other:/packages {self.MIRROR}' if not self.after_an_update else self.MIRROR

    def step(self, what, words, log=None, **more):
        self.steps.append((what, words[1], more.get('env')))
        if words[1] == 'update':
            log.write_text(self.says)
            return self.ends
        if words[1] == 'install':
            log.write_text(self.says)
            (more['env']['APT_CONFIG'].parent / 'cache/archives/a.deb').touch()
            return self.installs
        if words[1] == 'download':
            (more['cwd'] / 'a.deb').touch()
        if words[1] == '-x':
            for name in self.files:
                (words[3] / name).parent.mkdir(parents=True, exist_ok=True)
                (words[3] / name).write_text(name)
        return 0

    def test_the_mirror_is_the_one_of_the_system(self):
        self.assertEqual(apt.mirror(), self.MIRROR)
        self.after_an_update = False
        self.assertEqual(apt.mirror(), self.MIRROR)

    def test_a_configuration_of_our_own(self):
        env = apt.private('x', ['bookworm', 'bookworm-backports'], 'arm64')
        folder = self.top / 'build/apt/x'
        self.assertEqual(env, {'APT_CONFIG': folder / 'apt.conf'})
        keys = self.top / 'debian-archive-keyring.gpg'
        self.assertEqual(
            (folder / 'sources.list').read_text().splitlines(),
            [
                f'deb [signed-by={keys}] {self.MIRROR} {suite} main'
                for suite in ('bookworm', 'bookworm-backports')
            ],
        )
        configuration = (folder / 'apt.conf').read_text()
        self.assertIn('APT::Architecture "arm64";', configuration)
        # packages of the system do not count as installed, and its status file is not written
        self.assertIn(f'Dir::State::status "{folder}/status";', configuration)
        self.assertEqual((folder / 'status').read_text(), '')
        apt.private('y', ['bookworm'])
        self.assertNotIn('status', (self.top / 'build/apt/y/apt.conf').read_text())

    def test_why_there_is_no_package(self):
        self.ends = 100
        with self.assertRaisesRegex(KitError, 'no network to the Debian mirror for x .* or do so'):
            apt.private('x', ['bookworm'], instead='do so')
        self.says = 'E: write error - write (28: No space left on device)'
        with self.assertRaisesRegex(KitError, 'no space left on the disk'):
            apt.private('x', ['bookworm'])
        (self.top / 'debian-archive-keyring.gpg').unlink()
        with self.assertRaisesRegex(KitError, 'has no Debian mirror to download x from'):
            apt.private('x', ['bookworm'])
        with mock.patch('shutil.which', lambda _: None):
            with self.assertRaisesRegex(KitError, 'apt-get is needed to download x: do so'):
                apt.private('x', ['bookworm'], instead='do so')

    def test_a_file_of_a_package(self):
        machine = replace(ARM64, debian_suite='trixie')
        self.files = ['usr/bin/busybox']
        made = self.top / 'made' / 'busybox'
        apt.fetch_file('busybox-static', machine, ['bin/busybox', 'usr/bin/busybox'], made)
        self.assertEqual(made.read_text(), 'usr/bin/busybox')
        self.assertEqual([words for _, words, _ in self.steps], ['update', 'download', '-x'])
        folder = self.top / 'build/apt/busybox-static-arm64'
        self.assertIn(' trixie main', (folder / 'sources.list').read_text())
        # files of an earlier download are not used
        self.files = ['usr/share/doc']
        with self.assertRaisesRegex(KitError, r'busybox-static \(arm64\) has none of bin/busybox'):
            apt.fetch_file('busybox-static', machine, ['bin/busybox', 'usr/bin/busybox'], made)

    def test_packages_and_what_they_depend_on(self):
        for _ in range(2):  # packages of an earlier download are not unpacked
            root = apt.fetch_all('clients-x', ['x', 'y'], ARM64, 'trixie')
            (self.top / 'build/apt/clients-x/cache/archives/old.deb').touch()
        self.assertEqual(root, self.top / 'build/apt/clients-x/root')
        self.assertEqual(
            [what for what, *_ in self.steps[-2:]], ['download x y (trixie)', 'unpack 1 packages']
        )
        self.installs, self.says = 100, 'Reading...\nE: Unable to locate package y\n'
        with self.assertRaisesRegex(KitError, r'download y \(trixie\): E: Unable to locate'):
            apt.fetch_all('clients-x', ['y'], ARM64, 'trixie')
