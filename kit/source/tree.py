# SPDX-License-Identifier: GPL-2.0-only
"""Makes linux/ from series/: the base and one branch per topic or posting.

`make tree` fails if linux/ holds work that series/ lacks. Other verbs (keep=True) use such a linux/
as it is, and print a note. If a commit of series/ before the last one is checked out, verbs that
accept the user's own tree (stay=True) use this commit.
"""

from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, LINUX
from kit.process import say
from kit.source.apply import applied
from kit.source.git import git, try_git
from kit.source.state import (
    MADE,
    corresponds,
    elsewhere,
    half_checked_out,
    load_state,
    own_work,
    save_state,
    unchanged,
    uncommitted,
)
from kit.topics import parts


def main(keep: bool = False, stay: bool = False) -> None:
    if not (LINUX / '.git').exists():
        raise KitError('no linux/ here: make tree')
    with Lock(BUILD / 'tree'):
        synchronize(keep, stay)


def synchronize(keep: bool, stay: bool) -> None:
    """Makes linux/ from series/ as the module's docstring describes. The caller holds the lock."""
    last = parts()[-1]
    if corresponds():
        files = uncommitted()
        if files:
            say(
                'tree: linux/ matches series/, plus uncommitted changes '
                f'({files[0]}{" …" if files[1:] else ""})'
            )
        elif not keep:
            say('tree: linux/ matches series/')
        return
    work = own_work()
    if work:
        if keep:
            say(f'tree: linux/ is used as it is: {work}')
            return
        raise KitError(work)
    if stay and elsewhere() and unchanged():
        say(f'tree: linux/ is used as it is, at {elsewhere()}; `make tree` goes back to {last}')
        return
    tips = applied()
    # The checkout loses nothing: own_work() found all commits in series/, and git refuses to
    # overwrite files. --force is used only if all uncommitted files were written by a `make tree`
    # that was killed. This is checked again here, because the user may have edited files meanwhile.
    # MADE refers to the new commits. If this process is killed, the next one still finds them.
    files = uncommitted()
    force = ['--force'] if files and all(map(half_checked_out, files)) else []
    git('update-ref', MADE, tips[last])
    done = try_git('checkout', '--quiet', *force, '--detach', tips[last])
    if done.returncode:
        raise KitError(f'{done.stderr.strip().splitlines()[0]} (git checkout in linux/)')
    old = [topic for topic in load_state() if topic not in tips]
    # deleted first, because the branches TOPIC and TOPIC/NN-POSTING cannot coexist
    git('update-ref', '--stdin', stdin=''.join(f'delete refs/heads/{name}\n' for name in old))
    git(
        'update-ref',
        '--stdin',
        stdin=''.join(f'update refs/heads/{name} {tip}\n' for name, tip in tips.items()),
    )
    git('symbolic-ref', 'HEAD', f'refs/heads/{last}')
    save_state()
    say(f'tree: linux/ matches series/, on the branch {last}')
