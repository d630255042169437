# SPDX-License-Identifier: GPL-2.0-only
"""The number of boots of `make run`."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.bench import run


class Run(unittest.TestCase):
    ROW = {'unit': 's', 'base': 1.0, 'patched': 0.5, 'ratio': 2.0}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.key, self.boots = Path(folder.name), 'one', 0

    def counted(self, _):
        self.counts += 1
        return [{'unit': 'instructions'}]

    def call(self, slowest, **given):
        """The number of boots of each kernel. `slowest` is the smallest of the ratios of all
        boots."""

        def quick(_, most):
            for self.boots in range(1, most + 1):
                yield [{**self.ROW, 'min': slowest, 'max': 2.5}], 'tcg'

        self.boots = self.counts = 0
        with (
            mock.patch.multiple(run, BUILD=self.build, key_of=lambda *_: self.key),
            mock.patch.multiple(
                run.measure,
                quick_topics=lambda: ['x'],
                record=lambda *_: {'topic': 'x', 'rows': []},
            ),
            mock.patch.object(
                run.topics, 'benchmark', lambda _: mock.Mock(quick=quick, counted=self.counted)
            ),
            mock.patch.object(run.table, 'text', lambda _: 'table'),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            run.main(**given)
        return self.boots

    def test_more_boots_when_they_do_not_agree(self):
        self.assertEqual(self.call(1.5), run.FEW)
        self.assertEqual(self.counts, 1)  # once is enough, as counts repeat exactly
        self.key = 'two'
        self.assertEqual(self.call(0.9), run.MANY)

    def test_what_the_figures_depend_on(self):
        stamps = {'base': 'b', 'patched': 'p'}
        trees = mock.Mock(base='base', patched='patched')
        bench = mock.Mock(trees=trees, selftest=lambda *_: self.build / 'program')
        module = mock.Mock(QUICK=('x86_64', 'plain', 'x/program'))
        files = 'program', 'x/measure.py', 'x/span/plugin.c', 'x/0001-a.patch'
        (self.build / 'x/span').mkdir(parents=True)
        for name in files:
            (self.build / name).write_text('one')

        def key():
            with (
                mock.patch.multiple(run, SERIES=self.build, source=lambda _: None),
                mock.patch.object(run.topics, 'benchmark', lambda _: module),
                mock.patch.object(run.kernel, 'stamp', lambda *words: stamps[words[-1]]),
            ):
                return run.key_of('x', bench)

        seen = [key()]
        for name in files[:-1]:
            (self.build / name).write_text('other')
            seen.append(key())
        stamps['base'] = 'c'
        seen.append(key())
        self.assertEqual(len(set(seen)), 5)
        (self.build / files[-1]).write_text('other')  # the stamps of the kernels cover this file
        self.assertEqual(key(), seen[-1])

    def test_a_table_is_shown_again_until_something_changes(self):
        self.assertEqual(self.call(1.5), run.FEW)
        self.assertEqual(self.call(1.5), 0)
        self.assertEqual(self.call(1.5, runs=1), 1)
        self.key = 'two'
        self.assertEqual(self.call(1.5), run.FEW)
