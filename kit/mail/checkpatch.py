# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's checkpatch.pl."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kit.host import host_cpus
from kit.paths import BUILD
from kit.process import result


def says(paths: Sequence[Path], tree: Path, ignored: Iterable[str]) -> list[str]:
    """Returns checkpatch's findings in these patches. One process checks all of them, because
    starting checkpatch takes as long as checking a small patch."""
    done = result(
        [
            'perl',
            'scripts/checkpatch.pl',
            '--strict',
            '--show-types',
            '--color=never',
            '--no-summary',
            '--terse',
            f'--ignore={",".join(ignored)}',
            *paths,
        ],
        cwd=tree,
        env={'HOME': BUILD},
    )
    failed = [f'checkpatch: {done.stderr.strip()}'] if done.returncode else []
    return done.stdout.splitlines() or failed


def findings(paths: Sequence[Path], tree: Path, *ignored: str) -> list[str]:
    """Returns the findings of the tree's checkpatch.pl in these patches. Two types are always
    ignored. FILE_PATH_CHANGES: `make check` verifies that new files are in MAINTAINERS.
    UNKNOWN_COMMIT_ID: linux/ lacks the commits that Fixes: tags refer to."""
    types = ['FILE_PATH_CHANGES', 'UNKNOWN_COMMIT_ID', *ignored]
    shares = [share for first in range(host_cpus()) if (share := paths[first :: host_cpus()])]
    with ThreadPoolExecutor(host_cpus()) as pool:
        return sum(pool.map(lambda share: says(share, tree, types), shares), [])
