# SPDX-License-Identifier: GPL-2.0-only
"""Reads the file BASE. It names the release on which the series is based, and has checksums of the
files that the series touches."""

import hashlib
import re
from collections.abc import Callable

from kit.errors import KitError
from kit.paths import TOP
from kit.process import say
from kit.source.git import git, try_git

Reader = Callable[[str], bytes | None]  # returns a file's content

# If linux/ is not the release in BASE, it has these references. PINNED has the touched files, as
# they are in that release. PREIMAGES has the series on top of PINNED. Without these files, git
# cannot merge patches. The references protect the files from garbage collection.
PINNED, PREIMAGES = 'refs/series/pinned', 'refs/series/preimages'


def version_of(makefile: str) -> str:
    """Returns the version, such as 7.3.4, in the text of a kernel's Makefile. It is empty if the
    text has none."""
    value: dict[str, str] = dict(
        re.findall(r'^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *=[ \t]*(\S*)', makefile, re.M)
    )
    if not value.get('VERSION'):
        return ''
    return '.'.join(value.get(k) or '0' for k in ('VERSION', 'PATCHLEVEL', 'SUBLEVEL')) + value.get(
        'EXTRAVERSION', ''
    )


def pinned() -> tuple[str, dict[str, str]]:
    """Returns the version and {path: SHA-256} in BASE."""
    try:
        text = (TOP / 'BASE').read_text()
    except OSError as error:
        raise KitError(f'BASE: {error.strerror}') from error
    version = re.search(r'^version (\S+)$', text, re.M)
    if not version:
        raise KitError('BASE: no line `version 7.3.y`')
    return version[1], {
        path: digest for digest, path in re.findall(r'^([0-9a-f]{64})  (\S.*)$', text, re.M)
    }


def mainline() -> str:
    """Returns X.Y of the release in BASE, such as 7.3 for 7.3.4."""
    return '.'.join(pinned()[0].split('.')[:2])


def base_file(path: str, commit: str = 'base') -> bytes | None:
    """Returns a file's bytes in a commit, or None if the file is absent."""
    done = try_git('cat-file', 'blob', f'{commit}:{path}')
    return None if done.returncode else done.stdout.encode('utf-8', 'surrogateescape')


def check_sums(version: str, read: Reader) -> None:
    """Raises an error if the checksum of a touched file is not the one in BASE. If `version` is not
    the release in BASE, only prints a note, because `git am` can merge."""
    wanted, sums = pinned()
    for path, digest in sums.items():
        content = read(path)
        if content is not None and hashlib.sha256(content).hexdigest() == digest:
            continue
        what = (
            'is missing from the base'
            if content is None
            else 'is not the one the series is based on (SHA-256 in BASE)'
        )
        if version == wanted:
            raise KitError(f'{path} {what}: get an unaltered Linux {wanted}')
        say(f'note: {path} {what}')


def as_pinned(read: Reader) -> dict[str, bytes] | None:
    """Returns {path: bytes} for all files in BASE, or None if a checksum differs."""
    found = {}
    for path, digest in pinned()[1].items():
        content = read(path)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            return None
        found[path] = content
    return found


def tag_of(version: str) -> str:
    """Returns the tag of a version. For 7.4.0, it is v7.4, as there is no v7.4.0."""
    return f'v{version.removesuffix(".0") if version.count(".") == 2 else version}'


def touched(first: str, last: str, *more: str) -> list[str]:
    """Returns the paths that a range of commits changes."""
    return git(
        '-c', 'core.quotePath=false', 'diff', '--no-renames', '--name-only', *more, first, last
    ).splitlines()


def base_text(last: str) -> str:
    """Returns the text of BASE for a series that ends with this commit."""
    sums = [
        (hashlib.sha256(content).hexdigest(), path)
        for path in touched('base', last)
        if (content := base_file(path)) is not None
    ]
    comments = [line for line in (TOP / 'BASE').read_text().splitlines() if line.startswith('#')]
    return (
        '\n'.join(
            [
                *comments,
                f'version {version_of(git("show", "base:Makefile"))}',
                *(f'{number}  {path}' for number, path in sums),
            ]
        )
        + '\n'
    )
