# SPDX-License-Identifier: GPL-2.0-only
"""The paths of the repository."""

from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LINUX = TOP / 'linux'
BUILD = TOP / 'build'
SERIES = TOP / 'series'
GUEST = TOP / 'guest'


def shown(path: Path) -> Path:
    """Returns the path relative to the repository if it is inside, and otherwise unchanged."""
    try:
        return Path(path).resolve().relative_to(TOP)
    except ValueError:
        return path
