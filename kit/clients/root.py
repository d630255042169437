# SPDX-License-Identifier: GPL-2.0-only
"""The files that a program from Debian's archive needs in a guest, as a cpio archive. An archive is
made once for each list of packages and files."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from kit.errors import KitError
from kit.lock import Lock
from kit.model import Machine
from kit.paths import BUILD
from kit.process import output
from kit.setup import apt
from kit.vm import initrd
from kit.vm.initrd import Member

LINKS = [(name, 0o120777, f'usr/{name}'.encode()) for name in ('lib', 'lib64')]


def chosen(root: Path, names: Sequence[str]) -> list[Path]:
    """Returns the files below `root` that match the names, which may be patterns."""
    found: list[Path] = []
    for name in names:
        files = [path for path in sorted(root.glob(name)) if path.is_file()]
        if not files:
            raise KitError(f'clients.toml: no package has {name}')
        found += files
    return found


def with_libraries(root: Path, files: Sequence[Path]) -> list[Path]:
    """Returns the files, the targets of symbolic links, and all shared libraries that these files
    need."""
    libraries = sorted(root.glob('usr/lib*/**/*.so*'), key=lambda path: -len(path.parts))
    known = {path.name: path for path in libraries}
    found: set[Path] = set()
    todo = list(files)
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        if path.is_symlink():
            todo.append(Path(os.path.normpath(path.parent / path.readlink())))
        elif path.read_bytes()[:4] == b'\x7fELF':
            text = output(['readelf', '-l', '-d', path])
            # lib/ and lib64/ are symbolic links to the folders in usr/
            todo += [root / f'usr{each}' for each in re.findall(r'interpreter: (.+)\]', text)]
            for name in re.findall(r'\(NEEDED\).*\[(.+)\]', text):
                if name not in known:
                    raise KitError(f'{path.name} needs {name}, which no package has')
                todo.append(known[name])
    return sorted(found)


def member(root: Path, path: Path) -> Member:
    name = str(path.relative_to(root))
    if path.is_symlink():
        return name, 0o120777, str(path.readlink()).encode()
    return name, 0o100755, path.read_bytes()


def members(root: Path, files: Sequence[Path]) -> list[Member]:
    """Returns the files and the folders that contain them, as members of an archive."""
    folders = {folder for path in files for folder in path.relative_to(root).parents if folder.name}
    return [
        *((str(folder), 0o40755) for folder in folders),
        *(member(root, path) for path in files),
        *LINKS,
    ]


def archive(
    machine: Machine, name: str, release: str, packages: Sequence[str], files: Sequence[str]
) -> Path:
    """Returns the archive. Makes it if it is missing."""
    asked = hashlib.sha256(repr((machine.debian_arch, release, packages, files)).encode())
    path = BUILD / 'clients' / f'{name}-{asked.hexdigest()[:16]}.cpio'
    with Lock(path.parent):
        if not path.exists():
            root = apt.fetch_all(f'clients-{name}', packages, machine, release)
            found = with_libraries(root, chosen(root, files))
            initrd.write(path, initrd.archive(members(root, found)))
            shutil.rmtree(root.parent)  # packages, their files and lists
    return path
