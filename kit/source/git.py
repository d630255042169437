# SPDX-License-Identifier: GPL-2.0-only
"""Runs git, independently of the user's configuration, and makes worktrees of linux/."""

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from kit.errors import KitError
from kit.paths import LINUX
from kit.process import Done, Environment, Word, result, step

# A fixed identity for commits, so that the same series has the same commit ids everywhere
COMMITTER = {'name': 'v7.3.y series', 'email': 'series@localhost', 'date': '2026-01-01T00:00:00Z'}

# The user's git configuration must not affect how patches are applied and exported
GIT_ENV = {
    # safe.directory is in a file, because git's child processes ignore it in -c options
    'GIT_CONFIG_GLOBAL': str(Path(__file__).with_name('gitconfig')),
    'GIT_CONFIG_NOSYSTEM': '1',
    'GIT_ATTR_NOSYSTEM': '1',
    'LC_ALL': 'C.UTF-8',
    'GIT_COMMITTER_NAME': COMMITTER['name'],
    'GIT_COMMITTER_EMAIL': COMMITTER['email'],
    'GIT_EDITOR': 'false',
}
GIT_SET = [
    'core.hooksPath=/dev/null',
    'core.attributesFile=/dev/null',
    'core.excludesFile=/dev/null',
    'core.autocrlf=false',
    'core.eol=lf',
    'core.safecrlf=false',
    'core.abbrev=auto',
    'core.quotePath=true',
    'core.fsmonitor=false',
    'checkout.workers=0',  # as many as CPUs
    'core.whitespace=',
    'commit.gpgSign=false',
    'tag.gpgSign=false',
    'gc.auto=0',
    'maintenance.auto=false',
    'advice.detachedHead=false',
    'color.ui=false',
    'i18n.commitEncoding=utf-8',
    'i18n.logOutputEncoding=utf-8',
    'apply.whitespace=nowarn',
    'am.keepcr=false',
    'am.threeWay=false',
    'am.messageId=false',
    'mailinfo.scissors=false',
    'rerere.enabled=false',
    'merge.conflictStyle=merge',
    'merge.renames=true',
    'merge.directoryRenames=conflict',
    'notes.displayRef=',
    'log.showSignature=false',
]

# git names the locked file or its lock
LOCKED = re.compile(
    r"(?:Unable to create '(.+)\.lock'|could not lock config file (.+)): File exists"
)

# given twice, --force also replaces a locked worktree; a killed git leaves such a worktree
OVER_HALF = ['--force', '--force']


def git_command(*arguments: Word) -> list[str]:
    return ['git', *(word for setting in GIT_SET for word in ('-c', setting)), *map(str, arguments)]


def git_env(**more: str | Path | None) -> Environment:
    # removes variables of an outer git (a hook, rebase --exec), which would redirect this git
    return {**{name: None for name in os.environ if name.startswith('GIT_')}, **GIT_ENV, **more}


def git(
    *arguments: Word,
    cwd: Path | None = None,
    env: Environment | None = None,
    stdin: str | None = None,
) -> str:
    """Runs git in `cwd`, by default linux/, independent of the user's configuration; returns its
    stdout. If git fails, raises an error with its stderr."""
    done = try_git(*arguments, cwd=cwd, env=env, stdin=stdin)
    if done.returncode:
        words = shlex.join(map(str, arguments))
        raise KitError(f'git {words[:200]}: {why(done)}')
    return done.stdout


def why(failed: Done) -> str:
    """Returns why this git failed, in one line if it found a lock."""
    said = (failed.stderr or failed.stdout).strip()
    if locked := LOCKED.search(said):
        return f'{locked[1] or locked[2]}.lock exists: if no git is running, remove it'
    return said[-500:]


def try_git(
    *arguments: Word,
    cwd: Path | None = None,
    env: Environment | None = None,
    stdin: str | None = None,
) -> Done:
    """Does the same as git(), but returns git's output and exit status. Raises no error if git
    fails."""
    return result(
        git_command(*arguments), cwd=cwd or LINUX, env=git_env(**(env or {})), stdin=stdin
    )


def complete(entry: Path) -> bool:
    """Returns whether git has written all files of its entry of a worktree."""
    try:
        return all((entry / name).stat().st_size for name in ('gitdir', 'HEAD', 'commondir'))
    except OSError:
        return False


def prune() -> None:
    """Removes git's entries of worktrees that no longer exist. A git that was killed while it added
    a worktree leaves an incomplete entry. `git worktree prune` keeps it, as it is locked, and `git
    worktree add` fails because of it."""
    common = git('rev-parse', '--path-format=absolute', '--git-common-dir').strip()
    entries = [each for each in Path(common, 'worktrees').glob('*/') if not complete(each)]
    if entries:
        time.sleep(1)  # another git may be adding one of them
    for entry in entries:
        if not complete(entry):
            shutil.rmtree(entry, ignore_errors=True)
    git('worktree', 'prune')


def remove(folder: Path) -> None:
    """Removes a worktree."""
    shutil.rmtree(folder, ignore_errors=True)
    prune()


def whole(folder: Path) -> bool:
    """Returns whether the folder is a usable work tree: its repository exists, lists this folder,
    and has the commit of this work tree's HEAD. Otherwise, git in this folder would use the
    repository of a parent folder. If linux/ was made again, git could also use the state of another
    worktree."""
    own = folder / '.git'
    if not own.exists():
        return False
    found = Path(try_git('rev-parse', '--absolute-git-dir', cwd=folder).stdout.strip())
    known = found / 'gitdir'  # of a worktree
    mine = Path(known.read_text().strip()) if known.exists() else found
    return (
        mine == own.resolve()
        and not try_git('cat-file', '-e', 'HEAD^{tree}', cwd=folder).returncode
    )


def is_at(folder: Path, commit: str) -> bool:
    return whole(folder) and git('rev-parse', 'HEAD', cwd=folder).strip() == commit


def check_out(what: str, folder: Path, commit: str) -> None:
    """Checks out the commit in a work tree and discards changes in it."""
    # a killed checkout leaves this lock
    lock = git('rev-parse', '--git-path', 'index.lock', cwd=folder).strip()
    (folder / lock).unlink(missing_ok=True)
    step(
        what,
        git_command('checkout', '-q', '--force', '--detach', commit),
        cwd=folder,
        env=git_env(),
    )


def whole_worktree(what: str, folder: Path, commit: str) -> None:
    """Makes a worktree with all files of the commit. If the worktree exists, checks out the commit
    there."""
    if whole(folder):
        if not is_at(folder, commit):
            check_out(f'{what}: checkout', folder, commit)
        return
    prune()
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # under another name first, so that an interrupted checkout is not mistaken for a whole one
    part = folder.with_name('linux.part')
    shutil.rmtree(part, ignore_errors=True)
    step(
        f'{what}: worktree',
        git_command('worktree', 'add', '-q', *OVER_HALF, '--detach', part, commit),
        cwd=LINUX,
        env=git_env(),
    )
    git('worktree', 'move', part, folder)


def sparse_worktree(folder: Path, paths: Iterable[str]) -> None:
    """Makes a worktree of the base with only these files, which is enough for git am."""
    remove(folder)
    git('worktree', 'add', '--quiet', *OVER_HALF, '--no-checkout', '--detach', folder, 'base')
    git(
        'sparse-checkout',
        'set',
        '--no-cone',
        '--stdin',
        cwd=folder,
        stdin=''.join(f'/{path}\n' for path in sorted(paths)),
    )
    git('checkout', '--quiet', '--detach', 'base', cwd=folder)
