# SPDX-License-Identifier: GPL-2.0-only
"""Shared by several tests."""

from pathlib import Path

from kit.model import BootTable, boot_of, machine
from kit.paths import LINUX

TOP = Path(__file__).resolve().parent.parent
X86_64, ARM64 = machine('x86_64'), machine('arm64')
HAS_LINUX = (LINUX / 'tools/testing/kunit').exists()


def boot(tests: list[dict[str, object]], **more: object) -> BootTable:
    """A [[boot]] of a topic.toml."""
    return boot_of({'arch': 'x86_64', 'flavour': 'debug', 'test': tests, **more}, 'x')
