# SPDX-License-Identifier: GPL-2.0-only
"""make mail: writes a posting as mail, or sends it, with b4. The sender becomes the committer of
the posting's patches, in a branch of linux/ that b4 tracks. Below them, the branch has the
posting's prerequisites and the base. If the posting has one patch, its letter is put below the
patch's message. In a topic with `single = true`, each patch is mailed separately.

--topic is TOPIC/NN-POSTING, or TOPIC for all of its postings. Several of these may be given.
--topic may be omitted if there is only one topic. --patch selects patches of a `single` topic by
their file name. --machine puts the figures of a machine (kit/hardware/README.md) into the letters.
By default, an mbox is written below build/mail. --reflect sends the mails to the sender only.
--send sends the mails to the recipients, and needs --reviewed. --linux or --stable-git names a git
tree with the tag of the base release; the mail then names a public base-commit.
"""

import datetime
import json
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import topics
from kit.errors import KitError, fail
from kit.hardware import machine as hardware
from kit.lock import Lock
from kit.mail import checkpatch, cover, single
from kit.paths import BUILD, LINUX, TOP
from kit.process import environment, output, result, say
from kit.setup.tools import tool
from kit.source.apply import am, preimages, put
from kit.source.base import stable_of_config
from kit.source.git import git, remove, sparse_worktree, try_git
from kit.source.patches import files_of, patch_files
from kit.source.pinned import pinned, tag_of
from kit.source.state import corresponds

FOLDER = BUILD / 'mail'
TREE = FOLDER / 'linux'  # b4 runs in this worktree, which has only the files that patches touch

# The author of this repository's own patches; the sender replaces it. The comparison is exact,
# because a contributor's address may look similar.
PLACEHOLDER = 'Seed d00bda63 maintainers <maintainers@users.noreply.a-seed-d00bda63.example>'
PLACEHOLDER_LINE = re.compile(rf'^From: {re.escape(PLACEHOLDER)}$'.replace(r'\ <', r'\s+<'), re.M)


@dataclass(frozen=True)
class Posting:
    """A set of patches that are mailed together."""

    name: str  # TOPIC, TOPIC/NN-POSTING or TOPIC/PATCH
    patches: Sequence[Path]
    below: Sequence[str] = ()  # the topics and postings below it in the branch that is mailed
    commit: str = ''  # for a patch of a `single` topic: the commit that it is based on
    letter: tuple[str, str] | None = None  # subject and text of the cover letter
    prefixes: Sequence[str] = ()
    cc: Sequence[str] = ()  # people named in topic.toml

    @property
    def branch(self) -> str:
        return f'mail/{self.name.replace("/", "-")}'


def sender() -> tuple[str, str]:
    """Returns the sender's name and address, from the git configuration."""
    name, mail = (git_says(f'user.{what}') for what in ('name', 'email'))
    if not name or not mail:
        raise KitError('git has no name or address for you: git config user.name and user.email')
    return name, mail


def git_says(key: str) -> str:
    """Returns a git setting of the sender, as b4 reads it."""
    return result(['git', 'config', key], cwd=LINUX).stdout.strip()


def recipients(paths: Sequence[Path], more: Sequence[str]) -> list[str]:
    """Returns the To: lines (maintainers) and Cc: lines (reviewers, lists, and people in `more`).
    They go at the end of the letter, where b4 reads them. b4 sends each mail to all of these
    people. One call of get_maintainer.pl therefore covers all patches; `b4 prep --auto-to-cc` makes
    two calls per patch. b4 itself adds people from the patches' trailers."""
    text = output(
        ['perl', 'scripts/get_maintainer.pl', '--no-git', '--no-git-fallback', '--rolestats']
        + [str(path) for path in paths],
        cwd=LINUX,
    )
    # a line of the output: "A Name (Firm)" <address> (role:SECTION)
    people = {address_of(who): f'Cc: {who}' for who in more}
    for who, role in re.findall(r'^(.*@\S+) \(([^:()]*).*\)$', text.replace('"', ''), re.M):
        to = role != 'reviewer' and not role.endswith('list')
        people[address_of(who)] = f'{"To" if to else "Cc"}: {who}'
    return list(people.values())


