# SPDX-License-Identifier: GPL-2.0-only
"""make check: everything static; closes with `N passed, N failed, N skipped`.

CHECK='words' runs the checks whose name has one of the words in it.
"""
import os
import time
from collections import Counter

from kit.checks import compiling, files, mailed, pages, patches
from kit.checks.common import WORK, Failed, Skipped
from kit.common import LINUX, TERMINATED, die

# in the order they run
CHECKS = {
    'python': files.python, 'shell': files.shell, 'contents': files.contents,
    'tables': files.tables, 'own-tests': files.own_tests, 'models': files.models,
    'applies': patches.applies, 'round-trip': patches.round_trip, 'plain-am': patches.plain_am,
    'checkpatch': patches.checkpatched, 'kernel-doc': pages.kernel_doc, 'docs': pages.docs,
    'spelling': patches.spelling, 'maintainers': patches.maintainers, 'binding': patches.binding,
    'mail': mailed.mail, 'compile': compiling.small, 'bisect': compiling.bisect,
    'warnings': compiling.warnings,
}


def outcome(function):
    """(word, findings) of a check."""
    try:
        function()
    except Failed as error:
        return 'failed', str(error)
    except Skipped as error:
        return 'skipped', str(error)
    except SystemExit as error:    # a die() said why
        if error.code == TERMINATED:
            raise
        return 'failed', 'see above'
    return 'passed', ''


def main():
    words = os.environ.get('CHECK', '').split()
    chosen = {name: function for name, function in CHECKS.items()
              if not words or any(word in name for word in words)}
    if not chosen:
        die(f'no check of that name (there are: {" ".join(CHECKS)})')
    if not (LINUX / '.git').exists():
        die('no linux/ here: make check')
    WORK.mkdir(parents=True, exist_ok=True)
    counts, failed = Counter(), []
    for name, function in chosen.items():
        start = time.monotonic()
        word, findings = outcome(function)
        counts[word] += 1
        if word == 'failed':
            failed.append(name)
        what = function.__doc__.strip().splitlines()[0]
        print(f'{word:7} {time.monotonic() - start:6.1f} s  {name}: {what}', flush=True)
        for line in findings.splitlines()[:60]:
            print(f'    {line}', flush=True)
    if failed:
        print(f'failed: {" ".join(failed)}')
    print(', '.join(f'{counts[word]} {word}' for word in ('passed', 'failed', 'skipped')))
    return 1 if failed else 0
