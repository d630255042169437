# SPDX-License-Identifier: GPL-2.0-only
"""The form of cover letters and messages, and topics that are folders of postings."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))
from kit import model, topics  # noqa: E402
from kit.bench import letter, measure, provenance  # noqa: E402
from kit.errors import KitError  # noqa: E402
from kit.mail import cover  # noqa: E402
from kit.source import apply, patches  # noqa: E402

LETTER = """# subsystem: Do it in less time

It takes 2 s. Do it in one walk (1).

                 base  patched
    the worst     1.0      1.1
    the best      2.0      0.5

Costs: one load.

A Maintainer: is that acceptable?

An LLM wrote the code and text. It was tested under emulation only.

[1] LORE/a-message-id-that-is-too-long-for-a-line-of-75-columns@example.com
""".replace('LORE', 'https:/' + '/lore.kernel.org/r')

TOPIC = """[[posting]]
name = "01-one"
tree = "git://a/tree.git"
branch = "next"
state = "ready"

[[posting]]
name = "02-two"
tree = "git://a/tree.git"
branch = "next"
needs = ["01-one"]
state = "waits for 01-one"
"""


PATCH = """Subject: [PATCH] a: b

Why.
---
 a.c | 2 +-

diff --git a/a.c b/a.c
--- a/a.c
+++ b/a.c
@@ -1,2 +1,5 @@
 int context;
