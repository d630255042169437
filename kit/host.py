# SPDX-License-Identifier: GPL-2.0-only
"""The part of the host's CPUs and memory that builds and guests may use."""

import os
from pathlib import Path


def container_limit(name: str, path: Path = Path('/sys/fs/cgroup')) -> list[int] | None:
    """Returns the numbers in a file of the container's cgroup, or None if there is no limit or no
    cgroup v2."""
    try:
        return [int(word) for word in (path / name).read_text().split()]
    except (OSError, ValueError):
        return None


def host_cpus() -> int:
    """Returns the number of CPUs that a build or a guest may use."""
    allowed = len(os.sched_getaffinity(0))
    if limit := container_limit('cpu.max'):
        allowed = min(allowed, -(-limit[0] // limit[1]))
    return allowed


def host_memory() -> int:
    """Returns the number of bytes of memory that guests may use."""
    whole = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return min(whole, *(container_limit('memory.max') or [whole]))
