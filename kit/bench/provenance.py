# SPDX-License-Identifier: GPL-2.0-only
"""Describes the code and the tools with which a record was measured. If the code has changed since,
the topic's page marks the record as stale. A stale record is not an error."""

import datetime
import hashlib
import re
from typing import Any

from kit import model, topics
from kit.errors import KitError
from kit.paths import GUEST
from kit.process import result
from kit.source.patches import patch_files
from kit.vm.qemu import found_version

# these files are not compiled into the measured kernels and programs
UNMEASURED = re.compile(
    r'Documentation/|MAINTAINERS|tools/testing/(?!.*_perf\.c)|.*kunit|.*-selftests\.c'
)


def changes(text: str, unmeasured: bool = False) -> list[str]:
    """Returns the lines of code that a patch adds and removes, each preceded by the path of its
    file. Messages, comments, context, line numbers and extra spaces are left out. If `unmeasured`
    is set, files that match UNMEASURED are included."""
    found, path, comment = [], '', False
    for line in text.partition('\n---\n')[2].splitlines():
        if line.startswith('diff --git '):
            path, comment = line.split(' b/')[-1], False
        elif line.startswith(('--- ', '+++ ', '@@')):
            comment = False
        elif line[:1] in ('+', '-') and (unmeasured or not UNMEASURED.match(path)):
            code = re.sub(r'/\*.*?\*/', '', line[1:]).strip()
            if comment:
                _, ends, code = code.partition('*/')
                comment = not ends
            if '/*' in code:
                code, comment = code.partition('/*')[0], True
            code = re.sub(r'\s*//.*', '', code).strip()
            # skips lines of a comment that begins in the context
            if code and not re.match(r'\*(\s|/|$)', code):
                found.append(f'{path}:{line[0]}{" ".join(code.split())}')
    return found


def code_of(topic: str, unmeasured: bool = False) -> str:
    """Returns a digest of the code that the topic's patches add and remove. It stays the same if
    the same code is divided into patches in another way."""
    whole = hashlib.sha256()
    texts = [path.read_text() for path in patch_files(topic)]
    for line in sorted(line for text in texts for line in changes(text, unmeasured)):
        whole.update(f'{line}\n'.encode())
    return whole.hexdigest()[:16]


def config() -> str:
    """Returns a digest of the configurations of all guests' kernels."""
    whole = hashlib.sha256()
    for path in sorted((GUEST / 'config').iterdir()):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def tools() -> dict[str, str]:
    """Returns {architecture: versions of QEMU and gcc} for the installed tools."""
    found = {}
    for machine in model.machines():
        version = '.'.join(map(str, found_version(machine)))
        try:
            gcc = result([machine.gcc, '-dumpfullversion']).stdout.strip()
        except (KitError, OSError):
            continue
        if gcc and version != '0.0':
            found[machine.arch] = f'QEMU {version}, gcc {gcc}'
    return found


def below(name: str) -> dict[str, str]:
    """Returns {name: digest of its code} for the topic or posting `name`, and for all topics and
    postings that are applied below it."""
    applied = topics.below(name) if '/' in name else topics.after(name)
    return {each: code_of(each) for each in (*applied, name)}


def measured(topic: str) -> dict[str, object]:
    """Returns the fields `date` and `code` of a record, or of an entry of its `parts`."""
    return {'date': datetime.datetime.now(datetime.UTC).date().isoformat(), 'code': below(topic)}


def of(topic: str) -> dict[str, object]:
    """Returns the fields `date`, `code`, `config` and `tools` of a record."""
    return {**measured(topic), 'config': config(), 'tools': tools()}


def mark(data: dict[str, Any]) -> str:
    """Returns the text to print below the table. It reports the rows that were measured with older
    code, and is empty if there are none."""
    now, parts = below(data['topic']), data.get('parts', {})
    commands = sorted({row.get('command', '') for row in data.get('rows', [])}) or ['']
    stale: dict[str, list[str]] = {}
    for command in commands:
        measured = parts.get(command, data)
        then = measured.get('code', now)
        changed = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
        if changed:
            names = ' and '.join(changed)
            said = f'measured on {measured["date"]}, before the code of {names} changed'
            stale.setdefault(said, []).append(f'`{command or data["command"]}`')
    return ' '.join(
        f'Stale: the rows were {said}.'
        if len(found) == len(commands)
        else f'Stale: the rows of {", ".join(found)} were {said}.'
        for said, found in stale.items()
    )
