# SPDX-License-Identifier: GPL-2.0-only
"""Locks, worktrees, the user's own tree (all on toy trees), and the CPUs and memory of the host."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from kit import host, lock
from kit.source import git, user_tree
from kit.vm import guest
from tests.support import TOP

MAKEFILE = 'VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n'


class Toy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='trees-')
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)
        self.toy = self.work / 'toy'
        quiet = contextlib.redirect_stderr(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def git(self, *words, cwd=None):
        identity = {'GIT_AUTHOR_NAME': 'A', 'GIT_AUTHOR_EMAIL': 'a@example.com'}
        return git.git(*words, cwd=cwd or self.toy, env=identity).strip()

    def new_toy(self):
        self.toy.mkdir()
        self.git('init', '-q')
        self.commit(Makefile=MAKEFILE, a='a\n')
        self.git('tag', 'v7.3.4')

    def commit(self, **files):
        for name, text in files.items():
            (self.toy / name).write_text(text)
        self.git('add', '-A')
        self.git('commit', '-q', '-m', 'x')


class Locks(Toy):
    VERB = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kit.process import step
from kit.lock import Lock
work = Path(sys.argv[2])
with Lock(work / 'out'):
    step(None, ['sh', '-c', 'echo $$ >started.new; mv started.new started; '
               'while [ ! -e go ]; do sleep 0.1; done; echo >built'],
         log=work / 'log', cwd=work)
"""

    def test_a_build_goes_on_when_its_verb_was_killed(self):
        with subprocess.Popen([sys.executable, '-B', '-c', self.VERB, TOP, self.work]) as verb:
            while not (self.work / 'started').exists():
                self.assertIsNone(verb.poll())
                time.sleep(0.02)
            verb.send_signal(signal.SIGKILL)
        self.assertFalse((self.work / 'built').exists())
        (self.work / 'go').touch()
        with lock.Lock(self.work / 'out'):
            self.assertTrue((self.work / 'built').exists(), 'two builds in one folder')

    def test_results_of_a_guest_that_runs_are_kept(self):
        with mock.patch.object(guest, 'RESULTS', self.work), mock.patch.object(guest, 'FOLDERS', 1):
            running = guest.new_folder('a')
            ended = running.with_name('20000101-000000-b-999999999')
            ended.mkdir()
            guest.new_folder('c')
            guest.new_folder('d')
            self.assertTrue(running.exists())
            self.assertFalse(ended.exists())


class Worktrees(Toy):
    def test_a_repository_that_was_moved_away(self):
        self.new_toy()
        folder = self.work / 'build/linux'
        with mock.patch.object(git, 'LINUX', self.toy):
            git.whole_worktree('x', folder, self.git('rev-parse', 'HEAD'))
            self.toy.rename(self.work / 'away')
            self.git('clone', '-q', self.work / 'away', self.toy, cwd=self.work)
            git.whole_worktree('x', folder, self.git('rev-parse', 'HEAD'))
        self.assertEqual((folder / 'a').read_text(), 'a\n')
        self.assertTrue(git.whole(folder))

    def test_a_name_that_another_worktree_has_now(self):
        self.new_toy()
        one, other = self.work / 'one/linux', self.work / 'other/linux'
        with mock.patch.object(git, 'LINUX', self.toy):
            git.whole_worktree('x', one, self.git('rev-parse', 'HEAD'))
            self.toy.rename(self.work / 'away')
            self.git('clone', '-q', self.work / 'away', self.toy, cwd=self.work)
            git.whole_worktree('x', other, self.git('rev-parse', 'HEAD'))
            self.assertEqual((one / '.git').read_text(), (other / '.git').read_text())
            self.assertTrue(git.whole(other))
            self.assertFalse(git.whole(one))

    def test_a_git_that_was_killed_while_it_added_a_worktree(self):
        self.new_toy()
        one, other = self.work / 'one/linux', self.work / 'other/linux'
        with mock.patch.object(git, 'LINUX', self.toy):
            for file in ('commondir', 'HEAD', 'gitdir'):
                git.whole_worktree('x', one, self.git('rev-parse', 'HEAD'))
                for entry in (self.toy / '.git/worktrees').iterdir():
                    (entry / 'locked').write_text('initializing')
                    (entry / file).write_text('')
                self.assertFalse(git.whole(one))
                git.whole_worktree('x', other, self.git('rev-parse', 'HEAD'))
                git.whole_worktree('x', one, self.git('rev-parse', 'HEAD'))
                self.assertTrue(git.whole(one) and git.whole(other))

    def test_a_git_that_adds_a_worktree_now(self):
        self.new_toy()
        (entry := self.toy / '.git/worktrees/linux').mkdir(parents=True)
        (entry / 'locked').write_text('initializing')

        def another_git(_):
            for file in ('gitdir', 'HEAD', 'commondir'):
                (entry / file).write_text('x')

        with mock.patch.object(git, 'LINUX', self.toy), mock.patch('time.sleep', another_git):
            git.prune()
        self.assertTrue(entry.exists())


