# SPDX-License-Identifier: GPL-2.0-only
"""Topics whose patches are mailed one by one (`single = true` in topic.toml). Each patch becomes a
commit on top of the base. Patches that it needs according to [needs] of topic.toml come first."""

import functools
from pathlib import Path

from kit import topics
from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, SERIES, shown
from kit.source.apply import am
from kit.source.git import git, remove, sparse_worktree, try_git
from kit.source.patches import files_of, patch_files, patch_subject


def prerequisites(topic: str, path: Path) -> list[Path]:
    """Returns, in their order, the topic's earlier patches that the patch `path` needs."""
    files = patch_files(topic)
    by_subject = {patch_subject(each): each for each in files}
    where, found = f'{shown(SERIES / topic / "topic.toml")}: needs', set()
    for subject in topics.needs(topic).get(patch_subject(path), []):
        below = by_subject.get(subject)
        if not below:
            raise KitError(f'{where}: no patch has the subject "{subject}"')
        if files.index(below) >= files.index(path):
            raise KitError(f'{where}: "{subject}" comes after "{patch_subject(path)}"')
        found |= {below, *prerequisites(topic, below)}
    return sorted(found)


def unknown_subjects(topic: str) -> list[str]:
    """Returns the subjects in [needs] that no patch of the topic has."""
    return sorted(set(topics.needs(topic)) - set(map(patch_subject, patch_files(topic))))


def commit_alone(folder: Path, topic: str, path: Path) -> tuple[str, str]:
    """Applies the patch to the base in the worktree; returns (commit below, commit)."""
    git('checkout', '--quiet', '--force', '--detach', 'base', cwd=folder)
    below = prerequisites(topic, path)
    for patches in filter(None, (below, [path])):
        # no 3-way merge: linux/ has blobs that a maintainer's tree lacks
        if failed := am(folder, patches, '--no-3way'):
            stopped, where, _ = failed
            try_git('am', '--abort', cwd=folder)
            raise KitError(
                f'{shown(stopped)} does not apply to the base alone{where}: name the patches that '
                f'it needs in [needs] of {shown(SERIES / topic / "topic.toml")}'
            )
    tip = git('rev-parse', 'HEAD', cwd=folder).strip()
    return git('rev-parse', 'HEAD^', cwd=folder).strip(), tip


@functools.cache
def commits(topic: str) -> dict[Path, tuple[str, str]]:
    """Returns {patch: (commit below, commit)} for all patches of the topic."""
    folder = BUILD / 'single' / 'linux'
    if unknown := unknown_subjects(topic):
        raise KitError(
            f'{shown(SERIES / topic / "topic.toml")}: needs: no patch has the subject '
            f'"{unknown[0]}"'
        )
    with Lock(folder.parent):
        files = patch_files(topic)
        sparse_worktree(folder, files_of(files) or {'Makefile'})
        try:
            return {path: commit_alone(folder, topic, path) for path in files}
        finally:
            remove(folder)
