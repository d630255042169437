# SPDX-License-Identifier: GPL-2.0-only
"""A tree in which mistakes are made, and guests that run tests with one."""

from pathlib import Path

from kit.build.trees import OURS, Tree
from kit.errors import KitError
from kit.model import Boot
from kit.paths import BUILD
from kit.source.git import git, try_git, whole_worktree
from kit.test import test, verdict
from kit.test.verdict import FAILED, Result
from kit.topics import parts
from kit.vm import guest


class Quiet(verdict.Report):
    """Keeps what tests say to itself: that they fail is what is wanted."""

    def show(self, word: str, result: str, seconds: float) -> None:
        pass

    def failed(self) -> list[Result]:
        return [result for result in self.results() if result.word == FAILED]


def tree_of(arch: str) -> Tree:
    """Where mistakes are made, for kernels of this architecture."""
    return Tree(f'mutant-{arch}', BUILD / 'mutants' / arch)


def take_back(tree: Tree) -> None:
    git('checkout', '-q', '--force', 'HEAD', '--', '.', cwd=tree.linux)


def clean(arch: str) -> Tree:
    """The tree with the whole series in it, and no mistake. The caller holds its lock."""
    tree = tree_of(arch)
    whole_worktree(tree.name, tree.linux, git('rev-parse', f'refs/heads/{parts()[-1]}').strip())
    take_back(tree)
    return tree


def made(tree: Tree, diff: str, name: str) -> None:
    """Makes the mistake. Only its files get a new time, so make compiles no others."""
    done = try_git('apply', '-C1', '--unidiff-zero', '-', cwd=tree.linux, stdin=diff)
    if done.returncode:
        raise KitError(f'{name} does not apply: {done.stderr.strip()}')


def run_boot(boot: Boot, image: Path, name: str) -> tuple[Quiet, int, str]:
    """(what the boot's tests said, the guest's status, what the guest's end and its console say);
    the programs are the series', without a mistake."""
    said = Quiet(boot.tests)
    ended = guest.run_guest(
        boot.machine,
        image,
        verdict.job_of(boot.tests),
        test.programs(boot, OURS),
        test.patient(boot),
        name=name,
        on_line=said.line,
    )
    return said, ended.status, f'{ended.message}\n{ended.detail}'
