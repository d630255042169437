# SPDX-License-Identifier: GPL-2.0-only
"""Missing packages."""

import contextlib
import io
import unittest
from unittest import mock

from kit import errors
from kit.setup import deps

ROOT, USER = 0, 1000


class Deps(unittest.TestCase):
    def call(self, missing, installs=(), uid=ROOT):
        """(output, the packages of each installation). `missing` has the missing packages before
        and after the installations, `installs` the exit statuses of apt-get install."""
        said, installed, statuses = io.StringIO(), [], iter(installs)

        def install(packages, *_):
            installed.append(packages)
            return next(statuses)

        with (
            mock.patch.multiple(
                deps,
                archs_of=lambda *_: [],
                missing=mock.Mock(side_effect=missing),
                install=install,
                step=lambda what, *_, **__: installed.append(what),
                qemu_candidate=lambda _: True,
                not_installed=lambda packages: errors.fail(f'no {packages}'),
            ),
            mock.patch('os.geteuid', lambda: uid),
            mock.patch('shutil.which', lambda _: '/x'),
            contextlib.redirect_stderr(said),
        ):
            try:
                deps.install_missing('TESTS', 'all')
            except errors.KitError as error:
                said.write(str(error))
        return said.getvalue(), installed

    def test_nothing_is_missing(self):
        self.assertEqual(self.call([([], [])]), ('', []))

    def test_a_user_is_told_what_to_install(self):
        said, installed = self.call([(['gcc'], ['qemu'])], uid=USER)
        self.assertIn('as root: apt-get install gcc qemu (QEMU 8.2 or newer', said)
        self.assertEqual(installed, [])

    def test_old_lists_are_fetched_anew_once(self):
        whole = [(['gcc'], ['qemu']), ([], [])]
        self.assertEqual(self.call(whole, [0, 0])[1], [['gcc'], ['qemu']])
        self.assertEqual(
            self.call(whole, [100, 0, 0])[1], [['gcc'], 'apt-get update', ['gcc'], ['qemu']]
        )

    def test_what_cannot_be_installed_ends_the_verb(self):
        said, installed = self.call([(['gcc'], [])], [100, 100])
        self.assertEqual((len(installed), "no ['gcc']" in said), (3, True))
        self.assertIn(
            'still missing after the installation: gcc', self.call([(['gcc'], [])] * 2, [0])[0]
        )
