# SPDX-License-Identifier: GPL-2.0-only
"""Functions that several checks use. They apply the series, check out its commits, compare findings
with those of the base, and remember which inputs have passed."""

import functools
import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kit.errors import KitError
from kit.host import host_cpus
from kit.model import machines
from kit.paths import BUILD
from kit.source.apply import applied
from kit.source.git import git, whole, whole_worktree
from kit.source.patches import patch_files
from kit.source.pinned import touched
from kit.topics import order, parts_of, topic_of

A = TypeVar('A')
B = TypeVar('B')

WORK = BUILD / 'check'  # files of the checks
READ = WORK / 'linux'  # a whole worktree, which checks only read
GENERIC = 'x86_64'  # generic code is built for this architecture
ONE_AT_A_TIME = threading.Lock()  # held while the series is applied or a worktree is added


class Failed(Exception):
    """A check failed; the message has one finding per line."""


class Skipped(Exception):
    """A check had nothing to do; the message has the reason."""


class Series:
    """The commits that result from applying series/ to the base."""

    def __init__(self) -> None:
        try:
            self.parts = applied()  # {TOPIC or TOPIC/NN-POSTING: commit}
        except KitError as error:
            raise Failed(f'series/ does not apply: {error}') from error
        self.tips = {topic: self.parts[parts_of(topic)[-1]] for topic in order()}
        self.last = list(self.tips.values())[-1]
        self.files = touched('base', self.last)
        self.new = touched('base', self.last, '--diff-filter=A')
        self.patches = [path for topic in order() for path in patch_files(topic)]
        below, self.topic_files = 'base', {}
        for topic, tip in self.tips.items():
            self.topic_files[topic] = touched(below, tip)
            below = tip
        self.commits, below = [], 'base'
        for part, tip in self.parts.items():
            self.commits += [
                (topic_of(part), commit)
                for commit in git('rev-list', '--reverse', f'{below}..{tip}').split()
            ]
            below = tip

    def present(self, *suffixes: str) -> list[str]:
        """Returns the touched files that exist in the last commit and end with one of the
        suffixes."""
        gone = touched('base', self.last, '--diff-filter=D')
        return [path for path in self.files if path.endswith(suffixes) and path not in gone]

    def kernel_files(self, files: Iterable[str]) -> list[str]:
        """Of the given files, returns only the kernel's own C files."""
        others = ('tools/', 'samples/', 'scripts/', 'Documentation/')
        return [path for path in files if path.endswith('.c') and not path.startswith(others)]


@functools.cache
def of_linux() -> Series:
    return Series()


def series() -> Series:
    """Returns the applied series. The first call applies it; later calls return the same object."""
    with ONE_AT_A_TIME:
        return of_linux()


def need_patches() -> None:
    if not series().patches:
        raise Skipped('no patches in series/')


def checkout(commit: str, tree: Path) -> None:
    """Checks out the commit in the worktree, and removes all files that are not in the commit."""
    commit = git('rev-parse', f'{commit}^{{commit}}').strip()
    if not whole(tree):
        with ONE_AT_A_TIME:  # git numbers worktrees of the same name, which is not thread-safe
            whole_worktree(tree.parent.name, tree, commit)
    git('checkout', '-q', '--force', '--detach', commit, cwd=tree)
    git('clean', '-q', '-ffdx', cwd=tree)


def each(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Calls the function for each item, with one thread per CPU."""
    with ThreadPoolExecutor(host_cpus()) as pool:
        return list(pool.map(function, items))


def new_lines(base: Iterable[str], tip: Iterable[str]) -> list[str]:
    """Returns the findings in `tip` that `base` lacks, ignoring line numbers."""

    def plain(line: str) -> str:
        return re.sub(r':\d+(:\d+)?(?=[: ])', '', line)

    rest, found = Counter(map(plain, base)), []
    for line in tip:
        if rest[plain(line)]:
            rest[plain(line)] -= 1
        else:
            found.append(line)
    return found


def arch_of(path: str) -> str:
    """Returns the architecture for which the file is built, or GENERIC for generic code. For an
    architecture without a guest, returns the name of its folder in arch/."""
    guests = {machine.source_arch: machine.arch for machine in machines()}
    for folder, arch in guests.items():
        if path.startswith((f'arch/{folder}/', f'tools/testing/selftests/{folder}/')):
            return arch
    return path.split('/')[1] if path.startswith('arch/') else GENERIC


def remember(*what: object) -> str:
    """Returns a digest of a check's inputs. A check that has passed is skipped while this digest
    stays the same."""
    return hashlib.sha256(repr(what).encode()).hexdigest()


def passed_before(key: str) -> bool:
    try:
        return key in (WORK / 'built').read_text().split()
    except OSError:
        return False


def passed_now(key: str) -> None:
    with open(WORK / 'built', 'a', encoding='ascii') as file:
        file.write(f'{key}\n')
