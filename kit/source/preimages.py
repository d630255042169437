# SPDX-License-Identifier: GPL-2.0-only
"""If linux/ is not the release in BASE, adds files without which git cannot merge patches.

`git am --3way` needs each file in the version from which a patch was made. Some of these versions
are in the release in BASE: find() adds them to linux/, in a commit that has only the touched files.
The others result from earlier patches: preimages() in kit/source/apply.py makes them by applying
the series.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from kit.paths import BUILD, LINUX
from kit.process import say, step
from kit.source.git import git, try_git
from kit.source.pinned import PINNED, Reader, as_pinned, base_file, pinned, tag_of

Files = dict[str, bytes]

TMP = BUILD / 'pinned.tmp'


def blob(commit: str, folder: Path) -> Reader:
    """Returns a function that reads the commit's files. The git tree in `folder` has the commit."""

    def read(path: str) -> bytes | None:
        done = try_git('--no-optional-locks', 'cat-file', 'blob', f'{commit}:{path}', cwd=folder)
        return None if done.returncode else done.stdout.encode('utf-8', 'surrogateescape')

    return read


def from_stable(url: str) -> Files | None:
    """Fetches the files in BASE from a stable git tree. If the server supports this, nothing else
    is fetched."""
    git('init', '-q', TMP / 'git', cwd=TMP)
    git('remote', 'add', 'origin', url, cwd=TMP / 'git')
    tag, paths = tag_of(pinned()[0]), list(pinned()[1])
    # with the user's configuration
    if step(
        f'fetch files of {tag}',
        [
            'git',
            '-C',
            TMP / 'git',
            'fetch',
            '-q',
            '--depth=1',
            '--no-tags',
            '--filter=blob:none',
            'origin',
            f'refs/tags/{tag}',
        ],
        timeout=900,
        check=False,
        env={'GIT_TERMINAL_PROMPT': '0'},
    ):
        return None
    if step(
        None,
        ['git', '-C', TMP / 'git', 'checkout', '-q', 'FETCH_HEAD', '--', *paths],
        timeout=900,
        check=False,
        env={'GIT_TERMINAL_PROMPT': '0'},
        log=TMP / 'log',
    ):
        return None
    return as_pinned(lambda path: (TMP / 'git' / path).read_bytes())


def sources(
    linux: str | None, stable: str | None, package: Reader | None
) -> Iterator[tuple[str, Callable[[], Files | None]]]:
    """Yields the possible sources of the files, nearest first."""
    if linux and (Path(linux).expanduser() / '.git').exists():
        folder, tag = Path(linux).expanduser().resolve(), tag_of(pinned()[0])
        yield f'{tag} of {folder}', lambda: as_pinned(blob(tag, folder))
    if stable:
        yield 'the stable tree', lambda: from_stable(stable)
    if package and not linux:
        yield "Debian's package", lambda: as_pinned(package)


def find(linux: str | None, stable: str | None = None, package: Reader | None = None) -> None:
    """Adds the touched files of the release in BASE to linux/ if they are missing. `package`
    is a reader of Debian's package."""
    if not pinned()[1] or as_pinned(lambda path: base_file(path, PINNED)):
        return
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    try:
        for where, read in sources(linux, stable, package):
            if files := read():
                keep(files)
                say(f'base: the touched files of {pinned()[0]} are from {where}')
                return
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
    say(
        f'base: note: no source has the files of {pinned()[0]}, so git cannot merge: set LINUX= to '
        f'a git tree with the tag {tag_of(pinned()[0])}'
    )


def keep(files: Files) -> None:
    """Makes a commit with only these files in linux/. The reference PINNED points to it."""
    for path, content in files.items():
        (TMP / 'files' / path).parent.mkdir(parents=True, exist_ok=True)
        (TMP / 'files' / path).write_bytes(content)
    env = {
        'GIT_DIR': str(LINUX / '.git'),
        'GIT_WORK_TREE': str(TMP / 'files'),
        'GIT_INDEX_FILE': str(TMP / 'index'),
        **{f'GIT_AUTHOR_{what}': 'series@localhost' for what in ('NAME', 'EMAIL')},
    }
    git('add', '-A', '-f', '.', cwd=TMP / 'files', env=env)
    tree = git('write-tree', cwd=TMP / 'files', env=env).strip()
    commit = git(
        'commit-tree',
        tree,
        '-m',
        f'files of {pinned()[0]}',
        cwd=LINUX,
        env={name: value for name, value in env.items() if name.startswith('GIT_AUTHOR')},
    ).strip()
    git('update-ref', PINNED, commit)
