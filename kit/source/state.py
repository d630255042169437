# SPDX-License-Identifier: GPL-2.0-only
"""Compares linux/ with series/, and protects work that exists in only one of them."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from kit.lock import Lock
from kit.paths import BUILD, LINUX
from kit.source.git import git, try_git
from kit.source.patches import digest, patch_files, ranges, write_series
from kit.source.pinned import base_file
from kit.topics import parts

# Written by `tree` and `export`: the state of linux/ and series/ when they last matched
STATE = LINUX / '.git' / 'series-state'
# The commits that `tree` last made from series/, even if the branches do not have them yet
MADE = 'refs/series/made'


@contextlib.contextmanager
def exported() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """Yields (a new folder with the patches that `make export` would write, {part: [names]})."""
    with Lock(BUILD / 'export'):
        folder = BUILD / 'export' / 'series'
        shutil.rmtree(folder, ignore_errors=True)
        yield folder, write_series(folder, ranges())
        shutil.rmtree(folder)


def same_bytes(folder: Path, names: dict[str, list[str]]) -> list[str]:
    """Returns the patches that differ between the folder and series/, or are in only one of
    them."""
    different = []
    for topic, files in names.items():
        old = {path.name: path for path in patch_files(topic)}
        for name in sorted(set(files) | set(old)):
            if (
                name not in files
                or name not in old
                or (folder / topic / name).read_bytes() != old[name].read_bytes()
            ):
                different.append(f'series/{topic}/{name}')
    return different


def save_state() -> None:
    tips = branches()
    STATE.write_text(''.join(f'{topic} {tips[topic]} {digest(topic)}\n' for topic in parts()))


def load_state() -> dict[str, tuple[str, str]]:
    """Returns {part: (commit, digest of its patches)} as recorded when linux/ and series/ last
    matched."""
    try:
        return {
            topic: (commit, number)
            for topic, commit, number in (line.split() for line in STATE.read_text().splitlines())
        }
    except (OSError, ValueError):
        return {}


def series_changed(different: Sequence[str]) -> list[str]:
    """Selects the differing files whose topic or posting has changed in series/ since linux/ last
    matched series/. The cause may be a git pull or an edit."""
    changed = {topic for topic, (_, number) in load_state().items() if number != digest(topic)}
    return [name for name in different if name[len('series/') :].rpartition('/')[0] in changed]


def busy() -> str:
    """Returns the name of an unfinished git operation in linux/, or an empty string."""
    for name, words in (
        ('rebase-merge', 'git rebase'),
        ('rebase-apply', 'git am or rebase'),
        ('MERGE_HEAD', 'git merge'),
        ('CHERRY_PICK_HEAD', 'git cherry-pick'),
        ('REVERT_HEAD', 'git revert'),
        ('BISECT_LOG', 'git bisect'),
    ):
        if (LINUX / '.git' / name).exists():
            return words
    return ''


def uncommitted() -> list[str]:
    """Returns the files of linux/ with uncommitted changes, and untracked files."""
    return [
        line[3:]
        for line in git(
            '--no-optional-locks', 'status', '--porcelain', '--untracked-files=all'
        ).splitlines()
    ]


def half_checked_out(name: str) -> bool:
    """Returns whether the file is the same as in the last commit of MADE. If so, it was written by
    a `make tree` that was killed."""
    path = LINUX / name
    return path.is_file() and path.read_bytes() == base_file(name, MADE)


def own_work() -> str:
    """Returns one line about work in linux/ that series/ lacks and that must not be lost. It is
    empty if there is no such work."""
    if busy():
        return f'a {busy()} is under way in linux/: finish or abort it'
    head = try_git('symbolic-ref', '-q', '--short', 'HEAD').stdout.strip()
    commit = git('rev-parse', 'HEAD').strip()
    state, names = load_state(), parts()
    known = {git('rev-parse', 'base^{commit}').strip(), *(value[0] for value in state.values())}
    different = []
    for topic in dict.fromkeys([*names, *state]):
        tip = try_git('rev-parse', '-q', '--verify', f'refs/heads/{topic}').stdout.strip()
        if tip and tip not in known:
            different.append(topic)
    if (
        not head
        and commit not in known
        and not git('for-each-ref', '--contains', commit, 'refs/heads', MADE).strip()
    ):
        return 'linux/ has a detached HEAD with commits on no branch: create a branch for them'
    if head and head not in names and head not in state and commit not in known:
        return f'linux/ is on the branch {head}, which is not a topic: check out {names[-1]}'
    if different:
        # a rebase that only changed commit ids is not work to protect
        if not any(
            try_git('rev-parse', '-q', '--verify', f'refs/heads/{name}').returncode
            for name in names
        ):
            with exported() as (folder, written):
                if not same_bytes(folder, written):
                    different = []
    if different:
        return (
            f'linux/ has commits that series/ lacks (branch {", ".join(different)}): make '
            f'export, or remove them'
        )
    files = [name for name in uncommitted() if not half_checked_out(name)]
    if files:
        return (
            f'linux/ has uncommitted changes ({files[0]}{" …" if len(files) > 1 else ""}): '
            f'commit or stash them'
        )
    return ''


def elsewhere() -> str:
    """Returns the branch or commit that linux/ has checked out, or '' if that is the last commit of
    the series."""
    tip = try_git('rev-parse', '-q', '--verify', f'refs/heads/{parts()[-1]}').stdout
    commit = git('rev-parse', 'HEAD')
    branch = try_git('symbolic-ref', '-q', '--short', 'HEAD').stdout.strip()
    return '' if commit == tip else branch or commit[:12]


def corresponds() -> bool:
    """Returns whether linux/ matches series/, with the last topic checked out. Ignores uncommitted
    changes."""
    head = try_git('symbolic-ref', '-q', '--short', 'HEAD').stdout.strip()
    if busy() or head != parts()[-1]:
        return False
    if unchanged():
        return True
    if set(parts()) - set(branches()):
        return False
    with exported() as (folder, written):
        if same_bytes(folder, written):
            return False
    save_state()
    return True


def branches() -> dict[str, str]:
    """Returns {branch of linux/: commit}."""
    tips = git('for-each-ref', '--format=%(refname:short) %(objectname)', 'refs/heads').splitlines()
    return dict(line.split() for line in tips)


def unchanged() -> bool:
    """Returns whether the branches and series/ are both unchanged since they last matched each
    other."""
    names, state, tips = parts(), load_state(), branches()
    return list(state) == names and all(
        state[name] == (tips.get(name), digest(name)) for name in names
    )