class Own(Toy):
    """make run LINUX=: the clone matches the user's tree, and the tree does not change."""

    def setUp(self):
        super().setUp()
        self.new_toy()
        self.commit(a='mine\n')
        (self.toy / 'b').write_text('not committed\n')

    def use(self):
        with mock.patch.object(user_tree, 'BUILD', self.work / 'build'):
            used = user_tree.use(str(self.toy))
            read = [
                {path.name: path.read_text() for path in tree.linux.glob('[ab]')}
                for tree in (used.base, used.patched)
            ]
        self.assertEqual(read[0], {'a': 'a\n'})
        self.assertEqual(read[1], {path.name: path.read_text() for path in self.toy.glob('[ab]')})

    def test_commits_and_what_is_uncommitted(self):
        before = self.git('status', '--porcelain'), (self.toy / '.git/index').read_bytes()
        self.use()
        (self.toy / 'b').unlink()
        self.commit(a='more\n')
        (self.toy / 'a').write_text('changed\n')
        self.use()
        (self.toy / 'a').write_text('more\n')
        self.use()
        self.git('reset', '-q', '--hard', 'HEAD~1')
        (self.toy / 'b').write_text('not committed\n')
        self.use()
        self.assertEqual(self.git('status', '--porcelain'), before[0])

    def test_a_checkout_that_was_killed(self):
        self.use()
        mine = self.work / 'build/own/linux/.git'
        (mine / 'index.lock').touch()
        self.commit(a='more\n')
        self.use()
        # the first checkout was killed: there is a HEAD, but no index yet
        (mine / 'index').rename(mine / 'index.lock')
        self.use()
        # killed before uncommitted changes were copied
        (mine / 'index.lock').touch()
        (self.toy / 'a').write_text('changed\n')
        self.use()

    def test_a_clone_that_is_no_repository(self):
        """git would use the repository of a parent folder, which belongs to the user."""
        self.use()
        self.git('init', '-q', cwd=self.work)
        (self.work / 'mine').write_text('mine\n')
        self.git('add', 'mine', cwd=self.work)
        self.git('commit', '-q', '-m', 'x', cwd=self.work)
        (self.work / 'mine').write_text('not committed\n')
        head = self.git('rev-parse', 'HEAD', cwd=self.work)
        (self.work / 'build/own/linux/.git/HEAD').write_text('')
        self.use()
        self.assertEqual((self.work / 'mine').read_text(), 'not committed\n')
        self.assertEqual(self.git('rev-parse', 'HEAD', cwd=self.work), head)

    def test_a_tree_that_was_moved(self):
        self.use()
        self.toy.rename(self.work / 'elsewhere')
        self.toy = self.work / 'elsewhere'
        self.use()
        borrows = self.work / 'build/own/linux/.git/objects/info/alternates'
        self.assertIn('elsewhere', borrows.read_text(), 'its objects are copied')

    def test_a_tree_of_another_owner(self):
        if os.geteuid():
            self.skipTest('only root can give a tree away')
        subprocess.run(['chown', '-R', '65534', self.toy], check=True)
        self.use()


class Host(unittest.TestCase):
    def test_a_container_is_smaller(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / 'cpu.max').write_text('150000 100000\n')
            (folder / 'memory.max').write_text('max\n')
            self.assertEqual(host.container_limit('cpu.max', folder), [150000, 100000])
            self.assertIsNone(host.container_limit('memory.max', folder))
            self.assertIsNone(host.container_limit('pids.max', folder))
        with mock.patch.object(host, 'container_limit', lambda name: [1, 100000]):
            self.assertEqual((host.host_cpus(), host.host_memory()), (1, 1))
