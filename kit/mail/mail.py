# SPDX-License-Identifier: GPL-2.0-only
"""A posting as mail: cover letter, To and Cc per patch, Signed-off-by of the sender. A posting of
one patch, and each patch of a topic whose topic.toml says `single`, has no letter.

--topic is needed when there are several: TOPIC/NN-POSTING, or TOPIC for all of its postings.
--patch: of a `single` topic only the patches with this in their file name. --send calls git
send-email, with --reviewed only; without it the mail is written as an mbox below build/mail and
nothing is sent. --linux or --stable-git names a git tree with the base's tag, so that the
base-commit is one that others have.
"""

import dataclasses
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.header import Header
from pathlib import Path

from kit import topics
from kit.errors import KitError, fail
from kit.host import host_cpus
from kit.mail import checkpatch, cover, single
from kit.paths import BUILD, LINUX, TOP
from kit.process import output, result, say, step
from kit.source.apply import apply
from kit.source.base import stable_of_config
from kit.source.git import git, remove
from kit.source.patches import format_patches, patch_files, ranges
from kit.source.pinned import pinned, tag_of
from kit.source.state import corresponds

# trailers of people who get the patch beside those whom get_maintainer names
CREDITS = 'Cc', 'Reported-by', 'Suggested-by', 'Originally-by', 'Co-developed-by', 'Reviewed-by'


@dataclasses.dataclass(frozen=True)
class Posting:
    """What is mailed at once."""

    name: str  # of its tags and files: TOPIC, TOPIC/NN-POSTING or TOPIC/PATCH
    first: str  # the commit below
    last: str
    letter: tuple[str, str] | None  # subject and text of the cover letter
    cc: Sequence[str] = ()  # people whom topic.toml names


Recipients = tuple[list[str], list[str]]  # To, Cc
Written = tuple[Posting, int, list[Path], list[str]]  # version, its mails, what checkpatch finds

# the author of this repository's own patches: they are the sender's. Compared exactly, as a
# contributor's address may look like it
PLACEHOLDER = 'Seed d00bda63 maintainers <maintainers@users.noreply.a-seed-d00bda63.example>'


def sender() -> tuple[str, str]:
    """The sender's name and address, from his git configuration."""
    name, mail = (
        os.environ.get(f'GIT_AUTHOR_{what.upper()}')
        or result(['git', 'config', f'user.{what}'], cwd=TOP).stdout.strip()
        for what in ('name', 'email')
    )
    if not name or not mail:
        raise KitError('git does not know who you are: git config user.name and user.email')
    return name, mail


def last_sent(name: str) -> int:
    """The version of a posting that was last sent, or 0."""
    tags = re.findall(
        rf'^sent/{re.escape(name)}/v(\d+)$', git('tag', '--list', f'sent/{name}/v*'), re.M
    )
    return max(map(int, tags), default=0)


def credited(path: Path) -> list[str]:
    """Those whom the patch's own trailers name."""
    trailers = git('interpret-trailers', '--parse', path).splitlines()
    found = [re.fullmatch(r'([\w-]+): (.*?<?\S+@[^\s>]+>?)(\s*#.*)?', line) for line in trailers]
    return [each[2] for each in found if each and each[1] in CREDITS]


def recipients(path: Path) -> Recipients:
    """To (maintainers) and Cc (reviewers, lists, who is credited) of one patch."""
    text = output(
        ['perl', 'scripts/get_maintainer.pl', '--no-git', '--no-git-fallback', '--rolestats', path],
        cwd=LINUX,
    )
    to: list[str] = []
    cc: list[str] = []
    # "A Name (Firm)" <address> (role:SECTION)
    for who, role in re.findall(r'^(.*@\S+) \(([^:()]*).*\)$', text, re.M):
        (cc if role == 'reviewer' or role.endswith('list') else to).append(who.strip())
    there = {address_of(who) for who in (*to, *cc)}
    return to, cc + [who for who in credited(path) if address_of(who) not in there]


def with_more(to: Sequence[str], cc: Sequence[str], more: Sequence[str]) -> list[str]:
    """The Cc with these as well, each address once."""
    there = {address_of(who) for who in (*to, *cc)}
    return [*cc, *(who for who in more if address_of(who) not in there)]


