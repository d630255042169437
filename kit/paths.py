# SPDX-License-Identifier: GPL-2.0-only
"""Where things are."""

from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LINUX = TOP / 'linux'
BUILD = TOP / 'build'
SERIES = TOP / 'series'
GUEST = TOP / 'guest'


def shown(path: Path) -> Path:
    """The path as a reader in the repository would type it."""
    try:
        return Path(path).resolve().relative_to(TOP)
    except ValueError:
        return path
