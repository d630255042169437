# SPDX-License-Identifier: GPL-2.0-only
"""With --linux, the verbs run, test and shell use the user's git tree instead of the series.

The tree is only read. "patched" is a clone below build/, which gets the tree's HEAD and uncommitted
changes and is built out of tree. "base" is --base, or the newest v7.3.y release below HEAD.
"""

import re
import shutil
from pathlib import Path

from kit.build.trees import PATCHED, Tree, Trees, state
from kit.errors import KitError, fail
from kit.lock import Lock
from kit.paths import BUILD
from kit.process import Done, Word, say
from kit.source.git import check_out, git, is_at, try_git, whole
from kit.source.pinned import mainline, version_of


def read(path: Path, *words: Word) -> Done:
    """Runs git in the user's tree without changing it."""
    return try_git('--no-optional-locks', *words, cwd=path)


def merge_base(path: Path, named: str | None) -> str:
    """Returns the commit of "base": the named commit, or the newest release below HEAD."""
    if not named:
        found = read(
            path,
            'describe',
            '--tags',
            '--abbrev=0',
            '--match',
            f'v{mainline()}',
            '--match',
            f'v{mainline()}.[0-9]*',
            'HEAD',
        )
        named = found.stdout.strip() or fail(
            f'LINUX={path} has no v{mainline()}.y tag below HEAD: give BASE=commit'
        )
    found = read(path, 'merge-base', 'HEAD', named)
    if found.returncode:
        raise KitError(f'BASE={named}: no such commit below HEAD of {path}')
    return found.stdout.strip()


def clone(path: Path, folder: Path, commit: str) -> None:
    """Checks out the commit in a clone that shares the user's objects."""
    if not whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        git('clone', '-q', '--shared', '--no-checkout', path, folder, cwd=path)
    git('config', 'remote.origin.url', path, cwd=folder)
    git('fetch', '-q', 'origin', '+HEAD:refs/own/head', cwd=folder)
    # after a killed checkout, there is a lock, or the index is missing
    if (
        not is_at(folder, commit)
        or not (folder / '.git/index').exists()
        or (folder / '.git/index.lock').exists()
    ):
        check_out(f'check out {commit[:12]} of {path}', folder, commit)


def copy_uncommitted(path: Path, folder: Path) -> None:
    """Copies uncommitted changes of the user's tree to the clone, unless it already has them."""
    if state(path) == state(folder):
        return
    git('reset', '-q', '--hard', cwd=folder)
    git('clean', '-q', '-fd', cwd=folder)
    changed = read(path, 'status', '--porcelain', '-z', '--no-renames', '-uall').stdout
    for entry in filter(None, changed.split('\0')):
        name = entry[3:]
        if (path / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def known(linux: str, what: str) -> tuple[Path, str, str]:
    """Returns (path, version, HEAD) of the user's tree. `what` names the expected tree in
    errors."""
    path = Path(linux).expanduser().resolve()
    top = read(path, 'rev-parse', '--show-toplevel').stdout.strip() if path.is_dir() else ''
    if not top or Path(top).resolve() != path:
        raise KitError(f'LINUX={linux}: give the top folder of {what}')
    version = version_of(read(path, 'show', 'HEAD:Makefile').stdout)
    if not version:
        raise KitError(f'LINUX={path}: its HEAD is not Linux')
    return path, version, read(path, 'rev-parse', 'HEAD').stdout.strip()


def dirty(path: Path) -> str:
    return (
        ' and uncommitted changes'
        if re.search(r'\S', read(path, 'status', '--porcelain').stdout)
        else ''
    )


def alone() -> Tree:
    """Returns the clone of the user's tree."""
    return Tree('patched', BUILD / 'own')


def use_alone(linux: str) -> Tree:
    """Makes the clone of a user's tree, which may have any version. There is no base."""
    path, version, head = known(linux, 'a git tree of Linux')
    with Lock(BUILD / 'own'):
        clone(path, BUILD / 'own/linux', head)
        copy_uncommitted(path, BUILD / 'own/linux')
    say(f'{path}: Linux {version}, {head[:12]}{dirty(path)}')
    return alone()


def use(linux: str, commit: str | None = None) -> Trees:
    """Makes the clones of the user's tree, "patched" and "base". For `commit`, see
    merge_base()."""
    path, version, head = known(linux, f'a git tree of Linux {mainline()}.y')
    below = merge_base(path, commit)
    with Lock(BUILD / 'own'):
        for name, wanted in (('own', head), ('own-base', below)):
            clone(path, BUILD / name / 'linux', wanted)
        copy_uncommitted(path, BUILD / 'own/linux')
    count = git('rev-list', '--count', f'{below}..{head}', cwd=path).strip()
    say(f'{path}: Linux {version}, {count} commits above {below[:12]}{dirty(path)}')
    # linux/ provides programs that this tree lacks
    return Trees(Tree('base', BUILD / 'own-base', begins_as=alone()), alone(), PATCHED)