def address_of(who: str) -> str:
    """The address in `A Name <address>`."""
    return re.sub(r'.*<(.*)>', r'\1', who).strip().lower()


def alone(part: str) -> tuple[str, str]:
    """(from, to): the commits of a topic or posting on the base and what it needs, as it is mailed,
    whatever else is in series/."""
    if topics.parts()[0] == part:
        return next((first, last) for each, first, last in ranges() if each == part)
    folder = BUILD / 'mail.tmp'
    try:
        tips = ['base', *apply(folder, [*topics.below(part), part]).values()]
        return tips[-2], tips[-1]
    finally:
        remove(folder)


def upstream(version: str, *places: str) -> str | None:
    """The commit of the base's tag in a tree that others have too; here it is one commit without
    history."""
    tag = tag_of(version)
    for place in filter(None, (*places, stable_of_config())):
        tags = result(
            ['git', 'ls-remote', place, f'refs/tags/{tag}', f'refs/tags/{tag}^{{}}'], cwd=TOP
        )
        if tags.stdout.strip():
            return tags.stdout.splitlines()[-1].split()[0]  # an annotated tag's commit comes last
    return None


def header(value: str) -> str:
    return value if value.isascii() else Header(value, 'utf-8').encode()


def address_lines(name: str, addresses: Sequence[str]) -> str:
    return (
        f'{name}: ' + ',\n\t'.join(header_address(address) for address in addresses) + '\n'
        if addresses
        else ''
    )


def header_address(address: str) -> str:
    match = re.fullmatch(r'(.*?)\s*<(.*)>', address)
    if not match or address.isascii():
        return address
    return f'{header(match[1].strip(chr(34)))} <{match[2]}>'


def unreachable(author: str) -> bool:
    """Is it an address that no mail can reach? GitHub gives such ones to contributors, too."""
    return bool(re.search(r'\bno-?reply\b|\.example>?$|@localhost>?$', author))


def authors_of(first: str, last: str, sign: str) -> set[str]:
    """The authors of a topic's commits besides the sender; mail must reach each of them."""
    found = set(git('log', '--format=%an <%ae>', f'{first}..{last}').splitlines())
    found -= {PLACEHOLDER, sign}
    for author in sorted(filter(unreachable, found)):
        commit = git(
            'log',
            '-1',
            '--format=%h ("%s")',
            '--fixed-strings',
            f'--author={author}',
            f'{first}..{last}',
        ).strip()
        raise KitError(
            f'nobody can write to {author}, the author of {commit}: git commit --amend --author='
        )
    return found


def finish(path: Path, sign: str) -> None:
    """The sender as author of what has the placeholder, and his Signed-off-by."""
    text = path.read_text(errors='surrogateescape')
    head, _, body = text.partition('\n\n')
    body = body.removeprefix(f'From: {PLACEHOLDER}\n\n')
    path.write_text(f'{head}\n\n{body}', errors='surrogateescape')
    git(
        'interpret-trailers',
        '--in-place',
        '--if-exists=addIfDifferent',
        '--trailer',
        f'Signed-off-by: {sign}',
        path,
    )


def known_topic(topic: str) -> str:
    names = topics.order()
    alone_there = names[0] if len(names) == 1 else ''
    topic = topic or alone_there or fail(f'TOPIC= is needed, one of: {" ".join(names)}')
    if topic not in names and topic not in topics.parts():
        raise KitError(f'no topic {topic} (known: {" ".join(names)})')
    if not (LINUX / '.git').exists() or not corresponds():
        raise KitError(
            'linux/ is not what series/ describes, and what is mailed is series/: '
            'make export or make tree first'
        )
    return topic


