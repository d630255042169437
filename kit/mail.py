# SPDX-License-Identifier: GPL-2.0-only
"""A topic as mail: cover letter, To and Cc per patch, Signed-off-by of whoever sends.

--topic is needed when there are several. --send calls git send-email; without it the mail is
written as an mbox below build/mail and nothing leaves. --linux or --stable-git is a git tree that
has the base's tag: the base-commit is the one that everybody has.
"""
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from email.header import Header
from pathlib import Path

from kit import checkpatch, measure, table
from kit.base import stable_of_config
from kit.common import BUILD, LINUX, SERIES, TOP, die, host_cpus, output, say, step
from kit.git import git, remove
from kit.series import apply, corresponds, format_patches, pinned, ranges, tag_of
from kit.topics import after, order


# the author of this repository's own patches: they are the sender's. Compared exactly, as a
# contributor's address may look like it
PLACEHOLDER = 'Seed d00bda63 maintainers <maintainers@users.noreply.a-seed-d00bda63.example>'


def sender():
    """The sender's name and address, from his git configuration."""
    name, mail = (
        os.environ.get(f'GIT_AUTHOR_{what.upper()}')
        or output(['git', 'config', f'user.{what}'], cwd=TOP, check=False).stdout.strip()
        for what in ('name', 'email')
    )
    if not name or not mail:
        die('git does not know who you are: git config user.name and user.email')
    return name, mail


def last_sent(topic):
    """The version last sent, or 0."""
    tags = re.findall(
        rf'^sent/{re.escape(topic)}/v(\d+)$', git('tag', '--list', f'sent/{topic}/v*'), re.M
    )
    return max(map(int, tags), default=0)


def cover(topic):
    """Subject and text of the cover letter, its table filled from the recorded benchmark."""
    path = SERIES / topic / 'cover.md'
    if not path.is_file():
        die(f'series/{topic}/cover.md is missing')
    title, _, text = path.read_text().partition('\n')
    if not title.startswith('# ') or not text.strip():
        die(f'series/{topic}/cover.md: the first line must be `# subject`, then the text')
    if '\n@TABLE@\n' in text:
        text = text.replace('@TABLE@', results(topic))
    return title[2:].strip(), text.strip()


def results(topic):
    """The table of a cover letter."""
    data = measure.load(topic)
    if data:
        return table.text(data, cover=True)
    say(f'mail: note: there is no series/{topic}/bench.json, the cover letter has no table')
    return f'(not measured yet: make bench TOPIC={topic})'


def recipients(path):
    """To (maintainers) and Cc (reviewers, lists) of one patch."""
    text = output(
        ['perl', 'scripts/get_maintainer.pl', '--no-git', '--no-git-fallback', '--rolestats', path],
        cwd=LINUX,
    )
    to, cc = [], []
    # "A Name (Firm)" <address> (role:SECTION)
    for who, role in re.findall(r'^(.*@\S+) \(([^:()]*).*\)$', text, re.M):
        (cc if role == 'reviewer' or role.endswith('list') else to).append(who.strip())
    return to, cc


def alone(topic):
    """(from, to): the topic's commits on the base and the topics it needs, as it is mailed,
    whatever else is in series/."""
    if order()[0] == topic:
        return next((first, last) for each, first, last in ranges() if each == topic)
    folder = BUILD / 'mail.tmp'
    try:
        tips = ['base', *apply(folder, [*after(topic), topic]).values()]
        return tips[-2], tips[-1]
    finally:
        remove(folder)


def upstream(version, *places):
    """The commit of the base's tag in a tree that others have too; here it is one commit without
    history."""
    tag = tag_of(version)
    for place in filter(None, (*places, stable_of_config())):
        tags = output(
            ['git', 'ls-remote', place, f'refs/tags/{tag}', f'refs/tags/{tag}^{{}}'],
            cwd=TOP,
            check=False,
        )
        if tags.stdout.strip():
            return tags.stdout.splitlines()[-1].split()[0]    # an annotated tag's commit comes last
    return None


def header(value):
    return value if value.isascii() else Header(value, 'utf-8').encode()


def address_lines(name, addresses):
    return (
        f'{name}: ' + ',\n\t'.join(header_address(address) for address in addresses) + '\n'
        if addresses
        else ''
    )


def header_address(address):
    match = re.fullmatch(r'(.*?)\s*<(.*)>', address)
    if not match or address.isascii():
        return address
    return f'{header(match[1].strip(chr(34)))} <{match[2]}>'


def unreachable(author):
    """Is it an address that no mail can reach? GitHub gives such ones to contributors, too."""
    return re.search(r'\bno-?reply\b|\.example>?$|@localhost>?$', author)


def authors_of(first, last, sign):
    """The authors of a topic's commits besides the sender; mail must reach each of them."""
    found = set(git('log', '--format=%an <%ae>', f'{first}..{last}').splitlines())
    found -= {PLACEHOLDER, sign}
    for author in sorted(filter(unreachable, found)):
        commit = git('log', '-1', '--format=%h ("%s")', '--fixed-strings', f'--author={author}',
                     f'{first}..{last}').strip()
        die(f'nobody can write to {author}, the author of {commit}: git commit --amend --author=')
    return found


def finish(path, sign):
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


def known_topic(topic):
    names = order()
    alone_there = names[0] if len(names) == 1 else ''
    topic = topic or alone_there or \
        die(f'TOPIC= is needed, one of: {" ".join(names)}')
    if topic not in names:
        die(f'no topic {topic} (known: {" ".join(names)})')
    if not (LINUX / '.git').exists() or not corresponds():
        die('linux/ is not what series/ describes, and what is mailed is series/: '
            'make export or make tree first')
    return topic