def address_of(who: str) -> str:
    """Returns the address in the text `A Name <address>`."""
    return re.sub(r'.*<(.*)>', r'\1', who).strip().lower()


def upstream(version: str, *places: str) -> str | None:
    """Looks for the tag of the base release in public git trees. Returns the commit that the tag
    names, or None if no tree has the tag. Recipients do not have the commit that linux/ uses as
    its base, so a letter names the returned commit."""
    tag = tag_of(version)
    for place in filter(None, (*places, stable_of_config())):
        tags = result(
            ['git', 'ls-remote', place, f'refs/tags/{tag}', f'refs/tags/{tag}^{{}}'], cwd=TOP
        )
        if tags.stdout.strip():
            return tags.stdout.splitlines()[-1].split()[0]  # an annotated tag's commit comes last
    return None


def unreachable(author: str) -> bool:
    """Returns True if no mail reaches the author's address. GitHub, for example, gives contributors
    such addresses."""
    return bool(re.search(r'\bno-?reply\b|\.example>?$|@localhost>?$', author))


def check_authors(first: str, last: str, sign: str) -> None:
    """Raises an error if mail cannot reach an author other than the sender."""
    log = git('log', '--format=%an <%ae>%x09%h ("%s")', f'{first}..{last}')
    for author, commit in (line.split('\t') for line in log.splitlines()):
        if author != sign and unreachable(author):
            raise KitError(
                f'mail cannot reach {author}, the author of {commit}: git commit --amend --author='
            )


def known_topics(words: str) -> list[str]:
    names = topics.order()
    alone_there = names[0] if len(names) == 1 else ''
    wanted = words or alone_there or fail(f'TOPIC= is needed, one of: {" ".join(names)}')
    for topic in wanted.split():
        if topic not in names and topic not in topics.parts():
            raise KitError(f'no topic {topic} (known: {" ".join(names)})')
    if not (LINUX / '.git').exists() or not corresponds():
        raise KitError(
            'linux/ and series/ differ, and mail is made from series/: '
            'make export or make tree first'
        )
    return wanted.split()


def postings(topic: str, words: str, figures: str = '') -> list[Posting]:
    """Returns the postings of a topic, or the one posting that `topic` names. If the topic is
    `single`, each patch with `words` in its file name is a posting. `figures` is the file of a
    machine, or empty."""
    if not topics.is_single(topic):
        if words:
            raise KitError(f'PATCH={words}: {topic} is mailed as a whole')
        parts = [topic] if '/' in topic else topics.parts_of(topic)
        tables = hardware.in_letters(parts, figures) if figures else parts
        for part in parts:
            if part not in tables:
                say(f'mail: note: {figures} has no row of the table in the letter of {part}')
        return [whole(part, figures if part in tables else '') for part in parts]
    if figures:
        raise KitError(f'MACHINE={figures}: {topic} has no cover letter for the table')
    wanted = [path for path in patch_files(topic) if words in path.name]
    if not wanted:
        raise KitError(
            f'PATCH={words}: no patch of {topic} has that in its name'
            if words
            else f'topic {topic} has no patches'
        )
    commits = single.commits(topic)
    return [
        Posting(f'{topic}/{re.sub("^[0-9]+-", "", path.stem)}', [path], commit=commits[path][0])
        for path in wanted
    ]


def whole(part: str, figures: str) -> Posting:
    """Returns a posting with all patches of a part. `figures` is the file of a machine, or
    empty."""
    patches, said, letter = patch_files(part), topics.posting(part), cover.read(part)
    if not patches:
        raise KitError(f'topic {part} has no patches')
    return Posting(
        part,
        patches,
        topics.below(part),
        letter=hardware.in_letter(part, letter, figures) if figures else letter,
        prefixes=['RFC'] if said and said.state.startswith('RFC') else [],
        cc=said.cc if said else (),
    )


