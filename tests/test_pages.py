# SPDX-License-Identifier: GPL-2.0-only
"""The generated tables of pages."""

import copy
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import topics
from kit.bench import front, measure, pages
from kit.check import files
from kit.check.common import Failed
from kit.errors import KitError
from kit.paths import TOP


class Pages(unittest.TestCase):
    def filled(self, page):
        with mock.patch.multiple(
            pages,
            front=mock.Mock(markdown=lambda: 'FRONT'),
            record=mock.Mock(tables=lambda: 'SOAKS'),
            topics=mock.Mock(measured=lambda: ['one'], topic_of=lambda name: name),
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


class FrontPage(unittest.TestCase):
    """The table of topics and postings in README.md."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = Path(folder.name, 'README.md')
        patch = mock.patch.object(pages, 'pages', lambda: [self.page])
        patch.start()
        self.addCleanup(patch.stop)

    def fails(self, text):
        self.page.write_text(text)
        with self.assertRaisesRegex(Failed, 'README.md: a table differs from the record'):
            files.tables()

    def test_check_fails_when_it_is_not_what_the_records_say(self):
        text = (TOP / 'README.md').read_text()
        self.page.write_text(text)
        files.tables()
        rows = front.markdown().split('\n')[2:]
        posting = next(row for row in rows if row.startswith('| · '))
        self.fails(text.replace(posting, posting.replace(' |', ' today |')))  # another state
        self.fails(text.replace(f'{posting}\n', ''))
        topic = next(row for row in rows if ' → ' in row)
        self.fails(text.replace(topic, topic.replace(' → ', ' → 0', 1)))  # another figure

    def test_check_fails_when_a_record_has_changed(self):
        text, load = (TOP / 'README.md').read_text(), measure.load
        for topic in topics.measured():
            data = copy.deepcopy(measure.load(topic))
            if not data or not topics.front(topic).worst:
                continue
            for row in data['rows']:  # as if measured again
                row['patched'] *= 2
            with (
                self.subTest(topic),
                mock.patch.object(
                    measure,
                    'load',
                    lambda name, topic=topic, data=data: data if name == topic else load(name),
                ),
            ):
                self.fails(text)

    def test_a_better_row_is_not_said_to_be_the_worst(self):
        for topic in topics.measured():
            data = copy.deepcopy(measure.load(topic))
            if data and topics.front(topic).worst:
                _, worst = front.said('x', topics.front(topic).worst, data['rows'])
                other = next(row for row in data['rows'] if row != worst)
                other |= {'base': 1, 'patched': 1e9, 'ratio': -1, 'better': 'lower'}
                with self.assertRaisesRegex(KitError, 'the largest regression is'):
                    front.worst(topic, topics.front(topic), data['rows'])
