# SPDX-License-Identifier: GPL-2.0-only
"""Tools written in Python, in the versions of requirements.txt: ruff, mypy, pytest, matplotlib, b4.

They come from PyPI into a virtual environment below build/, once; pip's own configuration says how
to get there.
"""

import hashlib
import sys
from pathlib import Path

from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, shown
from kit.process import Word, step

REQUIREMENTS = Path(__file__).with_name('requirements.txt')
FOLDER = BUILD / 'tools'


def stamp() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()


def install(venv: Path) -> None:
    log = FOLDER / 'log'
    if step(
        'tools: virtual environment',
        [sys.executable, '-m', 'venv', '--clear', venv],
        log=log,
        check=False,
    ):
        raise KitError(f'python3 -m venv does not work here ({shown(log)}): make deps')
    pip: list[Word] = [
        venv / 'bin/python',
        '-m',
        'pip',
        'install',
        '-q',
        '--no-compile',  # most of it is never run
        '--disable-pip-version-check',
    ]
    if step('tools: pip install', [*pip, '-r', REQUIREMENTS], log=log, timeout=600, check=False):
        raise KitError(f'pip cannot get {REQUIREMENTS.name}, is there a network? ({shown(log)})')


def tool(name: str) -> Path:
    """The program's path, installed when it is not there."""
    venv, mark = FOLDER / 'venv', FOLDER / 'stamp'
    with Lock(FOLDER):
        if not mark.exists() or mark.read_text() != stamp():
            mark.unlink(missing_ok=True)
            install(venv)
            mark.write_text(stamp())
    return venv / 'bin' / name
