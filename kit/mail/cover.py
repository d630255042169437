# SPDX-License-Identifier: GPL-2.0-only
"""Reads cover letters: series/TOPIC/NN-POSTING/cover.md of a posting, or series/TOPIC/cover.md of a
flat topic. Checks the form of the letters, and the commit messages in the postings' patches."""

import re
from pathlib import Path

from kit import topics
from kit.errors import KitError
from kit.paths import SERIES, shown
from kit.source.patches import patch_files, patch_subject

# limits, so that a maintainer can read the letter in a minute
LINES, COLUMNS, WORDS, ROWS = 60, 75, 450, 6
# the forms of `state` of a [[posting]]; the front page shows it
STATES = '(ready|RFC)\\b|(not to be sent: )?waits for '
VERBS = 'bench|check|deps|differ|export|hardware|mail|mutants|run|shell|soak|tables|test|tree'
# required in each cover letter: (regular expression, its meaning)
WANTED = (
    (r'^Costs: ', 'costs (`Costs: ...`)'),
    (r'\?', 'what is asked of whom'),
    (r'\bLLM\b', 'that an LLM wrote it'),
    (r'\btested\b', 'how it was tested'),
)


def path_of(part: str) -> Path:
    return SERIES / part / 'cover.md'


def read(part: str) -> tuple[str, str] | None:
    """Returns (subject, text) of the cover letter, or None if the posting has only one patch and no
    letter."""
    path = path_of(part)
    if not path.is_file():
        if '/' in part and len(patch_files(part)) == 1:
            return None
        raise KitError(f'{shown(path)} is missing')
    title, _, text = path.read_text().partition('\n')
    if not title.startswith('# ') or not text.strip():
        raise KitError(f'{shown(path)}: the first line must be `# subject`, then the text')
    return title[2:].strip(), text.strip()


def subject(part: str) -> str:
    """Returns the subject of the posting's first mail."""
    path = path_of(part)
    if path.is_file():
        return path.read_text().partition('\n')[0].removeprefix('# ')
    return patch_subject(patch_files(part)[0])


def is_table(line: str) -> bool:
    return line.startswith('    ')


def is_link(line: str) -> bool:
    """Returns whether the line is a link. Links may be longer than COLUMNS."""
    return bool(re.fullmatch(r'\[\d+\] https:/[/]\S+', line))


def faults(text: str) -> list[str]:
    """Checks the form of a posting's cover letter; returns the faults."""
    lines = text.rstrip('\n').split('\n')
    words = sum(len(line.split()) for line in lines if not is_table(line))
    rows = [line for line in lines if is_table(line) and re.search(r'\d\S*$', line)]
    found = []
    if not lines[0].startswith('# '):
        found.append('the first line is not `# subject`')
    if len(lines) > LINES:
        found.append(f'{len(lines)} lines, at most {LINES} are allowed')
    if words > WORDS:
        found.append(f'{words} words without the table, at most {WORDS} are allowed')
    if len(rows) > ROWS:
        found.append(f'a table of {len(rows)} rows, at most {ROWS} are allowed')
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS and not is_link(line):
            found.append(f'line {number}: {len(line)} columns')
        if not line.isascii():
            found.append(f'line {number}: not ASCII')
    found += verbs_in(text)
    found += [
        f'does not say {what}' for wanted, what in WANTED if not re.search(wanted, text, re.M)
    ]
    return found


def verbs_in(text: str) -> list[str]:
    """If the text mentions make targets of this repository, returns a fault for each mention.
    Recipients lack these targets."""
    found = re.findall(rf'\bmake (?:{VERBS})\b', text)
    return [f'a target of this repository: {verb}' for verb in found]


def message_faults(text: str) -> list[str]:
    """Returns the faults in the message of a posting's patch."""
    message = text.partition('\n---\n')[0]
    found = verbs_in(message)
    if not re.search(r'^Assisted-by: LLM( [\w-]+)*$', message, re.M):
        found.append('no Assisted-by: LLM')
    return found


def unknown_waits() -> list[str]:
    """Returns a fault for each wrong entry of `waits`. An entry must be the name of another topic,
    or the subject of another topic's patch."""
    subjects = {
        name: {patch_subject(path) for path in patch_files(name)} for name in topics.order()
    }

    def known(topic: str, what: str) -> bool:
        return any(what in (name, *subjects[name]) for name in subjects if name != topic)

    return [
        f'series/{topic.name}/topic.toml: {each.name}: waits: no other topic or patch of another '
        f'topic has the name "{what}"'
        for topic in topics.all_of_them()
        for each in topic.posting
        for what in each.waits
        if not known(topic.name, what)
    ]


def all_faults() -> list[str]:
    """Returns ['file: fault'] for all postings. In `single` topics, only messages are checked."""
    found = unknown_waits()
    for part in topics.parts():
        if '/' not in part and not topics.is_single(part):
            continue
        files = patch_files(part)
        if said := topics.posting(part):
            if not re.match(STATES, said.state):
                found.append(f'series/{part}: state: expected ready, RFC or waits for ...')
            if len(files) > 15:
                found.append(f'series/{part}: {len(files)} patches, at most 15 are allowed')
            letter = path_of(part)
            if letter.is_file():
                found += [f'{shown(letter)}: {each}' for each in faults(letter.read_text())]
            elif len(files) > 1:
                found.append(f'{shown(letter)} is missing')
        for path in files:
            text = path.read_text(errors='replace')
            found += [f'{shown(path)}: {each}' for each in message_faults(text)]
    for topic in topics.all_of_them():
        names = topics.postings(topic.name)
        found += [
            f'series/{topic.name}/topic.toml: the folder {each.name} is missing'
            for each in topic.posting
            if each.name not in names
        ]
    return found
