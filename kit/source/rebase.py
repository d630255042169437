# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit rebase TREE|VERSION: moves the series onto another release of Linux.

TREE is the path of an unpacked tree or of a git tree. In a git tree, the newest release below HEAD
is used. VERSION is X.Y.Z, or X.Y for the newest X.Y.Z. VERSION is looked up in the tree of --linux.
Without --linux, it is looked up in the stable git tree, then in Debian's package.

linux/ must match series/. git rebases the topics' branches. Patches that the release already
contains are dropped, and their subjects are printed. Then series/ and BASE are written, as by `make
export`. At a conflict, the command stops in an ordinary `git rebase`: resolve the conflict, then
run `git rebase --continue` and `make export`.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, LINUX
from kit.process import result, say
from kit.source import base, export
from kit.source.git import git, git_command, git_env, try_git
from kit.source.patches import patch_files, ranges
from kit.source.pinned import mainline, pinned, tag_of, version_of
from kit.source.state import busy, corresponds, uncommitted
from kit.topics import order, parts

# the bases of the last rebase; the references protect them from garbage collection
NEXT, BEFORE = 'refs/series/next', 'refs/series/before'


def release_of(path: Path) -> str:
    """Returns the newest release below a tree's HEAD. If the tree has no tags, returns the version
    in its Makefile."""
    found = try_git(
        '--no-optional-locks',
        'describe',
        '--tags',
        '--abbrev=0',
        '--match',
        'v[0-9]*',
        '--exclude',
        '*-rc*',
        'HEAD',
        cwd=path,
    ).stdout.strip()
    if found:
        found = found.removeprefix('v')
        return found if found.count('.') > 1 else f'{found}.0'  # X.Y would also match X.Y.Z
    if not (path / 'Makefile').is_file():
        raise KitError(f'{path}: no Makefile there: give a Linux tree')
    return version_of((path / 'Makefile').read_text())


def asked(wanted: str, linux: str | None) -> tuple[str, str | Path | None]:
    """Returns (release, path) for the argument TREE or VERSION. The path is TREE. If VERSION is
    given, it is the tree of --linux, or None without --linux."""
    if re.fullmatch(r'v?\d+\.\d+(\.\d+)?', wanted):
        return wanted.removeprefix('v'), linux
    path = Path(wanted).expanduser().resolve()
    if not path.is_dir():
        raise KitError(f'{wanted}: neither a folder nor a version such as {mainline()}.9')
    return release_of(path), path


def fetched(release: str, path: str | Path | None, stable: str | None) -> tuple[str, str]:
    """Adds the release as a commit to linux/; returns (commit, version)."""
    shutil.rmtree(base.TMP, ignore_errors=True)
    base.TMP.mkdir(parents=True)
    try:
        version, source = base.unpack(path, stable or base.stable_of_config(), release)
        commit = base.write_commit(
            version,
            GIT_DIR=str(LINUX / '.git'),
            GIT_WORK_TREE=str(base.TREE),
            GIT_INDEX_FILE=str(base.TMP / 'index'),
        )
    finally:
        shutil.rmtree(base.TMP, ignore_errors=True)
    git('update-ref', NEXT, commit)
    say(f'rebase: onto Linux {version}, {source}')
    return commit, version


def upstream_already(commit: str, subjects: Sequence[str]) -> list[tuple[str, str]]:
    """Returns [(topic, subject)] for the patches that the commit already contains. A patch is
    contained if it can be reverted there."""
    env = {'GIT_INDEX_FILE': str(BUILD / 'rebase.index')}
    patches = [path for topic in order() for path in patch_files(topic)]
    git('read-tree', commit, env=env)
    try:
        return [
            (path.parent.name, subject)
            for path, subject in zip(patches, subjects)
            if not try_git('apply', '--reverse', '--check', '--cached', path, env=env).returncode
        ]
    finally:
        (BUILD / 'rebase.index').unlink()


def check() -> None:
    """Raises an error if linux/ has uncommitted changes or does not match series/."""
    if not (LINUX / '.git').exists():
        raise KitError('no linux/ here: make tree')
    if not corresponds():
        raise KitError('linux/ does not match series/: make export or make tree first')
    if files := uncommitted():
        raise KitError(f'linux/ has uncommitted changes ({files[0]}): commit or stash them')


def main(target: str, linux: str | None = None, stable_git: str | None = None) -> None:
    with Lock(BUILD / 'tree'):
        check()
        commit, version = fetched(*asked(target, linux), stable_git)
        if commit == git('rev-parse', 'base^{commit}').strip():
            raise KitError(f'linux/ is already based on Linux {version}')
        subjects = all_subjects()
        for topic, subject in upstream_already(commit, subjects):
            say(f'rebase: {topic}: "{subject}" is already in {tag_of(version)}')
        rebase(commit, version, subjects)
    export.main()


def all_subjects() -> list[str]:
    """Returns the subjects of all patches, in the order in which they apply."""
    return git('log', '--reverse', '--format=%s', f'base..{ranges()[-1][2]}').splitlines()


def rebase(commit: str, version: str, subjects: Sequence[str]) -> None:
    """Rebases the stacked branches. Moves the tag `base` first, as the user may have to continue
    the rebase by hand."""
    before = git('rev-parse', 'base^{commit}').strip()
    # git reuses recorded resolutions
    git('config', 'rerere.enabled', 'true')
    git('config', 'rerere.autoUpdate', 'true')
    git('update-ref', BEFORE, before)
    git('tag', '-f', 'base', commit)
    (LINUX / '.git/series-origin').unlink(missing_ok=True)
    done = result(
        git_command(
            '-c',
            'rerere.enabled=true',
            '-c',
            'rerere.autoUpdate=true',
            'rebase',
            '--update-refs',
            '--empty=drop',
            '--onto',
            commit,
            before,
            parts()[-1],
        ),
        cwd=LINUX,
        env=git_env(),
    )
    if done.returncode and not busy():
        git('tag', '-f', 'base', before)
        raise KitError((done.stderr or done.stdout).strip().splitlines()[0])
    if done.returncode:
        stopped(done.stdout + done.stderr, before)
    after = all_subjects()
    for subject in subjects:
        if subject in after:
            after.remove(subject)
        else:
            say(f'rebase: dropped "{subject}": {tag_of(version)} has it')
    say(f'rebase: from {tag_of(pinned()[0])} to {tag_of(version)}')


def stopped(text: str, before: str) -> NoReturn:
    """Raises an error that explains how to continue or abort."""
    where = (
        re.findall(r'^CONFLICT .* in (\S+)$', text, re.M)
        or git('diff', '--name-only', '--diff-filter=U').splitlines()
    )
    subject = try_git('log', '-1', '--format=%s', 'REBASE_HEAD').stdout.strip()
    raise KitError(
        f'stopped at "{subject}"{f", conflict in {where[0]}" if where else ""}: in linux/ resolve '
        f'it, `git add`, `git rebase --continue`, then `make export`; or go back with `git rebase '
        f'--abort` and `git tag -f base {before[:12]}`'
    )
