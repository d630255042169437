# SPDX-License-Identifier: GPL-2.0-only
"""Applies series/ to the base in a separate worktree."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, shown
from kit.process import Environment, Progress, say
from kit.source.git import git, remove, sparse_worktree, try_git
from kit.source.patches import files_of, patch_files, patch_subject, strays
from kit.source.pinned import PINNED, PREIMAGES, as_pinned, base_file, pinned, tag_of, version_of
from kit.topics import order, parts


def stopped_at(folder: Path) -> int:
    """Returns the number of the patch at which git am stopped."""
    file = folder / git('rev-parse', '--git-path', 'rebase-apply/next', cwd=folder).strip()
    return int(file.read_text()) if file.exists() else 1


AM = (
    'am',
    '--quiet',
    '--committer-date-is-author-date',
    '--no-gpg-sign',
    '--no-signoff',
    '--keep-cr',
    '--no-scissors',
    '--patch-format=mbox',
    '--whitespace=nowarn',
)


def am(
    folder: Path, paths: Sequence[Path], *more: str, env: Environment | None = None
) -> tuple[Path, str, str] | None:
    """Runs git am a single time with all patches, because each start reads and writes an index of
    90,000 files. Returns None, or (patch that does not apply, ' (FILE)', git's output). FILE is the
    file that the patch could not change."""
    done = try_git(*AM, *(more or ['--3way']), *paths, cwd=folder, env=env)
    if not done.returncode:
        return None
    text = done.stdout + done.stderr
    found = re.search(
        r'CONFLICT .* in (\S+)|error: patch failed: (\S+)|error: (\S+): does not', text
    )
    names = (
        [next(filter(None, found.groups()))]
        if found
        else git('diff', '--name-only', '--diff-filter=U', cwd=folder).splitlines()
    )
    return paths[stopped_at(folder) - 1], f' ({names[0]})' if names else '', text


def preimages() -> None:
    """If linux/ is not the release in BASE, applies the series to that release, of which only the
    files that the series touch are stored. Without the resulting files, git cannot merge patches
    (kit/source/preimages.py)."""
    if version_of(git('show', 'base:Makefile')) == pinned()[0] or not as_pinned(
        lambda path: base_file(path, PINNED)
    ):
        return
    folder = BUILD / 'preimages' / 'linux'
    with Lock(folder.parent):
        remove(folder)
        git('worktree', 'add', '--quiet', '--force', '--force', '--detach', folder, PINNED)
        try:
            for topic in filter(patch_files, parts()):
                if am(folder, patch_files(topic)):
                    say(f'note: topic {topic} does not apply to the files of {pinned()[0]} in BASE')
                    return
            git('update-ref', PREIMAGES, git('rev-parse', 'HEAD', cwd=folder).strip())
        finally:
            remove(folder)


def put(folder: Path, topic: str) -> str:
    """Applies the patches of a topic or posting in the worktree; returns the commit."""
    if failed := am(folder, patch_files(topic)):
        path, where, text = failed
        note = ''
        version, wanted = version_of(git('show', 'base:Makefile')), pinned()[0]
        if 'No space left' in text:
            raise KitError('no space left on the disk; linux/ is unchanged')
        if version != wanted:
            note = f'; the base is {version}, the series is based on {wanted}'
        if 'lacks necessary blobs' in text:
            tag = tag_of(wanted)
            note += f', and git cannot merge without its files: set LINUX= to a tree with {tag}'
        raise KitError(
            f'{path.name} ("{patch_subject(path)}") of topic {topic} does not '
            f'apply{where}{note}; linux/ is unchanged'
        )
    return git('rev-parse', 'HEAD', cwd=folder).strip()


def apply(folder: Path) -> dict[str, str]:
    """Applies series/ in a separate worktree; returns {part: commit}."""
    for topic in order():
        if found := strays(topic):
            raise KitError(f'{shown(found[0])} is in no posting of {topic}: make export')
    patches = [path for topic in order() for path in patch_files(topic)]
    preimages()
    sparse_worktree(folder, files_of(patches) or {'Makefile'})
    progress, tips = Progress('apply series/'), {}
    for topic in parts():
        progress.tick(topic)
        tips[topic] = put(folder, topic)
    progress.done(f'({len(patches)} patches)')
    return tips


@functools.cache
def applied() -> dict[str, str]:
    """Returns {part: commit} of series/. The series is applied from scratch once per process."""
    with Lock(BUILD / 'apply'):
        folder = BUILD / 'apply' / 'linux'
        try:
            return apply(folder)
        finally:
            remove(folder)