def must_be_reviewed(reviewed: bool) -> None:
    """Prints what a Signed-off-by certifies. Raises an error unless `reviewed` is set."""
    say(
        'mail: Signed-off-by certifies the Developer Certificate of Origin '
        '(Documentation/process/submitting-patches.rst): you have the right to submit this, and '
        'have reviewed it. Patches that an LLM wrote: coding-assistants.rst, generated-content.rst'
    )
    if not reviewed:
        raise KitError('nothing was sent: REVIEWED=1 states that you read and sign off each patch')


def program() -> Path:
    """Returns the b4 of requirements.txt. If it cannot be installed, returns the b4 in PATH."""
    try:
        return tool('b4')
    except KitError as error:
        found = shutil.which('b4') or fail(str(error))
        say(f'mail: {error}; using {found} instead')
        return Path(found)


@dataclass(frozen=True)
class Mailer:
    """Makes the branches of one sender's postings, one after the other, in TREE."""

    name: str
    address: str
    base: str  # the hash after `base-commit:` in the mails
    known: dict[tuple[str, ...], str]  # {parts: their commit on the base}

    def commit_of(self, names: tuple[str, ...]) -> str:
        """Returns the commit of these parts on the base. Each part is applied only once."""
        if names not in self.known:
            git('checkout', '-q', '--force', '--detach', self.commit_of(names[:-1]), cwd=TREE)
            self.known[names] = put(TREE, names[-1])
        return self.known[names]

    def commit(self, posting: Posting) -> str:
        """Makes and checks out the posting's branch; returns the commit below it. The sender signs
        off each patch, and becomes the author of patches with the placeholder as author."""
        below = posting.commit or self.commit_of(tuple(posting.below))
        git('checkout', '-q', '--force', '-B', posting.branch, below, cwd=TREE)
        copies, sign = FOLDER / 'patches', f'{self.name} <{self.address}>'
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        for path in posting.patches:
            text = path.read_text(errors='surrogateescape')
            text = PLACEHOLDER_LINE.sub(lambda _: f'From: {sign}', text, count=1)
            (copies / path.name).write_text(text, errors='surrogateescape')
        env = {'GIT_COMMITTER_NAME': self.name, 'GIT_COMMITTER_EMAIL': self.address}
        if failed := am(TREE, sorted(copies.iterdir()), '--3way', '--signoff', env=env):
            raise KitError(f'{posting.name}: {failed[0].name} does not apply{failed[1]}')
        check_authors(below, posting.branch, sign)
        return below

    def track(self, posting: Posting) -> None:
        """Makes the branch, with b4's settings for it: letter, version, prerequisites."""
        below = self.commit(posting)

        def setting(name: str, value: str) -> None:
            git('config', f'branch.{posting.branch}.{name}', value)

        known = try_git('config', f'branch.{posting.branch}.b4-tracking').stdout
        tracking = json.loads(known or '{"series": {}}')
        series, slug = tracking['series'], posting.name.replace('/', '-')
        today = datetime.date.today().strftime('%Y%m%d')
        series.setdefault('change-id', f'{today}-{slug}-{secrets.token_hex(6)}')
        number = series.setdefault('revision', 1)
        ids = git('patch-id', '--stable', stdin=git('log', '-p', '--reverse', f'base..{below}'))
        needs = [f'patch-id: {line.split()[0]}' for line in ids.splitlines()]
        series |= {
            'base-branch': below,
            'prefixes': posting.prefixes,
            'prerequisites': [*needs, f'base-commit: {self.base}'],
            'below': {**series.get('below', {}), str(number): below},  # not a key of b4
        }
        subject, text = posting.letter or ('', '')
        people = recipients(posting.patches, posting.cc)
        say(f'mail: {posting.name} v{number}, from {self.name} <{self.address}>')
        say('\n'.join(f'  {who}' for who in people))
        text = '\n'.join([subject, '', text, '', *people])
        if number > 1:
            text += self.changes(posting, series, number - 1)
        setting('description', text)
        setting('b4-prep-cover-strategy', 'branch-description')
        setting('b4-tracking', json.dumps(tracking))

    def changes(self, posting: Posting, series: dict[str, Any], last: int) -> str:
        """Returns the range-diff to the last version. b4's own range-diff would start at the
        base-commit and include the prerequisites."""
        if posting.letter and f'Changes since v{last}:' not in posting.letter[1]:
            say(f'mail: note: the letter lists no changes (Changes since v{last}:)')
        below = series['below']
        compared = git(
            'range-diff',
            f'{below[str(last)]}..sent/{series["change-id"]}-v{last}',
            f'{below[str(last + 1)]}..{posting.branch}',
        )
        return f'\n---\nRange-diff against v{last}:\n\n{compared}'

    def b4(self, *words: str | Path, **settings: str) -> None:
        """Runs b4 send as the sender, for the branch in TREE."""
        given = {
            'user.name': self.name,
            'user.email': self.address,
            'b4.prep-pre-flight-checks': 'disable-all',  # `make check` has its own
            **settings,
        }
        env = {'GIT_CONFIG_COUNT': str(len(given))}
        for number, (name, value) in enumerate(given.items()):
            env |= {f'GIT_CONFIG_KEY_{number}': name, f'GIT_CONFIG_VALUE_{number}': value}
        # b4 waits for Enter; without a terminal, REVIEWED=1 replaces this key
        done = subprocess.run(
            [program(), 'send', *words],
            cwd=TREE,
            env=environment(env),
            input=None if sys.stdin.isatty() else b'\n',
            stdout=sys.stderr,
            check=False,
        )
        if done.returncode:
            raise KitError('b4 send failed')