-int old;
+/* A comment */
+int new;	/* of
+ * two lines */
"""


class Records(unittest.TestCase):
    def test_code_without_words(self):
        self.assertEqual(['a.c:-int old;', 'a.c:+int new;'], provenance.changes(PATCH))
        for same in (
            PATCH.replace('Why.', 'Because.'),
            PATCH.replace('A comment', 'Another'),
            PATCH.replace('two lines', 'two others'),
            PATCH.replace('two lines', '\ttwo lines'),
            PATCH.replace('@@ -1,2 +1,5 @@', '@@ -7,2 +7,5 @@'),
        ):
            self.assertEqual(provenance.changes(PATCH), provenance.changes(same))
        self.assertNotEqual(
            provenance.changes(PATCH), provenance.changes(PATCH.replace('int new', 'long new'))
        )

    def test_tests_are_not_measured_but_benchmarks_are(self):
        for path, measured in (
            ('tools/testing/selftests/a/a_test.c', False),
            ('tools/testing/selftests/a/a_perf.c', True),
            ('drivers/a/kunit_a.h', False),
        ):
            text = PATCH.replace('a.c', path)
            self.assertEqual(measured, bool(provenance.changes(text)))
            self.assertTrue(provenance.changes(text, unmeasured=True))

    def test_a_record_of_other_code_is_marked(self):
        topic = topics.measured()[0]
        data = {'topic': topic, 'command': 'all', **provenance.of(topic)}
        self.assertEqual('', provenance.mark(data))
        self.assertEqual('', provenance.mark({'topic': topic}))
        data['code'] = {**data['code'], topic: 'another'}
        self.assertRegex(provenance.mark(data), f'^Stale: .*, before the code of {topic} changed.$')

    def test_each_part_of_a_record_has_its_own_code(self):
        topic, command = topics.measured()[0], 'make bench PART=x'
        now = provenance.of(topic)
        old = {**now, 'code': {**now['code'], topic: 'another'}}
        rows = [{'metric': 'a'}, {'metric': 'b', 'command': command}]
        self.assertRegex(
            provenance.mark({'topic': topic, **now, 'rows': rows, 'parts': {command: old}}),
            f'^Stale: the rows of `{command}` were measured on [0-9-]*, '
            f'before the code of {topic} changed.$',
        )
        new = {'topic': topic, **old, 'command': 'all', 'rows': rows, 'parts': {command: now}}
        self.assertRegex(provenance.mark(new), f'of `all` were .* the code of {topic} changed.$')
        # all rows belong to parts that were measured with the present code
        self.assertEqual('', provenance.mark({**new, 'rows': rows[1:]}))

    def test_a_posting_is_measured_on_what_it_needs(self):
        for part in topics.parts():
            if '/' in part:
                self.assertEqual([*topics.below(part), part], [*provenance.below(part)])


class Letters(unittest.TestCase):
    def test_a_letter_in_the_form(self):
        self.assertEqual([], cover.faults(LETTER))

    def test_what_is_not_in_the_form(self):
        for old, new, said in (
            ('# subsystem', 'subsystem', 'the first line is not'),
            ('in one walk', 'in one walk' + ' word' * 450, 'without the table, at most 450 are'),
            ('Costs: one', '\n' * 60 + 'Costs: one', 'lines, at most 60 are allowed'),
            ('    the best', '    a row         1.0      2.0\n' * 5 + '    the best', 'of 7 rows'),
            ('in one walk', 'in one walk' + 'x' * 75, 'columns'),
            ('2 s', '2 \N{MICRO SIGN}s', 'not ASCII'),
            ('Costs:', 'make bench TOPIC=x shows it. Costs:', 'this repository: make bench'),
            ('Costs:', 'It has', 'does not say costs'),
            ('acceptable?', 'acceptable.', 'does not say what is asked'),
            ('LLM', 'author', 'does not say that an LLM'),
            ('tested', 'looked at', 'does not say how it was tested'),
        ):
            with self.subTest(new):
                found = cover.faults(LETTER.replace(old, new, 1))
                self.assertTrue(any(said in fault for fault in found), found)

    def test_figures_that_no_record_has(self):
        rows = [
            {'metric': 'a', 'base': 4.0, 'patched': 2091000.0},
            {'metric': 'b_per_2m', 'base': 0.066406, 'patched': 0.203125},
            {'metric': 'c', 'base': None, 'patched': 3.0},
        ]
        table = '           base   patched\n    a    4    2,091,000\n  b   34   104\n\ntext\n'
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, 'cover.md')
            with mock.patch.multiple(
                letter,
                measure=mock.Mock(load=lambda _: {'rows': rows}, TREES=measure.TREES),
                cover=mock.Mock(path_of=lambda _: path),
            ):
                self.assertEqual([], letter.faults('x'))  # a posting without a letter
                path.write_text(table)
                self.assertEqual([], letter.faults('x'))
                path.write_text(table.replace('4    2,091,000', '0.000  2.09'))
                self.assertEqual([], letter.faults('x'))
                for wrong in '2,092,000', '2.09':  # a wrong figure; not the base's scale
                    path.write_text(table.replace('2,091,000', wrong))
                    self.assertEqual(
                        [f'no recorded row has these figures: a    4    {wrong}'],
                        letter.faults('x'),
                    )

    def test_messages(self):
        message = 'Subject: [PATCH] a: b\n\nDo it.\n\nAssisted-by: LLM sparse\n---\n make test\n'
        self.assertEqual([], cover.message_faults(message))
        self.assertTrue(cover.message_faults(message.replace('Assisted-by', 'Helped-by')))
        self.assertTrue(cover.message_faults(message.replace('Do it.', 'Run make bench.')))


class Layout(unittest.TestCase):
    """A flat topic, and a topic with two postings."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.series = Path(folder.name)
        (self.series / 'order').write_text('flat\nfolders\n')
        for name in (
            'flat/0001-a.patch',
            'folders/01-one/0001-b.patch',
            'folders/01-one/0002-c.patch',
            'folders/02-two/0001-d.patch',
        ):
            path = self.series / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'Subject: [PATCH] {path.stem}\n')
        (self.series / 'folders/topic.toml').write_text(f'after = ["flat"]\n{TOPIC}')
        for module in (topics, patches, model):
            patch = mock.patch.object(module, 'SERIES', self.series)
            patch.start()
            self.addCleanup(patch.stop)
        model.topic.cache_clear()
        self.addCleanup(model.topic.cache_clear)

    def test_parts(self):
        self.assertEqual(['flat', 'folders/01-one', 'folders/02-two'], topics.parts())

    def test_patches_of_a_topic_and_of_a_posting(self):
        names = [path.name for path in patches.patch_files('folders')]
        self.assertEqual(['0001-b.patch', '0002-c.patch', '0001-d.patch'], names)
        self.assertEqual(
            ['0001-d.patch'], [path.name for path in patches.patch_files('folders/02-two')]
        )

    def test_what_a_posting_is_mailed_on(self):
        self.assertEqual(['flat'], topics.below('folders/01-one'))
        self.assertEqual(['flat', 'folders/01-one'], topics.below('folders/02-two'))
        self.assertEqual([], topics.below('flat'))

    def test_a_posting_that_needs_a_later_one(self):
        text = TOPIC.replace('branch = "next"\nstate', 'branch = "next"\nneeds = ["02-two"]\nstate')
        (self.series / 'folders/topic.toml').write_text(text)
        model.topic.cache_clear()
        with self.assertRaisesRegex(KitError, 'which is not an earlier posting'):
            topics.below('folders/01-one')

    def test_a_folder_that_topic_toml_does_not_know(self):
        (self.series / 'folders/03-three').mkdir()
        with self.assertRaisesRegex(KitError, 'no .*posting.* has the name 03-three'):
            topics.posting('folders/03-three')

    def test_a_posting_that_says_neither_ready_nor_what_it_waits_for(self):
        def faults():
            model.topic.cache_clear()
            return [fault for fault in cover.all_faults() if ': state: ' in fault]

        self.assertEqual([], faults())
        for state in 'RFC; no figures', 'not to be sent: waits for a user':
            (self.series / 'folders/topic.toml').write_text(TOPIC.replace('ready', state))
            self.assertEqual([], faults())
        (self.series / 'folders/topic.toml').write_text(TOPIC.replace('ready', 'soon'))
        self.assertEqual(1, len(faults()))

    def test_a_posting_that_waits_for_nothing_known(self):
        def faults(waits):
            text = TOPIC.replace('state = "ready"', f'waits = ["{waits}"]\nstate = "ready"')
            (self.series / 'folders/topic.toml').write_text(text)
            model.topic.cache_clear()
            return [fault for fault in cover.all_faults() if ': waits: ' in fault]

        self.assertEqual([], faults('flat'))
        for waits in 'folders', 'no: such patch':
            self.assertEqual(1, len(faults(waits)))

    def test_patches_beside_the_postings(self):
        (self.series / 'folders/0001-e.patch').write_text('')
        self.assertEqual(['0001-e.patch'], [path.name for path in patches.strays('folders')])
        with self.assertRaisesRegex(KitError, 'is in no posting of folders'):
            apply.apply(self.series / 'linux')


if __name__ == '__main__':
    unittest.main()