def write_patches(topic, version, who, text, first, last):
    """The topic as git format-patch writes it, in a folder of its own: (letter, patches)."""
    folder = BUILD / 'mail' / f'{topic}-v{version}'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name, mail = who
    more = ['--cover-letter', '--numbered', '--thread=shallow', f'--from={name} <{mail}>',
            '--base=base']
    if version > 1:
        before = f'sent/{topic}/v{version - 1}'
        if not re.search(rf'^(Changes|v{version}\b)', text, re.M):
            say(f'mail: note: series/{topic}/cover.md does not say what has changed '
                f'(Changes since v{version - 1}:)')
        more += [f'--reroll-count={version}', f'--range-diff={before}-base..{before}']
    # the cover letter's author is git's committer
    format_patches(first, last, folder, *more,
                   env={'GIT_COMMITTER_NAME': name, 'GIT_COMMITTER_EMAIL': mail})
    letter, *patches = sorted(folder.glob('*.patch'))
    return letter, patches


def fill_letter(letter, patches, subject, text, name, places):
    """Subject, text, base-commit and headers of the cover letter."""
    content = letter.read_text(errors='surrogateescape')
    content = content.replace(f'\n{PLACEHOLDER.rpartition(" <")[0]} (', f'\n{name} (')    # shortlog
    content = content.replace('*** SUBJECT HERE ***', header(subject))
    content = content.replace('*** BLURB HERE ***', text)
    version = pinned()[0]
    if commit := upstream(version, *places):
        content = re.sub(r'^base-commit: .*$', f'base-commit: {commit}', content, count=1,
                         flags=re.M)
    else:
        say(f'mail: note: base-commit is the commit of {tag_of(version)} in linux/, which nobody '
            f'else has: LINUX= a git tree with the tag {tag_of(version)}')
    # git leaves the name in a cover letter's From: unencoded
    mine = re.search(r'^From: .*$', patches[0].read_text(errors='surrogateescape'), re.M)[0]
    content = re.sub(r'^From: .*$', lambda _: mine, content, count=1, flags=re.M)
    if not content.isascii() and 'Content-Type:' not in content:
        content = content.replace('\n\n', '\nMIME-Version: 1.0\n'
                                  'Content-Type: text/plain; charset=UTF-8\n'
                                  'Content-Transfer-Encoding: 8bit\n\n', 1)
    letter.write_text(content, errors='surrogateescape')


def address(letter, patches, found):
    """To and Cc into each mail; the cover letter goes to all. Returns its (to, cc)."""
    everyone, others = [], []
    for to, cc in found:
        everyone += [who for who in to if who not in everyone]
        others += [who for who in cc if who not in others]
    groups = dict(zip(patches, found))
    groups[letter] = everyone, [who for who in others if who not in everyone]
    for path, (to, cc) in groups.items():
        text = path.read_text(errors='surrogateescape')
        lines = address_lines('To', to) + address_lines('Cc', cc)
        path.write_text(text.replace('\n\n', f'\n{lines}\n', 1), errors='surrogateescape')
    return groups[letter]


def main(topic='', to='', send=False, linux='', stable_git=''):
    topic, (name, mail), only = known_topic(topic), sender(), to
    first, last = alone(topic)
    if not git('rev-list', f'{first}..{last}').strip():
        die(f'topic {topic} has no patches')
    subject, text = cover(topic)
    version = last_sent(topic) + 1
    authors = authors_of(first, last, f'{name} <{mail}>')
    letter, patches = write_patches(topic, version, (name, mail), text, first, last)
    fill_letter(letter, patches, subject, text, name, (linux, stable_git))
    for path in patches:
        finish(path, f'{name} <{mail}>')
    faults = checkpatch.findings(patches, LINUX)
    with ThreadPoolExecutor(host_cpus()) as pool:
        found = [([only], [])] * len(patches) if only else list(pool.map(recipients, patches))
    for line in faults:
        say(f'  {line.replace(f"{BUILD}/", "build/")}')
    to, cc = address(letter, patches, found)
    mbox = letter.parent.with_suffix('.mbox')
    mbox.write_bytes(b'\n'.join(path.read_bytes() for path in (letter, *patches)))
    say(f'mail: {topic} v{version}, {len(patches)} patches and the cover letter in '
        f'{mbox.relative_to(TOP)}')
    if authors:
        say(f'mail: with patches of {", ".join(sorted(authors))}')
    say(f'mail: as {name} <{mail}>, to {len(to)}, cc {len(cc)}: {", ".join([*to, *cc])}')
    if faults:
        die(f'nothing was sent: checkpatch --strict finds {len(faults)} faults (above)')
    if not send:
        say('mail: nothing was sent (SEND=1 sends)')
        return
    if unreachable(mail):
        die(f'nothing was sent: nobody can answer to {mail} (git config user.email)')
    send_email([letter, *patches])
    if not only:    # a trial is no version
        git('tag', f'sent/{topic}/v{version}-base', f'{first}^{{commit}}')
        git('tag', f'sent/{topic}/v{version}', f'{last}^{{commit}}')
        say(f'mail: sent; kept as the tag sent/{topic}/v{version} in linux/')


def send_email(files):
    if not Path(output(['git', '--exec-path']).strip(), 'git-send-email').exists():
        die('git send-email is missing: install the package git-email')
    step(
        'send',
        [
            'git',
            'send-email',
            '--confirm=never',
            '--no-thread',
            '--no-validate',
            '--no-chain-reply-to',
            '--no-format-patch',
            '--suppress-cc=self',
            '--suppress-cc=author',
            '--suppress-cc=body',
            '--suppress-cc=cccmd',
            '--no-annotate',
            '--8bit-encoding=UTF-8',
            *files,
        ],
        cwd=TOP,
        timeout=600,
    )
