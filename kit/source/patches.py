# SPDX-License-Identifier: GPL-2.0-only
"""The series as files: the patches below series/, and how git writes them."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from email.header import decode_header, make_header
from pathlib import Path

from kit.errors import KitError
from kit.paths import SERIES
from kit.process import Environment
from kit.source.git import git, try_git
from kit.topics import parts, parts_of

Range = tuple[str, str, str]  # (topic or posting, commit below it, its last commit)


def in_folder(part: str) -> list[Path]:
    return sorted((SERIES / part).glob('[0-9][0-9][0-9][0-9]-*.patch'))


def patch_files(name: str) -> list[Path]:
    """Returns the patches of a topic or posting (TOPIC/NN-POSTING), in the order in which they
    apply."""
    if '/' in name:
        return in_folder(name)
    return [path for part in parts_of(name) for path in in_folder(part)]


def strays(topic: str) -> list[Path]:
    """Returns the patches in a topic's folder that belong to no posting."""
    return in_folder(topic) if parts_of(topic) != [topic] else []


def ranges() -> list[Range]:
    """Returns [(part, commit below it, its last commit)] for the branches in linux/, one for each
    topic or posting. They must be stacked in the order of series/order."""
    result, below = [], 'base'
    for topic in parts():
        branch = f'refs/heads/{topic}'
        if try_git('rev-parse', '-q', '--verify', branch).returncode:
            raise KitError(
                f"linux/ has no branch {topic}: create it on its first commit's parent, or remove "
                f'it from series/order'
            )
        if try_git('merge-base', '--is-ancestor', below, branch).returncode:
            raise KitError(
                f'branch {topic} is not based on {below.removeprefix("refs/heads/")}: '
                f'rebase it there (see series/order)'
            )
        if git('rev-list', '--merges', '-n1', f'{below}..{branch}'):
            raise KitError(
                f'branch {topic} has a merge commit: rebase it, as a series must be linear'
            )
        result.append((topic, below, branch))
        below = branch
    return result


# settings of a user that could change a patch's bytes
SETTINGS = """
diff.suppressBlankEmpty=false diff.noprefix=false diff.mnemonicPrefix=false diff.relative=false
diff.orderFile=/dev/null diff.statGraphWidth=0 diff.ignoreSubmodules=none diff.dirstat=
diff.wsErrorHighlight=none diff.colorMoved=no
format.encodeEmailHeaders=true format.mboxrd=false format.filenameMaxLength=64
""".split()
OPTIONS = """
--zero-commit --no-signature --no-numbered --full-index --no-attach --no-thread --no-to --no-cc
--no-from --no-signoff --no-base --no-notes --no-add-header --no-cover-letter --no-ext-diff
--no-textconv --subject-prefix=PATCH --suffix=.patch --start-number=1 --find-renames=50% --binary
--unified=3 --inter-hunk-context=0 --diff-algorithm=histogram --indent-heuristic --src-prefix=a/
--dst-prefix=b/ --no-relative --submodule=short
""".split()


def format_patches(
    first: str, last: str, folder: Path, *more: str, env: Environment | None = None
) -> None:
    """Writes a range of commits as files whose bytes depend only on the commits."""
    settings = [word for setting in SETTINGS for word in ('-c', setting)]
    git(*settings, 'format-patch', *OPTIONS, '-o', folder, *more, f'{first}..{last}', env=env)


def write_series(folder: Path, parts: Sequence[Range]) -> dict[str, list[str]]:
    """Exports the patches into a folder instead of series/; returns {part: [names]}."""
    result = {}
    for topic, first, last in parts:
        target = Path(folder) / topic
        target.mkdir(parents=True, exist_ok=True)
        format_patches(first, last, target)
        result[topic] = sorted(path.name for path in target.iterdir())
    return result


def digest(topic: str) -> str:
    """Returns a digest of the patches of a topic or posting."""
    total = hashlib.sha256()
    for path in patch_files(topic):
        content = path.read_bytes()
        total.update(f'{path.name} {len(content)}\n'.encode() + content)
    return total.hexdigest()


def patch_subject(path: Path) -> str:
    """Returns the subject of a patch file."""
    match = re.search(
        r'^Subject: (?:\[[^]]*\] )?(.*(?:\n[ \t].*)*)', path.read_text(errors='replace'), re.M
    )
    if not match:
        return path.name
    return ' '.join(str(make_header(decode_header(match[1]))).split())


def files_of(paths: Iterable[Path]) -> set[str]:
    """Returns the files that the patches change, add or remove."""
    found = set()
    for path in paths:
        for names in re.findall(
            r'^diff --git a/(\S+) b/(\S+)$', path.read_text(errors='replace'), re.M
        ):
            found.update(names)
    return found
