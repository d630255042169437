# SPDX-License-Identifier: GPL-2.0-only
"""make check: runs all static checks; ends with `N passed, N failed, N skipped`.

--check 'words' selects the checks whose name contains one of the words.

A lane is a list of checks that run one after the other. The lanes run in parallel. The lane OWN
does not need linux/, and runs while linux/ is made. The lane READING only reads files, mostly in a
single thread. Each architecture has a lane that compiles; it often waits for git, make and the
linker.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence

from kit.check import compiling, files, mailed, pages, patches
from kit.check.common import GENERIC, WORK, Failed, Skipped
from kit.errors import KitError
from kit.lock import Lock
from kit.model import usual_archs
from kit.paths import LINUX
from kit.process import Pool
from kit.setup import prepare

Check = Callable[[], None]
Lane = dict[str, Check]
Words = dict[str, str]  # {name: passed, failed or skipped}

# The lane OWN checks this repository's own files. The checks of the lane READING only read files.
# Each lane lists its checks in the order in which they run. compiling_lane() makes the other lanes.
OWN = {
    'python': files.python,
    'types': files.types,
    'settings': files.settings,
    'shell': files.shell,
    'contents': files.contents,
    'exceptions': files.exceptions,
    'tables': files.tables,
    'covers': files.covers,
    'own-tests-verbs': files.own_tests_of_verbs,
}
READING = {
    'own-tests': files.own_tests,
    'models': files.models,
    'applies': patches.applies,
    'round-trip': patches.round_trip,
    'plain-am': patches.plain_am,
    'checkpatch': patches.checkpatched,
    'kernel-doc': pages.kernel_doc,
    'docs': pages.docs,
    'spelling': patches.spelling,
    'maintainers': patches.maintainers,
    'binding': patches.binding,
    'mutants': patches.mutants,
    'mail': mailed.mail,
}


def compiling_lane(arch: str, full: bool) -> Lane:
    """Returns the lane that compiles for an architecture, as {NAME-ARCH: check}."""
    checks = {
        'configs': compiling.configs,
        'compile': compiling.small,
        'bisect': compiling.bisect,
        'alone': compiling.alone,
        'warnings': compiling.warnings,
    }
    return {
        f'{name}-{arch}': functools.update_wrapper(functools.partial(check, arch, full), check)
        for name, check in checks.items()
    }


def lanes(full: bool = False) -> list[Lane]:
    """Returns all lanes. The longest lane is last: the main thread runs it, and also handles
    signals and shows progress."""
    return [
        OWN,
        READING,
        *(compiling_lane(arch, full) for arch in sorted(usual_archs(full), key=GENERIC.__eq__)),
    ]


def outcome(function: Check) -> tuple[str, str]:
    """Runs a check and returns (word, findings). The word is `passed`, `failed` or `skipped`."""
    try:
        function()
    except Failed as error:
        return 'failed', str(error)
    except Skipped as error:
        return 'skipped', str(error)
    except KitError as error:
        return 'failed', str(error)
    return 'passed', ''


def run_lane(lane: Lane) -> Words:
    """Runs these checks and prints each outcome; returns {name: word}."""
    words = {}
    for name, check in lane.items():
        start = time.monotonic()
        words[name], findings = outcome(check)
        what = (check.__doc__ or '').strip().splitlines()[0]
        lines = [
            f'{words[name]:7} {time.monotonic() - start:6.1f} s  {name}: {what}',
            *(f'    {line}' for line in findings.splitlines()[:60]),
        ]
        # overwrites the progress of another lane
        print('\r\033[K' if sys.stdout.isatty() else '', '\n'.join(lines), sep='', flush=True)
    return words


def give_way(lane: Lane) -> Words:
    """Calls run_lane() in this thread, with a lower priority than the longest lane."""
    os.nice(5)
    return run_lane(lane)


def run(chosen: Sequence[Lane], make_linux: Callable[[], object]) -> Words:
    """Runs the lanes in parallel; returns {name: word}."""
    own, *others, last = chosen
    with Pool(len(chosen)) as pool:
        beside = [pool.submit(give_way, own)]
        if any(others) or last:
            make_linux()
        beside += [pool.submit(give_way, lane) for lane in others]
        words = run_lane(last)
        for each in beside:
            words |= each.result()
        return words


def main(
    check: str = '', full: bool = False, linux: str | None = None, stable_git: str | None = None
) -> int:
    words, known = check.split(), lanes(full)
    chosen = [
        {
            name: each
            for name, each in lane.items()
            if not words or any(word in name for word in words)
        }
        for lane in known
    ]
    names = [name for lane in known for name in lane]
    if not any(chosen):
        raise KitError(f'no check with such a name (known: {" ".join(names)})')

    def make_linux() -> None:
        """Makes linux/ from series/."""
        prepare.trees('series', linux, stable_git=stable_git)
        if not (LINUX / '.git').exists():
            raise KitError('no linux/ here: make check')

    prepare.packages('CHECK', 'all', full=full)
    with Lock(WORK):
        found = run(chosen, make_linux)
    failed = [name for name in names if found.get(name) == 'failed']
    if failed:
        print(f'failed: {" ".join(failed)}')
    counts = list(found.values())
    print(', '.join(f'{counts.count(word)} {word}' for word in ('passed', 'failed', 'skipped')))
    return 1 if failed else 0