def mail(mailer: Mailer, posting: Posting, send: bool, reflect: bool) -> None:
    """Writes the posting into an mbox, or sends it."""
    mailer.track(posting)
    if send or reflect:
        signs = git_says('patatt.signingkey') or git_says('user.signingkey')
        mailer.b4(*([] if signs else ['--no-sign']), *(['--reflect'] if reflect else []))
        return
    folder = FOLDER / 'written'
    shutil.rmtree(folder, ignore_errors=True)
    mailer.b4('--no-sign', '-o', folder, **{'b4.send-endpoint-web': 'none'})
    mbox = FOLDER / f'{posting.name}.mbox'
    mbox.parent.mkdir(parents=True, exist_ok=True)
    mbox.write_bytes(b'\n'.join(FROM + path.read_bytes() for path in sorted(folder.glob('*.eml'))))
    count = len(posting.patches)
    what = f'{count} patches' if count > 1 else 'one patch'
    say(f'mail: {posting.name}: {what} in {mbox.relative_to(TOP)}')


# the first line of each mail in an mbox
FROM = b'From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n'


def main(
    topic: str = '',
    patch: str = '',
    machine: str = '',
    send: bool = False,
    reflect: bool = False,
    reviewed: bool = False,
    linux: str = '',
    stable_git: str = '',
) -> None:
    names, (name, address), version = known_topics(topic), sender(), pinned()[0]
    if send:
        must_be_reviewed(reviewed)
    if (send or reflect) and unreachable(address):
        raise KitError(f'nothing was sent: mail cannot reach {address} (git config user.email)')
    base = upstream(version, linux, stable_git)
    if not base:
        base = git('rev-parse', 'base^{commit}').strip()
        say(
            f'mail: note: the base-commit is that of linux/, which others lack: set LINUX= to a '
            f'git tree with the tag {tag_of(version)}'
        )
    found = sum((postings(each, patch, machine) for each in names), [])
    paths = [path for posting in found for path in posting.patches]
    faults = checkpatch.findings(paths, LINUX, 'MISSING_SIGN_OFF', 'NO_AUTHOR_SIGN_OFF')
    for line in faults:
        say(f'  {line.replace(f"{TOP}/", "")}')
    if faults:
        raise KitError(f'nothing was sent: checkpatch --strict finds {len(faults)} faults (above)')
    below = [path for posting in found for part in posting.below for path in patch_files(part)]
    preimages()
    with Lock(FOLDER):
        sparse_worktree(TREE, files_of([*below, *paths]))
        try:
            mailer = Mailer(name, address, base, {(): 'base'})
            for posting in found:
                mail(mailer, posting, send, reflect)
        finally:
            remove(TREE)
    if not send and not reflect:
        say('mail: nothing was sent (SEND=1 sends)')
