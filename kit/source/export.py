# SPDX-License-Identifier: GPL-2.0-only
"""Writes series/ from the branches of linux/, and BASE with the list of touched files."""

import os
from pathlib import Path

from kit.errors import KitError
from kit.paths import LINUX, SERIES, TOP
from kit.process import say
from kit.source.git import git
from kit.source.patches import patch_files, ranges, strays
from kit.source.pinned import base_text
from kit.source.state import busy, exported, same_bytes, save_state, series_changed, uncommitted
from kit.topics import order, parts


def put(path: Path, content: bytes) -> None:
    """Writes the file atomically."""
    new = path.with_name(f'{path.name}.new')
    new.write_bytes(content)
    os.replace(new, path)


def main() -> None:
    if not (LINUX / '.git').exists():
        raise KitError('no linux/ here: make tree')
    if busy():
        raise KitError(f'a {busy()} is under way in linux/: finish or abort it first')
    last = parts()[-1]
    found = ranges()
    beyond = git('log', '--format=%h %s', f'refs/heads/{last}..HEAD').splitlines()
    if beyond:
        raise KitError(
            f'linux/ has commits beyond the branch {last} ({beyond[0]}), which belong to no topic: '
            f'git -C linux branch -f {last} HEAD, or add a topic to series/order'
        )
    with exported() as (folder, names):
        different = same_bytes(folder, names)
        text = base_text(found[-1][2])
        if changed := series_changed(different):
            raise KitError(
                f'{changed[0]} has changed since linux/ was made from series/ (git pull, an edit), '
                'and export would undo that: restore series/ (git stash), export, then merge both'
            )
        for topic, files in names.items():
            (SERIES / topic).mkdir(parents=True, exist_ok=True)
            for name in files:
                put(SERIES / topic / name, (folder / topic / name).read_bytes())
            for path in patch_files(topic):
                if path.name not in files:
                    path.unlink()
        for path in (path for topic in order() for path in strays(topic)):
            path.unlink()
            different.append(str(path.relative_to(TOP)))
        if text != (TOP / 'BASE').read_text():
            put(TOP / 'BASE', text.encode())
            different.append('BASE')
        save_state()
    for name in different:
        say(f'export: {name}')
    files = uncommitted()
    if files:
        say(
            f'export: note: uncommitted changes in linux/ are not exported '
            f'({files[0]}{" …" if files[1:] else ""})'
        )
    say(
        f'export: {sum(map(len, names.values()))} patches in series/, {len(different)} files '
        f'changed'
    )
