# SPDX-License-Identifier: GPL-2.0-only
"""Reproducers: programs and modules."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.build import reproducer
from kit.errors import KitError
from kit.test import plan, verdict
from tests.support import boot


class Reproducers(unittest.TestCase):
    def test_programs_and_modules(self):
        with (
            tempfile.TemporaryDirectory() as top,
            mock.patch.object(reproducer, 'SERIES', Path(top)),
        ):
            folder = Path(top) / 'x/reproduce'
            (folder / 'b').mkdir(parents=True)
            for name in ('a.c', 'b/b.c'):
                (folder / name).touch()
            asked = [{'reproducer': 'a', 'arguments': '$BDF'}, {'reproducer': 'b'}]
            found = plan.tests_of('x', boot(asked))
            self.assertEqual(
                [verdict.command_of(test) for test in found],
                ['plain a /job/a $BDF', 'plain b insmod /job/b.ko'],
            )
            with self.assertRaises(KitError):
                plan.tests_of('x', boot([{'reproducer': 'c'}]))