def write_patches(
    posting: Posting, version: int, who: tuple[str, str]
) -> tuple[Path | None, list[Path]]:
    """The posting as git format-patch writes it, in a folder of its own: (letter or None,
    patches)."""
    folder = BUILD / 'mail' / f'{posting.name}-v{version}'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name, mail = who
    more = [f'--from={name} <{mail}>', '--base=base']
    if posting.letter:
        more += ['--cover-letter', '--numbered', '--thread=shallow']
    if version > 1:
        before = f'sent/{posting.name}/v{version - 1}'
        if posting.letter and not re.search(rf'^(Changes|v{version}\b)', posting.letter[1], re.M):
            say(
                f'mail: note: series/{posting.name}/cover.md does not say what has changed '
                f'(Changes since v{version - 1}:)'
            )
        more += [f'--reroll-count={version}', f'--range-diff={before}-base..{before}']
    # the cover letter's author is git's committer
    format_patches(
        posting.first,
        posting.last,
        folder,
        *more,
        env={'GIT_COMMITTER_NAME': name, 'GIT_COMMITTER_EMAIL': mail},
    )
    files = sorted(folder.glob('*.patch'))
    return (files[0], files[1:]) if posting.letter else (None, files)


def fill_letter(letter: Path, patches: Sequence[Path], text: tuple[str, str], name: str) -> None:
    """Subject, text and headers of the cover letter."""
    content = letter.read_text(errors='surrogateescape')
    content = content.replace(f'\n{PLACEHOLDER.rpartition(" <")[0]} (', f'\n{name} (')  # shortlog
    content = content.replace('*** SUBJECT HERE ***', header(text[0]))
    content = content.replace('*** BLURB HERE ***', text[1])
    # git leaves the name in a cover letter's From: unencoded
    mine = re.findall(r'^From: .*$', patches[0].read_text(errors='surrogateescape'), re.M)[0]
    content = re.sub(r'^From: .*$', lambda _: mine, content, count=1, flags=re.M)
    if not content.isascii() and 'Content-Type:' not in content:
        content = content.replace(
            '\n\n',
            '\nMIME-Version: 1.0\n'
            'Content-Type: text/plain; charset=UTF-8\n'
            'Content-Transfer-Encoding: 8bit\n\n',
            1,
        )
    letter.write_text(content, errors='surrogateescape')


def name_base(path: Path, commit: str) -> None:
    """The base-commit that others have, in the mail that names one."""
    text = path.read_text(errors='surrogateescape')
    path.write_text(
        re.sub(r'^base-commit: .*$', f'base-commit: {commit}', text, count=1, flags=re.M),
        errors='surrogateescape',
    )


def address(
    letter: Path | None, patches: Sequence[Path], found: Sequence[Recipients]
) -> Recipients:
    """To and Cc into each mail; the cover letter goes to all. Returns all (to, cc)."""
    everyone, others = [], []
    for to, cc in found:
        everyone += [who for who in to if who not in everyone]
        others += [who for who in cc if who not in others]
    groups = dict(zip(patches, found))
    whole = everyone, [who for who in others if who not in everyone]
    if letter:
        groups[letter] = whole
    for path, (to, cc) in groups.items():
        text = path.read_text(errors='surrogateescape')
        lines = address_lines('To', to) + address_lines('Cc', cc)
        path.write_text(text.replace('\n\n', f'\n{lines}\n', 1), errors='surrogateescape')
    return whole


def postings(topic: str, words: str) -> list[Posting]:
    """What is mailed of the topic, or of one posting of it."""
    if not topics.is_single(topic):
        if words:
            raise KitError(f'PATCH={words}: {topic} is mailed as a whole')
        found = []
        for part in [topic] if '/' in topic else topics.parts_of(topic):
            first, last = alone(part)
            if not git('rev-list', f'{first}..{last}').strip():
                raise KitError(f'topic {part} has no patches')
            said = topics.posting(part)
            found.append(Posting(part, first, last, cover.read(part), said.cc if said else ()))
        return found
    wanted = [path for path in patch_files(topic) if words in path.name]
    if not wanted:
        raise KitError(
            f'PATCH={words}: no patch of {topic} has that in its name'
            if words
            else f'topic {topic} has no patches'
        )
    return [
        Posting(f'{topic}/{re.sub("^[0-9]+-", "", path.stem)}', *single.commits(topic)[path], None)
        for path in wanted
    ]


