# SPDX-License-Identifier: GPL-2.0-only
"""The tables of pages, between their marks."""

import unittest
from unittest import mock

from kit.bench import pages


class Pages(unittest.TestCase):
    def filled(self, page):
        with mock.patch.multiple(
            pages,
            front=mock.Mock(markdown=lambda: 'FRONT'),
            record=mock.Mock(tables=lambda: 'SOAKS'),
            topics=mock.Mock(measured=lambda: ['one']),
            measure=mock.Mock(load=lambda topic: {'topic': topic}),
            table=mock.Mock(markdown=lambda data: f'TABLE {data["topic"]}'),
        ):
            return pages.filled(page)

    def test_marks(self):
        page = 'a\n<!-- front -->\nold\n<!-- end -->\nb\n<!-- bench one -->\n<!-- end -->\n'
        wanted = (
            'a\n<!-- front -->\nFRONT\n<!-- end -->\n'
            'b\n<!-- bench one -->\nTABLE one\n<!-- end -->\n'
        )
        self.assertEqual(self.filled(page), wanted)
        self.assertEqual(self.filled(wanted), wanted)
        self.assertIn('SOAKS', self.filled('<!-- soak -->\nx\n<!-- end -->\n'))

    def test_a_topic_that_was_not_measured(self):
        self.assertIn(
            'Not measured yet: `make bench TOPIC=two`',
            self.filled('<!-- bench two -->\n<!-- end -->'),
        )

    def test_a_page_without_marks(self):
        self.assertEqual(self.filled('text\n'), 'text\n')
