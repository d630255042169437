# SPDX-License-Identifier: GPL-2.0-only
"""Tests the verbs `base`, `tree`, `export` and `mail` on a toy kernel of three files. They must
report bad input in one line, and lose no work."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kit.check.sink import Sink
from kit.errors import KitError
from kit.mail.mail import PLACEHOLDER
from kit.model import Topic
from kit.setup.tools import FOLDER as TOOLS
from kit.setup.tools import tool
from kit.typed import fields_of
from tests.support import TOP

MAKEFILE = 'VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = {}\nEXTRAVERSION =\n'
CODE = ''.join(f'line {number}\n' for number in range(40))


class Verbs(unittest.TestCase):
    def setUp(self):
        self.work = Path(tempfile.mkdtemp(prefix='verbs-'))
        self.addCleanup(shutil.rmtree, self.work)
        self.home, self.toy = self.work / 'home', self.work / 'toy'
        self.home.mkdir()
        self.repository('repository')
        self.new_toy(4)

    def repository(self, name):
        self.top = self.work / name
        self.linux = self.top / 'linux'
        (self.top / 'series').mkdir(parents=True)
        shutil.copytree(TOP / 'kit', self.top / 'kit', ignore=shutil.ignore_patterns('__pycache__'))
        (self.top / 'BASE').write_text('version 7.3.4\n')
        (self.top / 'series' / 'order').write_text('one\ntwo\n')

    def new_toy(self, sublevel):
        shutil.rmtree(self.toy, ignore_errors=True)
        (self.toy / 'kernel').mkdir(parents=True)
        (self.toy / 'Makefile').write_text(MAKEFILE.format(sublevel))
        (self.toy / 'kernel/a.c').write_text(CODE)
        (self.toy / 'kernel/b.c').write_text(CODE)

    def call(self, *command, cwd=None, **env):
        whole = {
            'PATH': os.environ['PATH'],
            'HOME': str(self.home),
            'PYTHONDONTWRITEBYTECODE': '1',
            **env,
        }
        return subprocess.run(
            command,
            cwd=cwd or self.top,
            env=whole,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def verb(self, *words, **env):
        here = {'LINUX': str(self.toy)} if words[0] in ('base', 'mail') else {}
        env = {'KIT_NO_SETUP': '1', **here, **env}
        return self.call(sys.executable, '-m', 'kit', *words, **env)

    def good(self, *words, **env):
        done = self.verb(*words, **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def bad(self, *words, says, **env):
        done = self.verb(*words, **env)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertIn(says, done.stderr.splitlines()[-1])
        self.assertNotIn('Traceback', done.stderr)

    def git(self, *words, cwd=None):
        identity = ['-c', 'user.name=A Developer', '-c', 'user.email=developer@example.com']
        done = self.call(
            'git', '-c', 'init.defaultBranch=main', *identity, *words, cwd=cwd or self.linux
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def commit(self, path, old, new, message, cwd=None):
        file = (cwd or self.linux) / path
        file.write_text(
            (file.read_text() if file.exists() else '').replace(old, new) if old else new
        )
        self.git('add', '-A', cwd=cwd)
        self.git('commit', '-q', '-m', message, cwd=cwd)

    def two_topics(self):
        """Makes and exports a base and two topics of one patch each."""
        self.good('base')
        self.good('tree')
        self.git('checkout', '-q', 'one')
        self.commit('kernel/a.c', 'line 5\n', 'LINE 5\n', 'a: first\n\nWhy.')
        self.git('checkout', '-q', 'two')
        self.git('reset', '-q', '--hard', 'one')
        self.commit(
            'kernel/new.c',
            '',
            'new\n',
            'new: second, with ümlaut and an exceedingly long subject to be folded\n\nWhy.',
        )
        self.good('export')

    def patches(self):
        return {
            str(path.relative_to(self.top)): path.read_bytes()
            for path in sorted(self.top.glob('series/*/*.patch'))
        }

    def state(self):
        """All data in linux/ that must not be lost."""
        files = {
            path: path.read_bytes()
            for path in self.linux.rglob('*')
            if path.is_file() and '.git' not in path.parts
        }
        return (
            files,
            self.git('for-each-ref'),
            self.git('symbolic-ref', 'HEAD'),
            self.git('stash', 'list'),
        )

    # base

    def test_base_id_depends_on_the_files_alone(self):
        self.good('base')
        first = self.git('rev-parse', 'base')
        self.repository('another')
        (self.home / '.gitconfig').write_text(
            '[core]\n autocrlf = true\n[user]\n name = x\n[commit]\n gpgSign = true\n'
        )
        self.git('init', '-q', cwd=self.toy)
        self.git('add', '-A', cwd=self.toy)
        self.git('-c', 'commit.gpgSign=false', 'commit', '-q', '-m', 'x', cwd=self.toy)
        self.assertIn('HEAD of the git tree', self.good('base'))
        self.assertEqual(self.git('rev-parse', 'base'), first)

    def test_base_from_the_tag_not_from_local_work(self):
        self.git('init', '-q', cwd=self.toy)
        self.git('add', '-A', cwd=self.toy)
        self.git('commit', '-q', '-m', 'x', cwd=self.toy)
        self.git('tag', 'v7.3.4', cwd=self.toy)
        self.commit('kernel/a.c', 'line 1\n', 'mine\n', 'my work', cwd=self.toy)
        (self.toy / 'kernel/b.c').write_text('uncommitted\n')
        self.assertIn('uncommitted changes', self.good('base'))
        self.assertEqual((self.linux / 'kernel/a.c').read_text(), CODE)
        self.assertEqual((self.linux / 'kernel/b.c').read_text(), CODE)
        self.assertEqual((self.toy / 'kernel/b.c').read_text(), 'uncommitted\n')

    def test_base_of_another_version(self):
        (self.toy / 'Makefile').write_text('VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n')
        self.bad('base', says='is Linux 6.12.1, but the series is based on 7.3.y')
        self.assertFalse(self.linux.exists())

    def test_base_of_another_stable_release(self):
        self.two_topics()
        shutil.rmtree(self.linux)
        self.new_toy(5)
        self.assertIn('this is 7.3.5, the series is based on 7.3.4', self.good('base'))
        self.good('tree')
        self.assertIn('LINE 5', (self.linux / 'kernel/a.c').read_text())

    def newer_release(self, *tags):
        """Turns the toy into a git tree of v7.3.5. That release changes a line next to lines that
        the series changes. `tags` are the release tags of this tree."""
        self.git('init', '-q', cwd=self.toy)
        self.git('add', '-A', cwd=self.toy)
        self.git('commit', '-q', '-m', 'x', cwd=self.toy)
        self.git('tag', 'v7.3.4', cwd=self.toy)
        (self.toy / 'Makefile').write_text(MAKEFILE.format(5))
        (self.toy / 'kernel/b.c').write_text('no copy of what a.c was\n')
        self.commit('kernel/a.c', 'line 3\n', 'line three\n', 'x', cwd=self.toy)
        self.git('tag', 'v7.3.5', cwd=self.toy)
        for tag in {'v7.3.4', 'v7.3.5'} - set(tags):
            self.git('tag', '-d', tag, cwd=self.toy)

    def three_patches_of_a_file(self):
        self.two_topics()
        self.git('checkout', '-q', 'one')
        self.commit('kernel/a.c', 'LINE 5\n', 'Line 5\n', 'a: second\n\nWhy.')
        self.git('checkout', '-q', 'two')
        self.git('rebase', '-q', 'one')
        self.commit('kernel/a.c', 'line 7\n', 'LINE 7\n', 'a: third\n\nWhy.')
        self.good('export')

    def test_patches_are_merged_with_another_stable_release(self):
        self.three_patches_of_a_file()
        shutil.rmtree(self.linux)
        self.newer_release('v7.3.4', 'v7.3.5')
        self.assertIn('the touched files of 7.3.4 are from v7.3.4 of', self.good('base'))
        self.good('tree')
        text = (self.linux / 'kernel/a.c').read_text()
        self.assertIn('line three\nline 4\nLine 5\nline 6\nLINE 7\n', text)
        self.assertEqual(len(self.git('rev-list', 'base..two').split()), 4)
        # git's garbage collection keeps the files that were found
        self.git('reflog', 'expire', '--expire=all', '--all')
        self.git('gc', '-q', '--prune=now')
        (self.linux / '.git/series-state').unlink()
        self.git('checkout', '-q', '--detach', 'base')
        self.git('branch', '-D', 'one', 'two')
        self.git('gc', '-q', '--prune=now')
        self.good('tree')
        self.assertEqual((self.linux / 'kernel/a.c').read_text(), text)

    def test_patches_are_merged_with_the_files_of_a_stable_tree(self):
        self.three_patches_of_a_file()
        shutil.rmtree(self.linux)
        self.newer_release('v7.3.4', 'v7.3.5')
        self.assertIn(
            'are from the stable tree', self.good('base', LINUX='', STABLE_GIT=f'file://{self.toy}')
        )
        self.good('tree')
        self.assertIn('line three\nline 4\nLine 5\n', (self.linux / 'kernel/a.c').read_text())

    def test_patches_that_do_not_merge(self):
        self.three_patches_of_a_file()
        shutil.rmtree(self.linux)
        self.newer_release('v7.3.4', 'v7.3.5')
        self.commit('kernel/a.c', 'line 7\n', 'line seven\n', 'x', cwd=self.toy)
        self.git('tag', '-f', 'v7.3.5', cwd=self.toy)
        self.good('base')
        self.bad(
            'tree',
            says='("a: third") of topic two does not apply (kernel/a.c); the base is '
            '7.3.5, the series is based on 7.3.4; linux/ is unchanged',
        )

    def test_patches_that_nothing_can_merge(self):
        self.three_patches_of_a_file()
        shutil.rmtree(self.linux)
        self.newer_release('v7.3.5')
        self.assertIn(
            'no source has the files of 7.3.4, so git cannot merge: set LINUX= to '
            'a git tree with the tag v7.3.4',
            self.good('base'),
        )
        self.bad(
            'tree',
            says='"a: first") of topic one does not apply; the base is 7.3.5, the '
            'series is based on 7.3.4, and git cannot merge without its files: set LINUX= to a '
            'tree with v7.3.4',
        )
        # a file under the right tag must also have the checksum in BASE
        shutil.rmtree(self.linux)
        self.git('tag', 'v7.3.4', 'v7.3.5', cwd=self.toy)
        self.assertIn('no source has the files', self.good('base'))

    # rebase

    def test_rebase_onto_another_release(self):
        self.three_patches_of_a_file()
        old = self.git('rev-parse', 'base')
        self.newer_release('v7.3.4', 'v7.3.5')
        # v7.3.5 already contains the file that the topic `two` adds
        self.commit('kernel/new.c', '', 'new\n', 'x', cwd=self.toy)
        self.git('tag', '-f', 'v7.3.5', cwd=self.toy)
        said = self.good('rebase', str(self.toy))
        subject = '"new: second, with ümlaut and an exceedingly long subject to be folded"'
        self.assertIn(f'rebase: two: {subject} is already in v7.3.5', said)
        self.assertIn(f'rebase: dropped {subject}', said)
        self.assertIn('rebase: from v7.3.4 to v7.3.5', said)
        self.assertEqual(
            [path.split('/', 1)[1] for path in self.patches()],
            ['one/0001-a-first.patch', 'one/0002-a-second.patch', 'two/0001-a-third.patch'],
        )
        self.assertIn('version 7.3.5\n', (self.top / 'BASE').read_text())
        self.assertIn(
            'line three\nline 4\nLine 5\nline 6\nLINE 7\n', (self.linux / 'kernel/a.c').read_text()
        )
        self.assertNotEqual(self.git('rev-parse', 'base'), old)
        self.assertIn('linux/ matches series/', self.good('tree'))
        # making linux/ again gives the same trees
        tips = self.git('rev-parse', 'base^{tree}', 'one^{tree}', 'two^{tree}')
        shutil.rmtree(self.linux)
        self.good('base')
        self.good('tree')
        self.assertEqual(self.git('rev-parse', 'base^{tree}', 'one^{tree}', 'two^{tree}'), tips)
        self.bad('rebase', '7.3.5', says='is already based on Linux 7.3.5', LINUX=str(self.toy))

    def test_rebase_onto_the_next_mainline(self):
        self.two_topics()
        self.new_toy(0)
        (self.toy / 'Makefile').write_text(MAKEFILE.format(0).replace('= 3', '= 4'))
        self.git('init', '-q', cwd=self.toy)
        self.git('add', '-A', cwd=self.toy)
        self.git('commit', '-q', '-m', 'x', cwd=self.toy)
        self.git('tag', 'v7.4', cwd=self.toy)
        self.commit('Makefile', 'SUBLEVEL = 0', 'SUBLEVEL = 1', 'x', cwd=self.toy)
        self.git('tag', 'v7.4.1', cwd=self.toy)
        # for a path, the release is the newest one below HEAD
        self.git('checkout', '-q', 'v7.4', cwd=self.toy)
        self.assertIn('from v7.3.4 to v7.4\n', self.good('rebase', str(self.toy)))
        self.assertIn('version 7.4.0\n', (self.top / 'BASE').read_text())
        self.assertEqual(len(self.patches()), 2)
        self.assertIn('from v7.4 to v7.4.1\n', self.good('rebase', '7.4', LINUX=str(self.toy)))
        self.assertIn('version 7.4.1\n', (self.top / 'BASE').read_text())

    def test_rebase_that_conflicts(self):
        self.three_patches_of_a_file()
        old, before = self.git('rev-parse', 'base'), self.patches()
        base = (self.top / 'BASE').read_text()
        self.newer_release('v7.3.4', 'v7.3.5')
        self.commit('kernel/a.c', 'line 7\n', 'line seven\n', 'x', cwd=self.toy)
        self.git('tag', '-f', 'v7.3.5', cwd=self.toy)
        self.bad(
            'rebase',
            '7.3.5',
            says='stopped at "a: third", conflict in kernel/a.c: in linux/ '
            'resolve it, `git add`, `git rebase --continue`, then `make export`; or go back '
            f'with `git rebase --abort` and `git tag -f base {old[:12]}`',
            LINUX=str(self.toy),
        )
        self.assertEqual((self.patches(), (self.top / 'BASE').read_text()), (before, base))
        self.bad('export', says='a git rebase is under way')
        self.bad('rebase', '7.3.5', says='does not match series/', LINUX=str(self.toy))
        file = self.linux / 'kernel/a.c'
        text = file.read_text()
        self.assertIn('<<<<<<<', text)
        file.write_text(re.sub('<<<<<<<.*>>>>>>>[^\n]*', 'LINE SEVEN', text, flags=re.S))
        self.git('add', '-A')
        self.git('-c', 'core.editor=true', 'rebase', '--continue')
        self.good('export')
        self.assertIn('version 7.3.5\n', (self.top / 'BASE').read_text())
        self.assertIn(b'+LINE SEVEN', self.patches()['series/two/0002-a-third.patch'])
        self.assertEqual(self.git('merge-base', 'base', 'one'), self.git('rev-parse', 'base'))
        self.assertIn('linux/ matches series/', self.good('tree'))

    def test_rebase_that_is_given_up(self):
        self.three_patches_of_a_file()
        self.newer_release('v7.3.4', 'v7.3.5')
        self.commit('kernel/a.c', 'line 7\n', 'line seven\n', 'x', cwd=self.toy)
        # HEAD has a commit on top of the release, which is not used
        self.assertIn('from v7.3.4 to v7.3.5', self.good('rebase', str(self.toy)))
        self.git('tag', '-f', 'v7.3.6', cwd=self.toy)
        (self.toy / 'Makefile').write_text(MAKEFILE.format(6))
        self.git('commit', '-q', '-a', '--amend', '-m', 'x', cwd=self.toy)
        self.git('tag', '-f', 'v7.3.6', cwd=self.toy)
        state = self.state()
        said = self.verb('rebase', str(self.toy)).stderr.splitlines()[-1]
        self.git('rebase', '--abort')
        self.git(*re.search('`git (tag -f base [0-9a-f]+)`', said)[1].split())
        self.assertEqual(self.state()[0], state[0])
        self.assertEqual(self.state()[2:], state[2:])
        self.assertIn('linux/ matches series/', self.good('tree'))

    def test_rebase_is_refused(self):
        self.bad('rebase', '7.3.5', says='no linux/ here')
        self.two_topics()
        self.bad('rebase', 'nothing', says='neither a folder nor a version')
        self.bad('rebase', str(self.home), says='no Makefile there')
        self.bad('rebase', '7.9', says='is Linux 7.3.4, not 7.9', LINUX=str(self.toy))
        (self.linux / 'kernel/a.c').write_text('work\n')
        self.bad('rebase', '7.3.5', says='uncommitted changes (kernel/a.c)')
        self.commit('kernel/b.c', 'line 1\n', 'work\n', 'b: work')
        self.bad('rebase', '7.3.5', says='does not match series/')

    # base again

    def test_base_with_an_altered_file(self):
        self.two_topics()
        shutil.rmtree(self.linux)
        (self.toy / 'kernel/b.c').write_text('not touched by the series\n')
        (self.toy / 'kernel/a.c').write_text(CODE + 'altered\n')
        self.bad('base', says='kernel/a.c is not the one the series is based on')
        self.assertFalse(self.linux.exists())
        (self.toy / 'kernel/a.c').unlink()
        self.bad('base', says='kernel/a.c is missing')

    def test_base_not_there(self):
        self.bad('base', says='no such folder', LINUX=str(self.work / 'nothing'))
        self.bad('base', says='no Makefile', LINUX=str(self.home))
        (self.toy / '.config').write_text('')
        self.bad('base', says='it contains a build')

    def test_half_base_is_made_anew(self):
        (self.top / 'build/base.tmp/linux').mkdir(parents=True)
        (self.top / 'build/base.tmp/linux/half').write_text('')
        self.good('base')
        self.assertFalse((self.linux / 'half').exists())

    def test_foreign_linux_is_left_alone(self):
        self.linux.mkdir()
        (self.linux / 'mine').write_text('')
        self.bad('base', says='has no tag `base`')
        self.assertTrue((self.linux / 'mine').exists())

    # tree and export

    def test_round_trip(self):
        self.two_topics()
        before, base = self.patches(), (self.top / 'BASE').read_bytes()
        self.assertEqual(
            list(before),
            [
                'series/one/0001-a-first.patch',
                'series/two/0001-new-second-with-mlaut-and-an-exceedingly-long-subjec.patch',
            ],
        )
        self.assertIn(b'kernel/a.c', base)
        self.assertNotIn(b'kernel/new.c', base)
        shutil.rmtree(self.linux)
        (self.home / '.gitconfig').write_text("""[user]
 name = Someone Else
 email = else@example.com
