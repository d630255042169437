# SPDX-License-Identifier: GPL-2.0-only
"""Seeds bugs in a tree, and runs tests in guests whose kernels have these bugs."""

import re
from collections.abc import Sequence
from pathlib import Path

from kit.build.trees import OURS, Tree
from kit.errors import KitError
from kit.model import Boot, Test
from kit.paths import BUILD
from kit.source.git import git, try_git, whole_worktree
from kit.test import test, verdict
from kit.test.verdict import FAILED, Result
from kit.topics import parts
from kit.vm import guest


class Quiet(verdict.Report):
    """A report that prints nothing, because failures are expected."""

    def __init__(self, tests: Sequence[Test], enough: str) -> None:
        """`enough` is a regular expression that matches the title of an expected failure."""
        super().__init__(tests)
        self.enough, self.expected = enough, ''

    def show(self, word: str, result: str, seconds: float) -> None:
        title = f'{self.name}: {result}'
        if word == 'not ok' and re.search(self.enough, title):
            self.expected = title

    def heard(self, line: str) -> bool:
        """Adds a line of output, and returns whether an expected failure was reported."""
        self.line(line)
        return bool(self.expected)

    def failed(self) -> list[Result]:
        return [result for result in self.results() if result.word == FAILED]


def tree_of(arch: str) -> Tree:
    """Returns the tree in which bugs are seeded, for kernels of this architecture."""
    return Tree(f'mutant-{arch}', BUILD / 'mutants' / arch)


def take_back(tree: Tree) -> None:
    git('checkout', '-q', '--force', 'HEAD', '--', '.', cwd=tree.linux)


def clean(arch: str) -> Tree:
    """Resets the tree to the whole series without a bug. The caller holds the tree's lock."""
    tree = tree_of(arch)
    whole_worktree(tree.name, tree.linux, git('rev-parse', f'refs/heads/{parts()[-1]}').strip())
    take_back(tree)
    return tree


def made(tree: Tree, diff: str, name: str) -> None:
    """Applies the diff of a bug to the tree. Only the files that the diff changes get a new
    modification time, so make rebuilds only the objects that depend on them."""
    done = try_git('apply', '-C1', '--unidiff-zero', '-', cwd=tree.linux, stdin=diff)
    if done.returncode:
        raise KitError(f'{name} does not apply: {done.stderr.strip()}')


def run_boot(boot: Boot, image: Path, name: str, enough: str = '') -> tuple[Quiet, int, str]:
    """Boots the image and runs the boot's tests until the title of a failure matches `enough`, a
    regular expression. Returns (report of the tests, status of the guest, text). The text is the
    guest's message and the lines of its console. The test programs are built without the bug."""
    said = Quiet(boot.tests, enough)
    ended = guest.run_guest(
        boot.machine,
        image,
        verdict.job_of(boot.tests),
        test.programs(boot, OURS),
        test.patient(boot),
        name=name,
        on_line=said.heard,
    )
    return said, ended.status, f'{ended.message}\n{ended.detail}'
