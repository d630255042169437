# SPDX-License-Identifier: GPL-2.0-only
"""Recipients, b4, and the faults in mails that `make check CHECK=mail` finds."""

import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.check import mailed
from kit.errors import KitError
from kit.mail import mail
from kit.source.git import git

SAID = """"A Name (Firm)" <one@example.com> (maintainer:TOY)
A Reader <two@example.com> (reviewer:TOY)
list@example.com (open list:TOY)
"""
MAIL = """From: A Sender <sender@example.com>
To: one@example.com
Cc: linux-kernel@vger.kernel.org
Subject: [PATCH {number}/2] {subject}
Message-ID: <{number}@example.com>
{thread}Content-Type: text/plain; charset="utf-8"

{text}
"""
THREAD = 'In-Reply-To: <0@example.com>\nReferences: <0@example.com>\n'
BASE = f'base-commit: {"1" * 40}'
SIGNED = 'Why.\n\nSigned-off-by: A Sender <sender@example.com>\n---\n a.c | 1 +\n'


def arrived(*mails):
    people = ['one@example.com', 'linux-kernel@vger.kernel.org']
    return [(people, text.encode()) for text in mails]


def good():
    return [
        MAIL.format(number=0, subject='All', thread='', text=f'The letter.\n\n{BASE}'),
        MAIL.format(number=1, subject='a', thread=THREAD, text=SIGNED),
        MAIL.format(number=2, subject='b', thread=THREAD, text=SIGNED),
    ]


class Recipients(unittest.TestCase):
    def test_roles_and_each_address_once(self):
        with mock.patch.object(mail, 'output', lambda *_, **__: SAID):
            found = mail.recipients([Path('x')], ['A Name <ONE@example.com>', 'B <b@example.com>'])
        self.assertEqual(
            sorted(found),
            [
                'Cc: A Reader <two@example.com>',
                'Cc: B <b@example.com>',
                'Cc: list@example.com',
                'To: A Name (Firm) <one@example.com>',
            ],
        )


class Program(unittest.TestCase):
    def test_without_a_network(self):
        def nothing(name):
            raise KitError('no network')

        with mock.patch.object(mail, 'tool', nothing):
            with mock.patch.object(mail.shutil, 'which', lambda name: f'/bin/{name}'):
                self.assertEqual(mail.program(), Path('/bin/b4'))
            with mock.patch.object(mail.shutil, 'which', lambda name: None):
                self.assertRaisesRegex(KitError, 'no network', mail.program)


class Arrived(unittest.TestCase):
    def faults(self, mails):
        with mock.patch.multiple(
            mailed,
            is_single=lambda part: False,
            has_letter=lambda part: True,
            cover=mock.Mock(read=lambda part: ('All', 'The letter.')),
        ):
            return ' '.join(mailed.faults_of('x', arrived(*mails)))

    def test_a_whole_posting(self):
        self.assertEqual(self.faults(good()), '')

    def test_what_is_wrong(self):
        for number, old, new, said in (
            (0, 'The letter.', 'Another.', 'the cover letter arrived with another text'),
            (0, BASE, '', 'no base-commit'),
            (1, THREAD, '', 'not in the thread'),
            (1, 'Signed-off-by', 'Seen-by', 'not signed off'),
            (1, 'From: A Sender', 'From: Another', 'from Another'),
            (2, '2/2', '1/2', 'expected mails 0 to 2'),
            (2, '<2@', '<1@', 'the same Message-ID'),
            (2, 'one@example.com', 'other@example.com', 'went to'),
        ):
            with self.subTest(said):
                mails = good()
                mails[number] = mails[number].replace(old, new, 1)
                self.assertIn(said, self.faults(mails))
        self.assertIn('expected mails 0 to 1', self.faults(good()[:2]))
        self.assertIn('a mail is missing', self.faults([]))


class Applied(unittest.TestCase):
    """Received mails are applied. The kernel has one file; two topics have two patches each."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='mailed-'))
        self.addCleanup(shutil.rmtree, self.folder)
        self.patch(mailed, 'BOX_LINUX', self.folder / 'linux')
        (self.folder / 'linux').mkdir()
        self.git('init', '-q')
        text = ''.join(f'line {number}\n' for number in range(40))
        self.commit(text, 'base')
        self.git('tag', 'base')
        self.made, self.files, below = {}, {}, 'base'
        for topic, lines in ('one', (3, 13)), ('two', (23, 33)):
            for line in lines:
                text = text.replace(f'line {line}\n', f'LINE {line}\n')
                self.commit(text, f'a: change line {line}\n\nWhy.')
            folder = self.folder / topic
            self.git('format-patch', '-q', '-o', folder, f'{below}..HEAD')
            self.made[topic] = below = self.git('rev-parse', 'HEAD').strip()
            self.files[topic] = sorted(folder.iterdir())

    def patch(self, *what):
        patched = mock.patch.object(*what)
        patched.start()
        self.addCleanup(patched.stop)

    def git(self, *words):
        identity = ['-c', 'user.name=A Sender', '-c', 'user.email=sender@example.com']
        return git(*identity, *words, cwd=mailed.BOX_LINUX)

    def commit(self, text, message):
        (mailed.BOX_LINUX / 'a.c').write_text(text)
        self.git('add', '-A')
        self.git('commit', '-q', '-m', message)

    def alter(self, number, old, new):
        path = self.files['one'][number]
        self.assertIn(old, path.read_text())
        path.write_text(path.read_text().replace(old, new))

    def test_whole(self):
        self.assertEqual(mailed.applied(self.made, self.files), [])

    def test_a_changed_byte(self):
        self.alter(1, '+LINE 13', '+LINE 31')
        self.assertIn('one: the received mails, applied', mailed.applied(self.made, self.files)[0])

    def test_a_space_at_the_end_of_a_line(self):
        self.alter(1, '+LINE 13', '+LINE 13 ')
        self.assertIn('one: the received mails, applied', mailed.applied(self.made, self.files)[0])

    def test_a_line_that_was_wrapped(self):
        self.alter(1, ' line 12', ' line\n12')
        self.assertIn('one: git am of the received mails', mailed.applied(self.made, self.files)[0])

    def test_a_patch_that_is_missing(self):
        self.files['one'].pop()
        self.assertIn('one: the received mails, applied', mailed.applied(self.made, self.files)[0])

    def test_a_patch_of_another_topic(self):
        self.files['one'].append(self.files['two'].pop(0))
        self.assertIn('one: the received mails, applied', mailed.applied(self.made, self.files)[0])


if __name__ == '__main__':
    unittest.main()
