# SPDX-License-Identifier: GPL-2.0-only
"""Tools from PyPI are installed once, and again after a change of requirements.txt."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.errors import KitError
from kit.setup import tools


class Tools(unittest.TestCase):
    def test_installed_once(self):
        steps, ends = [], [0, 0]

        def step(what, *_, **__):
            steps.append(what)
            return ends[len(steps) % 2 - 1]

        with (
            tempfile.TemporaryDirectory() as top,
            mock.patch.multiple(
                tools, FOLDER=Path(top), REQUIREMENTS=Path(top) / 'wanted', step=step, shown=str
            ),
        ):
            tools.REQUIREMENTS.write_text('ruff==1\n')
            for _ in range(2):
                self.assertEqual(tools.tool('ruff'), Path(top) / 'venv/bin/ruff')
            installed = ['tools: virtual environment', 'tools: pip install']
            self.assertEqual(steps, installed)
            tools.REQUIREMENTS.write_text('ruff==2\n')
            ends[1] = 1
            with self.assertRaisesRegex(KitError, 'is there a network?'):
                tools.tool('ruff')
            # a failed installation is repeated
            ends[1] = 0
            tools.tool('ruff')
            self.assertEqual(steps, installed * 3)