def must_be_reviewed(reviewed: bool, to: str) -> None:
    """Nobody but a person can sign for what a tool wrote."""
    say(
        'mail: Signed-off-by certifies the Developer Certificate of Origin '
        '(Documentation/process/submitting-patches.rst): you have the right to submit this, and '
        'have reviewed it. Patches that an LLM wrote: coding-assistants.rst, generated-content.rst'
    )
    if not reviewed and not to:
        raise KitError('nothing was sent: REVIEWED=1 says that you have read and sign each patch')


def main(
    topic: str = '',
    patch: str = '',
    to: str = '',
    send: bool = False,
    reviewed: bool = False,
    linux: str = '',
    stable_git: str = '',
) -> None:
    topic, who, number = known_topic(topic), sender(), pinned()[0]
    if send:
        must_be_reviewed(reviewed, to)
    base = upstream(number, linux, stable_git)
    if not base:
        say(
            f'mail: note: base-commit is the commit of {tag_of(number)} in linux/, which nobody '
            f'else has: LINUX= a git tree with the tag {tag_of(number)}'
        )
    written = [
        write(posting, last_sent(posting.name) + 1, who, to, base)
        for posting in postings(topic, patch)
    ]
    faults = sum((faults for *_, faults in written), [])
    if faults:
        raise KitError(f'nothing was sent: checkpatch --strict finds {len(faults)} faults (above)')
    if not send:
        say('mail: nothing was sent (SEND=1 sends)')
        return
    if unreachable(who[1]):
        raise KitError(f'nothing was sent: nobody can answer to {who[1]} (git config user.email)')
    for posting, version, files, _ in written:
        send_email(files)
        if not to:  # a trial is no version
            git('tag', f'sent/{posting.name}/v{version}-base', f'{posting.first}^{{commit}}')
            git('tag', f'sent/{posting.name}/v{version}', f'{posting.last}^{{commit}}')
            say(f'mail: sent; kept as the tag sent/{posting.name}/v{version} in linux/')


def write(
    posting: Posting, version: int, who: tuple[str, str], only: str, base: str | None
) -> Written:
    """The posting as an mbox: (posting, version, its mails, what checkpatch finds)."""
    name, mail = who
    authors = authors_of(posting.first, posting.last, f'{name} <{mail}>')
    letter, patches = write_patches(posting, version, who)
    if letter and posting.letter:
        fill_letter(letter, patches, posting.letter, name)
    if base:
        name_base(letter or patches[0], base)
    for path in patches:
        finish(path, f'{name} <{mail}>')
    faults = checkpatch.findings(patches, LINUX)
    with ThreadPoolExecutor(host_cpus()) as pool:
        found = [([only], [])] * len(patches) if only else list(pool.map(recipients, patches))
    if not only:
        found = [(to, with_more(to, cc, posting.cc)) for to, cc in found]
    for line in faults:
        say(f'  {line.replace(f"{BUILD}/", "build/")}')
    to, cc = address(letter, patches, found)
    mails = [*([letter] if letter else []), *patches]
    mbox = patches[0].parent.with_name(f'{patches[0].parent.name}.mbox')
    mbox.write_bytes(b'\n'.join(path.read_bytes() for path in mails))
    what = f'{len(patches)} patches and the cover letter' if letter else 'one patch'
    say(f'mail: {posting.name} v{version}, {what} in {mbox.relative_to(TOP)}')
    if authors:
        say(f'mail: with patches of {", ".join(sorted(authors))}')
    say(f'mail: as {name} <{mail}>, to {len(to)}, cc {len(cc)}: {", ".join([*to, *cc])}')
    return posting, version, mails, faults


SEND_EMAIL = """
git send-email --confirm=never --no-thread --no-validate --no-chain-reply-to --no-format-patch
--suppress-cc=self --suppress-cc=author --suppress-cc=body --suppress-cc=cccmd --no-annotate
--8bit-encoding=UTF-8
""".split()


def send_email(files: Sequence[Path]) -> None:
    if not Path(output(['git', '--exec-path']).strip(), 'git-send-email').exists():
        raise KitError('git send-email is missing: install the package git-email')
    step('send', [*SEND_EMAIL, *files], cwd=TOP, timeout=600)
