# SPDX-License-Identifier: GPL-2.0-only
"""Tools written in Python: ruff, mypy, pytest, matplotlib, b4. requirements.txt has the versions.

They are installed from PyPI, once, into a virtual environment below build/. pip's own configuration
applies.
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
        '--no-compile',  # most modules are never imported
        '--disable-pip-version-check',
    ]
    if step('tools: pip install', [*pip, '-r', REQUIREMENTS], log=log, timeout=600, check=False):
        raise KitError(f'pip cannot install {REQUIREMENTS.name}; is there a network? {shown(log)}')


def tool(name: str) -> Path:
    """Returns the path of a program of build/tools. Installs all tools first if they are
    missing."""
    venv, mark = FOLDER / 'venv', FOLDER / 'stamp'
    with Lock(FOLDER):
        if not mark.exists() or mark.read_text() != stamp():
            mark.unlink(missing_ok=True)
            install(venv)
            mark.write_text(stamp())
    return venv / 'bin' / name
