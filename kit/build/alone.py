# SPDX-License-Identifier: GPL-2.0-only
"""Makes the two kernels with which `make bench` measures a topic or a posting. The first is the
base with the patches that the topic or posting is based on. The second also has the patches of the
topic or posting itself. Neither kernel has any other patch of series/."""

from collections.abc import Sequence

from kit import topics
from kit.build.trees import BASE, PATCHED, Tree, Trees
from kit.lock import Lock
from kit.paths import BUILD
from kit.source.apply import put
from kit.source.git import git, remove, sparse_worktree, whole_worktree
from kit.source.patches import files_of, patch_files

ROOT = BUILD / 'alone'


def split(name: str) -> tuple[list[str], list[str]]:
    """Returns (the parts below, own parts) of a topic or a posting, in the order in which they
    apply. The topic or posting is based on the parts below. A part is a posting, or a topic that
    has no postings: see topics.parts_of()."""
    own = [name] if '/' in name else topics.parts_of(name)
    return [part for part in topics.below(own[0]) if part not in own], own


def commits(*groups: Sequence[str]) -> list[str]:
    """Applies the groups of parts to the base, one after the other. Returns the last commit of each
    group."""
    folder = ROOT / 'apply' / 'linux'
    files = [path for group in groups for part in group for path in patch_files(part)]
    sparse_worktree(folder, files_of(files) or {'Makefile'})
    try:
        found = []
        for group in groups:
            for part in group:
                put(folder, part)
            found.append(git('rev-parse', 'HEAD', cwd=folder).strip())
        return found
    finally:
        remove(folder)


def trees(name: str) -> Trees:
    """Returns the trees of the two kernels with which a topic or a posting is measured. All topics
    use the same folders. `make` therefore compiles only the files that differ from the topic
    measured before."""
    below, own = split(name)
    base = Tree('base', ROOT / 'base', begins_as=PATCHED) if below else BASE
    patched = Tree('patched', ROOT / 'patched', begins_as=PATCHED)
    with Lock(ROOT):
        at = commits(below, own)
        for tree, commit in zip((base, patched), at):
            if tree != BASE:
                whole_worktree(f'{tree}, of {name} alone', tree.linux, commit)
    return Trees(base, patched, PATCHED)
