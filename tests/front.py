#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What a first command does: packages that are missing, and how often make run boots."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import errors
from kit.bench import run
from kit.setup import deps

ROOT, USER = 0, 1000


class Deps(unittest.TestCase):
    def call(self, missing, installs=(), uid=ROOT):
        """(what was said, the packages of each installation); missing: what is not there before and
        after, installs: the exit statuses of apt-get install."""
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


class Run(unittest.TestCase):
    ROW = {'unit': 's', 'base': 1.0, 'patched': 0.5, 'ratio': 2.0}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.key, self.boots = Path(folder.name), 'one', 0

    def call(self, slowest, **given):
        """How often both kernels were booted; slowest: the smallest ratio of the boots so far."""

        def quick(_, most):
            for self.boots in range(1, most + 1):
                yield [{**self.ROW, 'min': slowest, 'max': 2.5}], 'tcg'

        self.boots = 0
        with (
            mock.patch.multiple(run, BUILD=self.build, key_of=lambda *_: self.key),
            mock.patch.multiple(
                run.measure,
                quick_topics=lambda: ['x'],
                record=lambda *_: {'topic': 'x', 'rows': []},
            ),
            mock.patch.object(run.topics, 'benchmark', lambda _: mock.Mock(quick=quick)),
            mock.patch.object(run.table, 'text', lambda _: 'table'),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            run.main(**given)
        return self.boots

    def test_more_boots_when_they_do_not_agree(self):
        self.assertEqual(self.call(1.5), run.FEW)
        self.key = 'two'
        self.assertEqual(self.call(0.9), run.MANY)

    def test_a_table_is_shown_again_until_something_changes(self):
        self.assertEqual(self.call(1.5), run.FEW)
        self.assertEqual(self.call(1.5), 0)
        self.assertEqual(self.call(1.5, runs=1), 1)
        self.key = 'two'
        self.assertEqual(self.call(1.5), run.FEW)


if __name__ == '__main__':
    unittest.main()