[format]
 signature = x
 numbered = true
 headers = "X-Mine: yes\\n"
 subjectPrefix = RFC
 cc = cc@example.com
 from = true
 thread = true
 signOff = true
 notes = true
 coverLetter = true
[diff]
 algorithm = minimal
 context = 7
 noprefix = true
 mnemonicPrefix = true
 renames = false
 statGraphWidth = 3
[core]
 abbrev = 8
 autocrlf = true
[am]
 keepcr = false
[commit]
 gpgSign = true
[apply]
 whitespace = fix
""")
        self.good('base')
        self.good('tree')
        self.good('export')
        self.assertEqual(self.patches(), before)
        self.assertEqual((self.top / 'BASE').read_bytes(), base)
        self.assertEqual(self.git('symbolic-ref', '--short', 'HEAD'), 'two')

    def alone(self, topic):
        """The folders of base and patched source with which the topic is measured."""
        program = (
            f'from kit.build import alone; found = alone.trees({topic!r}); '
            'print(found.base.linux, found.patched.linux, sep="\\n")'
        )
        done = self.call(sys.executable, '-c', program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return map(Path, done.stdout.splitlines()[-2:])

    def test_a_topic_is_measured_alone(self):
        self.two_topics()
        self.good('tree')
        before = self.state()
        base, patched = self.alone('one')
        self.assertEqual(base, self.top / 'build/base/linux')
        self.assertNotEqual((patched / 'kernel/a.c').read_text(), CODE)
        self.assertFalse((patched / 'kernel/new.c').exists())
        base, patched = self.alone('two')
        self.assertEqual((patched / 'kernel/a.c').read_text(), CODE)
        self.assertTrue((patched / 'kernel/new.c').exists())
        # now it needs another topic, which both kernels then contain
        (self.top / 'series/two/topic.toml').write_text('after = ["one"]\n')
        base, patched = self.alone('two')
        for folder in base, patched:
            self.assertNotEqual((folder / 'kernel/a.c').read_text(), CODE)
        self.assertFalse((base / 'kernel/new.c').exists())
        self.assertTrue((patched / 'kernel/new.c').exists())
        self.assertEqual(self.state(), before)

    def test_same_commits_anywhere(self):
        self.two_topics()
        tips = []
        for _ in range(2):
            shutil.rmtree(self.linux)
            self.good('base')
            self.good('tree')
            tips.append(self.git('rev-parse', 'one', 'two'))
        self.assertEqual(*tips)

    def test_patches_that_are_gone_are_deleted(self):
        self.two_topics()
        self.git('reset', '-q', '--hard', 'one')
        self.good('export')
        self.assertEqual(list(self.patches()), ['series/one/0001-a-first.patch'])

    def test_patch_that_does_not_apply(self):
        self.two_topics()
        # break the topic's second patch: all are applied at once, but the error names this patch
        self.git('checkout', '-q', 'one')
        self.commit('kernel/a.c', 'LINE 5\n', 'last\n', 'a: second\n\nWhy.')
        self.git('checkout', '-q', 'two')
        self.git('rebase', '-q', 'one')
        self.good('export')
        path = self.top / 'series/one/0002-a-second.patch'
        path.write_bytes(path.read_bytes().replace(b'-LINE 5', b'-line five'))
        before = self.state()
        self.bad('tree', says='0002-a-second.patch ("a: second") of topic one does not apply')
        self.assertEqual(self.state(), before)
        self.assertFalse((self.top / 'build/apply/linux').exists())

    def test_uncommitted_work_is_not_lost(self):
        self.two_topics()
        path = self.top / 'series/one/0001-a-first.patch'
        path.write_bytes(path.read_bytes().replace(b'+LINE 5', b'+Line 5'))
        (self.linux / 'kernel/b.c').write_text('work\n')
        before = self.state()
        self.bad('tree', says='uncommitted changes (kernel/b.c)')
        self.assertIn('used as it is', self.good('tree', '--keep'))
        self.assertEqual(self.state(), before)

    def test_commits_are_not_lost(self):
        self.two_topics()
        self.commit('kernel/b.c', 'line 1\n', 'work\n', 'b: work')
        before = self.state()
        self.bad('tree', says='commits that series/ lacks (branch two): make export')
        self.assertIn('used as it is', self.good('tree', '--keep'))
        self.git('checkout', '-q', '--detach')
        self.commit('kernel/b.c', 'line 2\n', 'work\n', 'b: more')
        self.bad('tree', says='detached HEAD')
        self.bad('export', says='commits beyond the branch two')
        self.git('checkout', '-q', 'two')
        self.assertEqual(self.state(), before)
        self.good('export')
        self.assertEqual(len(self.patches()), 3)

    def test_series_that_changed_is_applied(self):
        self.two_topics()
        path = self.top / 'series/one/0001-a-first.patch'
        path.write_bytes(path.read_bytes().replace(b'+LINE 5', b'+Line 5'))
        self.bad('export', says='has changed since linux/ was made from series/')
        self.good('tree')
        self.assertIn('Line 5', (self.linux / 'kernel/a.c').read_text())

    def test_rebase_under_way(self):
        self.two_topics()
        (self.linux / '.git/rebase-merge').mkdir()
        self.bad('tree', says='git rebase is under way')
        self.bad('export', says='git rebase is under way')

    def test_branches_that_do_not_stand_on_each_other(self):
        self.two_topics()
        self.git('checkout', '-q', 'one')
        self.commit('kernel/b.c', 'line 1\n', 'work\n', 'b: work')
        self.git('checkout', '-q', 'two')
        before = self.patches()
        self.bad('export', says='branch two is not based on one')
        self.assertEqual(self.patches(), before)

    # killed

    def test_half_a_checkout(self):
        """Files that a killed `tree` has written are the user's work only if they were changed."""
        self.two_topics()
        shutil.rmtree(self.linux)
        self.good('base')
        self.good('tree')
        self.git('checkout', '-q', '--detach', 'base')
        self.git('branch', '-q', '-D', 'one', 'two')
        (self.linux / '.git/series-state').unlink()
        self.git('checkout', '-q', 'refs/series/made', '--', '.')
        self.git('reset', '-q')
        (self.linux / 'kernel/new.c').write_text('mine\n')
        self.bad('tree', says='uncommitted changes (kernel/new.c)')
        self.assertEqual((self.linux / 'kernel/new.c').read_text(), 'mine\n')
        (self.linux / 'kernel/new.c').write_text('new\n')
        self.good('tree')
        self.assertEqual(self.git('status', '--porcelain'), '')

    def test_lock_of_a_killed_git(self):
        self.good('base')
        lock = self.linux / '.git/config.lock'
        lock.touch()
        self.bad('tree', says=f'{lock} exists: if no git is running, remove it')
        lock.unlink()
        self.good('tree')

    def killed(self, after, *words):
        """Kills the verb after this number of seconds. Its child process continues, and the next
        verb waits for it."""
        env = {
            'PATH': os.environ['PATH'],
            'HOME': str(self.home),
            'KIT_NO_SETUP': '1',
            'PYTHONDONTWRITEBYTECODE': '1',
            'LINUX': str(self.toy),
        }
        if words[0] != 'base':
            del env['LINUX']
        with subprocess.Popen(
            [sys.executable, '-m', 'kit', *words],
            cwd=self.top,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as verb:
            try:
                verb.wait(after)
            except subprocess.TimeoutExpired:
                os.killpg(verb.pid, signal.SIGKILL)

    def called_again(self, verb):
        """Calls the verb again. A git that was killed while it wrote to linux/ leaves a lock or an
        incomplete file. The verb then reports an error, and the user must remove it."""
        done = self.verb(verb)
        if done.returncode:
            locks = list((self.linux / '.git').rglob('*.lock'))
            # with both, the verb may report either
            found = r'\.lock\b|uncommitted changes' if locks else 'uncommitted changes'
            self.assertRegex(done.stderr, found)
            for lock in locks:
                lock.unlink()
            self.git('reset', '-q', '--hard')
            self.git('clean', '-qfd')
            self.good(verb)

    def killed_at_random(self, verb, prepare):
        """Kills the verb at a random moment, calls it again, and yields; repeats this a few
        times."""
        prepare()
        start = time.monotonic()
        self.good(verb)
        took = time.monotonic() - start
        yield
        seed = int(os.environ.get('KIT_TEST_SEED') or random.randrange(1 << 32))
        moments = random.Random(seed)
        for number in range(5):
            prepare()
            with self.subTest(f'{verb}, KIT_TEST_SEED={seed}, kill {number}'):
                self.killed(moments.uniform(0.1, 1) * took, verb)
                self.called_again(verb)
            yield

    def test_killed_at_any_moment(self):
        self.two_topics()

        def without_linux():
            shutil.rmtree(self.linux)

        def base_alone():
            without_linux()
            self.good('base')

        tags = {self.git('rev-parse', 'base^{tree}')}
        for _ in self.killed_at_random('base', without_linux):
            tags.add(self.git('rev-parse', 'base^{tree}'))
        self.assertEqual(len(tags), 1)
        tips = set()
        for _ in self.killed_at_random('tree', base_alone):
            tips.add(self.git('rev-parse', 'one', 'two'))
            self.assertEqual(self.git('status', '--porcelain'), '')
        self.assertEqual(len(tips), 1)

        def one_more_commit():
            self.commit('kernel/b.c', 'line 1\n', 'line 1\nmore\n', 'b: more\n\nWhy.')

        for _ in self.killed_at_random('export', one_more_commit):
            commits = len(self.git('rev-list', 'base..two').split())
            self.assertEqual(len(self.patches()), commits)
            self.assertIn('linux/ matches series/', self.good('tree'))

    # mail

    def mail(self, *words, refuses=b'', **env):
        """(exit status, errors, mails) after mailing topic two to a server that keeps all mails."""
        with Sink(refuses) as sink:
            (self.home / '.gitconfig').write_text(
                sink.configuration() + '[user]\n name = A Sender\n email = sender@example.com\n'
            )
            done = self.verb(
                'mail',
                *words,
                TOPIC='two',
                GIT_CEILING_DIRECTORIES=str(self.work),
                GIT_CONFIG_NOSYSTEM='1',
                **{'SEND': '1', 'REVIEWED': '1', **env},
            )
            self.assertEqual('Traceback' in done.stderr, bool(refuses))  # b4 prints it
            return done.returncode, done.stderr, sink.mails

    def mailable(self):
        """two_topics(), a cover letter, and fakes of get_maintainer and checkpatch."""
        try:
            tool('b4')
        except KitError as error:
            self.skipTest(str(error))
        (self.top / 'build').mkdir(exist_ok=True)
        (self.top / 'build/tools').symlink_to(TOOLS)
        (self.toy / 'scripts').mkdir()
        (self.toy / 'scripts/get_maintainer.pl').write_text(
            'print qq("A Maintainer (Firm)" <one\\@example.com> (maintainer:TOY)\\n'
            'A Reader <two\\@example.com> (reviewer:TOY)\\n'
            'list\\@example.com (open list:TOY)\\n);\n'
        )
        (self.toy / 'scripts/checkpatch.pl').write_text(
            'exit 0 unless -e "../found"; print "a finding\\n"; exit 1;\n'
        )
        self.two_topics()
        (self.linux / 'kernel/new.c').write_text(CODE)
        self.git('commit', '-q', '-a', '--amend', '--no-edit')
        self.good('export')
        (self.top / 'series/two/cover.md').write_text('# Second\n\nWhy.\n')

    def sent(self, name='two'):
        """The tags of sent versions, oldest first."""
        return self.git('tag', '--list', f'sent/*-{name}-*').splitlines()

    def test_mail_and_its_second_version(self):
        self.mailable()
        status, said, mails = self.mail()
        self.assertEqual((status, len(mails)), (0, 1), said)
        people = {'list@example.com', 'one@example.com', 'two@example.com'}
        for recipients, data in mails:
            self.assertEqual(people - set(recipients), set())
            self.assertNotIn(b'Range-diff', data)
        self.assertIn(b'\nTo: A Maintainer (Firm) <one@', mails[0][1].replace(b'"', b''))
        self.assertIn(b'\n---\nWhy.\n', mails[0][1])  # one patch: the letter is below its message
        self.assertIn(f'base-commit: {self.git("rev-parse", "base")}'.encode(), mails[0][1])
        self.assertIn(b'\nSigned-off-by: A Sender <sender@example.com>\n', mails[0][1])
        # topic two was mailed on the base, not on topic one
        [tag] = self.sent()
        self.assertEqual(*self.git('rev-parse', f'{tag}^', 'base').splitlines())

        (self.linux / 'kernel/new.c').write_text(f'{CODE}newer\n')
        self.git('commit', '-q', '-a', '--amend', '--no-edit')
        self.good('export')
        status, said, mails = self.mail()
        self.assertIn('lists no changes (Changes since v1:)', said)
        self.assertEqual((status, len(mails)), (0, 1), said)
        self.assertIn(b'=5BPATCH_v2=5D_new', mails[0][1])
        self.assertRegex(mails[0][1], rb'Range-diff against v1:\n\n1:  \w+ ! 1:  \w+ new: second')
        self.assertIn(b'++newer\n', mails[0][1])
        self.assertEqual([tag[-3:] for tag in self.sent()], ['-v1', '-v2'])

    def authored(self, *authors):
        """Gives the topic `two` one commit by each of these authors."""
        self.git('reset', '-q', '--hard', 'one')
        for number, author in enumerate(authors):
            self.commit(f'kernel/{number}.c', '', CODE, f'{number}: add it\n\nWhy.')
            self.git('commit', '-q', '--amend', '--no-edit', f'--author={author}')
        self.good('export')

    def test_mail_keeps_a_contributor_as_author(self):
        self.mailable()
        like_it = PLACEHOLDER.replace('Seed', 'Other').replace('users.noreply.', '')
        like_it = f'{like_it.rpartition(".")[0]}.org>'
        self.authored(PLACEHOLDER, 'C. Ontributor <c@example.org>', like_it)
        status, said, mails = self.mail()
        self.assertEqual((status, len(mails)), (0, 4), said)
        letter, ours, theirs, other = (data for _, data in mails)
        for data in (letter, ours, theirs, other):
            self.assertIn(b'\nFrom: A Sender <sender@example.com>\n', b'\n' + data)
        self.assertEqual(ours.count(b'\nFrom: '), theirs.count(b'\nFrom: ') - 1)
        self.assertIn(b'\n\nFrom: "C. Ontributor" <c@example.org>\n\n', theirs)
        self.assertIn(f'\n\nFrom: {like_it}\n\n'.encode(), other)
        self.assertIn(b'\nA Sender (1):\n', letter)
        self.assertIn(b'\nC. Ontributor (1):\n', letter)

    def test_mail_that_nobody_has_reviewed(self):
        self.mailable()
        status, said, mails = self.mail(REVIEWED='')
        self.assertEqual((bool(status), mails), (True, []), said)
        self.assertIn('REVIEWED=1', said)
        self.assertIn('generated-content.rst', said)
        # REFLECT=1 sends the mail to the sender only
        status, said, mails = self.mail(REVIEWED='', SEND='', REFLECT='1')
        people = [recipients for recipients, _ in mails]
        self.assertEqual((status, people), (0, [['sender@example.com']]), said)
        self.assertIn(b'one@example.com', mails[0][1])
        self.assertEqual(self.sent(), [])

    def test_mail_of_an_author_whom_nobody_can_ask(self):
        self.mailable()
        private = 'C Ontributor <1234+c@users.noreply.github.com>'
        self.authored(PLACEHOLDER, private)
        for send in '1', '':
            status, said, mails = self.mail(SEND=send)
            self.assertEqual((bool(status), mails), (True, []), said)
            self.assertRegex(
                said.splitlines()[-1],
                'mail cannot reach ' + re.escape(private) + r', the author of \w+ \("1: add it"\)',
            )

    def test_mail_of_a_topic_that_needs_another(self):
        self.mailable()
        (self.top / 'series/two/topic.toml').write_text('after = ["one"]\n')
        status, said, mails = self.mail()
        self.assertEqual((status, len(mails)), (0, 1), said)
        self.assertRegex(mails[0][1], rb'\nprerequisite-patch-id: [0-9a-f]{40}\n')
        self.assertEqual(
            *self.git('rev-parse', f'{self.sent()[0]}^^{{tree}}', 'one^{tree}').split()
        )
        (self.top / 'series/two/topic.toml').write_text('after = ["three"]\n')
        status, said, mails = self.mail()
        self.assertEqual((bool(status), mails), (True, []), said)
        self.assertIn('after: three is not before it in series/order', said)

    def test_mail_of_patches_one_by_one(self):
        self.mailable()
        self.commit(
            'kernel/b.c',
            'line 9\n',
            'LINE 9\n',
            'b: third\n\nWhy.\n\nSuggested-by: A Friend <friend@example.com>',
        )
        self.commit('kernel/new.c', 'line 9\n', 'LINE 9\n', 'new: fourth\n\nWhy.')
        self.good('export')
        settings = self.top / 'series/two/topic.toml'
        settings.write_text('single = true\n')
        status, said, mails = self.mail()
        self.assertEqual((bool(status), mails), (True, []), said)
        self.assertIn('0003-new-fourth.patch does not apply to the base alone', said)
        second = 'new: second, with ümlaut and an exceedingly long subject to be folded'
        settings.write_text(f'single = true\n[needs]\n"new: fourth" = ["{second}"]\n')
        status, said, mails = self.mail()
        self.assertEqual((status, len(mails)), (0, 3), said)
        for _, data in mails:
            self.assertIn(f'base-commit: {self.git("rev-parse", "base")}'.encode(), data)
            self.assertRegex(data, rb'\nSubject: (=\?utf-8|\[PATCH\] )')
            self.assertNotIn(b'In-Reply-To', data)
        self.assertEqual(
            [b'prerequisite-patch-id' in data for _, data in mails], [False, False, True]
        )
        self.assertEqual(['friend@example.com' in to for to, _ in mails], [False, True, False])
        # each is based on the base; then a second version of one patch
        [tag] = self.sent('two-b-third')
        self.assertEqual(*self.git('rev-parse', f'{tag}^', 'base').split())
        self.git('reset', '-q', '--hard', 'HEAD^')
        (self.linux / 'kernel/b.c').write_text(f'{CODE}newer\n')
        self.git('commit', '-q', '-a', '--amend', '--no-edit')
        self.good('export')
        self.bad('mail', TOPIC='two', PATCH='fifth', says='no patch of two has that in its name')
        self.bad('mail', TOPIC='two', PATCH='third', says='no patch has the subject "new: fourth"')
        settings.write_text('single = true\n')
        status, said, mails = self.mail(PATCH='third')
        self.assertEqual((status, len(mails)), (0, 1), said)
        self.assertIn(b'Subject: [PATCH v2] b: third', mails[0][1])
        self.assertIn(b'Range-diff against v1:', mails[0][1])
        self.bad('mail', TOPIC='one', PATCH='a', says='one is mailed as a whole')

    def test_mail_that_is_not_sent(self):
        self.mailable()
        self.assertEqual(self.mail(SEND='')[::2], (0, []))
        written = (self.top / 'build/mail/two.mbox').read_bytes()
        self.assertEqual(written.count(b'\nMessage-Id: '), 1)
        status, said, mails = self.mail(refuses=b'@')
        self.assertEqual((bool(status), mails), (True, []), said)
        self.assertEqual(self.git('tag'), 'base')
        (self.top / 'found').write_text('')
        status, said, mails = self.mail()
        self.assertEqual((bool(status), mails), (True, []))
        self.assertIn('nothing was sent: checkpatch --strict finds 1 faults', said)
        self.assertEqual(self.git('tag'), 'base')

    def test_mail_of_a_base_that_others_have(self):
        self.mailable()
        self.git('init', '-q', cwd=self.toy)
        self.git('add', '-A', cwd=self.toy)
        self.git('commit', '-q', '-m', 'x', cwd=self.toy)
        self.git('tag', '-a', '-m', 'x', 'v7.3.4', cwd=self.toy)
        status, said, mails = self.mail()
        self.assertEqual(status, 0, said)
        self.assertIn(
            f'base-commit: {self.git("rev-parse", "HEAD", cwd=self.toy)}'.encode(), mails[0][1]
        )

    # arguments

    def test_what_would_be_ignored_is_an_error(self):
        self.bad('bench', says='FLAVOUR= is not an option of bench', FLAVOUR='debug')
        self.bad('bench', says='no topic has a measure.py')
        self.bad('tree', says='TEST= is not an option of tree', TEST='x', LINUX='')
        self.bad('export', says='LINUX= is not an option of export', LINUX='/x')
        self.bad('test', '--base', 'v7.3.4', says='BASE= needs LINUX=')

    def test_clean_in_a_folder_with_a_space(self):
        self.repository('my work/repository')
        shutil.copy(TOP / 'Makefile', self.top)
        (self.work / 'my').mkdir()
        self.linux.mkdir()
        self.git('init', '-q')
        self.commit('a', '', 'a\n', 'a')
        self.git('worktree', 'add', '-q', str(self.top / 'build/base/linux'))
        done = self.call('make', 'clean')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.work / 'my').exists(), 'make clean: a folder of somebody else')
        self.assertFalse((self.top / 'build').exists())
        self.assertEqual(len(self.git('worktree', 'list').splitlines()), 1)

    def test_a_bisect_goes_on(self):
        self.two_topics()
        self.git('bisect', 'start', 'two', 'two~1')
        self.git('checkout', '-q', 'one~1')
        head = self.git('rev-parse', 'HEAD')
        self.assertIn('a git bisect is under way', self.good('tree', '--keep'))
        self.assertEqual(self.git('rev-parse', 'HEAD'), head)

    def test_what_is_checked_out_stays(self):
        self.two_topics()
        self.git('checkout', '-q', 'one')
        self.assertIn(
            'used as it is, at one; `make tree` goes back to two',
            self.good('tree', '--keep', '--stay'),
        )
        self.assertEqual(self.git('symbolic-ref', '--short', 'HEAD'), 'one')
        self.good('tree', '--keep')
        self.assertEqual(self.git('symbolic-ref', '--short', 'HEAD'), 'two')

    def test_several_at_once(self):
        self.two_topics()
        self.git('checkout', '-q', '--detach', 'one')
        self.git('branch', '-q', '-D', 'two')
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(self.verb, ['tree'] * 4))
        self.assertEqual([each.returncode for each in done], [0] * 4, done)
        self.assertEqual(self.git('symbolic-ref', '--short', 'HEAD'), 'two')

    def test_arch_that_is_exported(self):
        shutil.copy(TOP / 'Makefile', self.top)
        done = self.call('make', 'help', ARCH='arm64')
        self.assertIn('ARCH= or BASE= is exported', done.stderr)
        self.assertEqual(self.call('make', 'help', 'ARCH=arm64').returncode, 0)

    def test_base_that_is_there_from_elsewhere(self):
        self.good('base')
        self.good('base')
        other = self.work / 'other'
        shutil.copytree(self.toy, other)
        self.bad('base', says='would be ignored', LINUX=str(other))

    def test_newest_release_of_a_tree(self):
        self.git('init', '-q', cwd=self.toy)
        for sublevel in (4, 5, 10):
            (self.toy / 'Makefile').write_text(MAKEFILE.format(sublevel))
            self.git('add', '-A', cwd=self.toy)
            self.git('commit', '-q', '-m', 'x', cwd=self.toy)
            self.git('tag', f'v7.3.{sublevel}', cwd=self.toy)
        self.assertIn('linux/ is Linux 7.3.10', self.good('base'))

    # topics

    def boots(self):
        script = (
            'from kit import topics\nfrom kit.test import plan\n'
            'print([(b.arch, b.options.iommu, b.options.cpus, len(b.tests)) '
            'for b in plan.chosen()], [c.name for c in topics.compiled()], '
            'topics.config(["x86_64-debug"]))'
        )
        done = self.call(sys.executable, '-c', script)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_new_topic(self):
        """Follows the example in CONTRIBUTING.md."""
        page = (TOP / 'CONTRIBUTING.md').read_text()
        shutil.copytree(TOP / 'guest', self.top / 'guest')
        self.two_topics()
        without = self.boots()
        commands = page.partition('## A new topic')[2].partition('    # commits')[0]
        for line in commands.splitlines():
            if line.startswith('    '):
                self.assertEqual(self.call('sh', '-c', line).returncode, 0, line)
        self.commit('kernel/mine.c', '', 'new\n', 'mine: add it\n\nWhy.')
        self.good('export')
        self.assertTrue((self.top / 'series/mine/01-first/0001-mine-add-it.patch').exists())
        text = page.partition('```toml\n')[2].partition('```')[0]
        (self.top / 'series/mine/topic.toml').write_text(text)
        self.assertEqual(
            set(tomllib.loads(text)), set(fields_of(Topic)), 'the example has each key'
        )
        self.assertEqual(
            self.boots(),
            "[('x86_64', 'virtio', 0, 1), "
            "('x86_64', 'virtio', 4, 1)] ['up'] [(PosixPath('"
            + str(self.top)
            + "/series/mine/topic.toml'), "
            "{'PROC_PID_CPUSET': 'y'})]\n",
        )
        # and remove it again
        shutil.rmtree(self.top / 'series/mine')
        (self.top / 'series/order').write_text('one\ntwo\n')
        self.assertEqual(self.boots(), without)
        self.good('tree')

    def test_a_topic_below_others_taken_away(self):
        self.two_topics()
        shutil.rmtree(self.top / 'series/one')
        (self.top / 'series/order').write_text('two\n')
        self.good('tree')
        self.assertEqual(self.git('branch', '--format=%(refname:short)'), 'two')
        self.good('export')
        self.assertEqual([name.split('/')[1] for name in self.patches()], ['two'])
        self.assertNotIn('kernel/a.c', (self.top / 'BASE').read_text())

    # CI

    def ci(self, check, test, **env):
        """(exit status, last line) of .ci/run with a Makefile that has these two recipes."""
        shutil.copytree(TOP / '.ci', self.top / '.ci')
        (self.top / 'Makefile').write_text(f'check:\n\t@{check}\ntest:\n\t@{test}\n')
        done = self.call('sh', '.ci/run', **env)
        shutil.rmtree(self.top / '.ci')
        return done.returncode, done.stdout.splitlines()[-1]

    def test_sums_of_ci(self):
        good = 'echo 3 passed, 0 failed, 1 skipped'
        bad = 'echo 2 passed, 1 failed, 0 skipped; exit 1'
        self.assertEqual(self.ci(good, good), (0, '6 passed, 0 failed, 2 skipped'))
        self.assertEqual(self.ci(bad, good), (1, '5 passed, 1 failed, 1 skipped'))
        # the exit status or the closing line contradicts the counts
        self.assertEqual(self.ci(f'{good}; exit 1', good), (1, '6 passed, 1 failed, 2 skipped'))
        self.assertEqual(self.ci('true', good), (1, '3 passed, 1 failed, 1 skipped'))
        narrowed = 'echo $${#TEST} passed, $${#ARCH} failed, $${#FULL} skipped'
        self.assertEqual(
            self.ci(narrowed, narrowed, TEST='x', ARCH='arm64', FULL='1'),
            (0, '0 passed, 0 failed, 0 skipped'),
        )
