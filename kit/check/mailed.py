# SPDX-License-Identifier: GPL-2.0-only
"""The check `mail`: sends each topic to a server on loopback, and applies the mails that arrive."""

import email
import re
import shutil
import sys
from collections.abc import Sequence
from email import policy
from email.message import EmailMessage
from email.utils import getaddresses
from pathlib import Path

from kit import cli
from kit.check.common import Failed, need_patches, series
from kit.check.sink import Mail, Sink
from kit.mail import cover
from kit.mail.mail import FROM
from kit.paths import BUILD, LINUX, TOP
from kit.process import result
from kit.setup.tools import FOLDER as TOOLS
from kit.setup.tools import tool
from kit.source.git import git, try_git
from kit.source.patches import digest, patch_files
from kit.source.state import STATE
from kit.topics import is_single, order, parts

Tips = dict[str, str]  # {topic: its last commit}

# A copy of this repository. b4 sets its tags only in the copy's linux/.
BOX = BUILD / 'check' / 'mail'
BOX_LINUX = BOX / 'linux'
NAME, ADDRESS = 'A Sender', 'sender@example.com'


# files that get_maintainer.pl reads or expects
READ = 'COPYING CREDITS Kbuild MAINTAINERS Makefile README scripts/get_maintainer.pl'.split()


def small(commit: str, below: str) -> str:
    """Copies the commit into BOX_LINUX. The copy has only the files that the series touches and the
    files in READ. With hundreds of files in the index instead of 90,000, git am takes 0.01 s per
    patch instead of 0.15 s."""
    env = {'GIT_INDEX_FILE': BOX / 'index', 'GIT_AUTHOR_NAME': NAME, 'GIT_AUTHOR_EMAIL': ADDRESS}
    git('read-tree', '--empty', cwd=BOX_LINUX, env=env)
    listed = git('ls-tree', '-r', commit, '--', *READ, *series().files)
    git('update-index', '--index-info', cwd=BOX_LINUX, env=env, stdin=listed)
    tree = git('write-tree', cwd=BOX_LINUX, env=env).strip()
    parent = ['-p', below] if below else []
    return git('commit-tree', '-m', commit, *parent, tree, cwd=BOX_LINUX, env=env).strip()


def make_box(tips: Tips) -> Tips:
    """Makes BOX with copies of kit/, series/ and guest/, and with a small linux/. Returns {part:
    its last commit in the small linux/}."""
    shutil.rmtree(BOX, ignore_errors=True)
    for name in ('kit', 'series', 'guest'):
        shutil.copytree(TOP / name, BOX / name, ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(TOP / 'BASE', BOX)
    tool('b4')
    (BOX / 'build').mkdir()
    (BOX / 'build/tools').symlink_to(TOOLS)
    git('clone', '-q', '--shared', '--no-checkout', LINUX, BOX_LINUX)
    below = small('base', '')
    git('tag', '--force', 'base', below, cwd=BOX_LINUX)
    made, state = {}, ''
    for part, tip in tips.items():
        made[part] = below = small(tip, below)
        git('update-ref', f'refs/heads/{part}', below, cwd=BOX_LINUX)
        state += f'{part} {below} {digest(part)}\n'
    git('symbolic-ref', 'HEAD', f'refs/heads/{parts()[-1]}', cwd=BOX_LINUX)
    git('checkout', '-q', '--force', 'HEAD', cwd=BOX_LINUX)
    (BOX_LINUX / '.git' / STATE.name).write_text(state)
    # This checkpatch.pl finds nothing. The check `checkpatch` runs the kernel's checkpatch.pl.
    # tests/test_verbs.py tests what `make mail` does with findings.
    (BOX_LINUX / 'scripts/checkpatch.pl').write_text('exit 0;\n')
    for name in git('ls-tree', '-d', '--name-only', 'base').split():
        (BOX_LINUX / name).mkdir(exist_ok=True)
    return made


def send(sink: Sink) -> tuple[int, str]:
    """Runs `make mail` once for all topics, so that it applies each patch only once. Returns (exit
    status, output)."""
    (BOX / 'gitconfig').write_text(
        f'{sink.configuration()}[user]\n name = {NAME}\n email = {ADDRESS}\n'
    )
    env = {
        'HOME': BOX,
        'XDG_CONFIG_HOME': BOX,
        'GIT_CONFIG_GLOBAL': BOX / 'gitconfig',
        'GIT_CONFIG_NOSYSTEM': '1',
        'GIT_CEILING_DIRECTORIES': BOX.parent,
        'PYTHONDONTWRITEBYTECODE': '1',
        **dict.fromkeys(cli.VARIABLES),
        'KIT_NO_SETUP': '1',
    }
    words = '--topic', ' '.join(order()), '--send', '--reviewed'
    done = result([sys.executable, '-m', 'kit', 'mail', *words], cwd=BOX, env=env)
    return done.returncode, done.stdout + done.stderr


def parsed(mails: Sequence[Mail]) -> list[EmailMessage]:
    return [email.message_from_bytes(data, policy=policy.default) for _, data in mails]


def faults_of_one(mail: EmailMessage, recipients: list[str], data: bytes) -> list[str]:
    """Checks a mail for the kinds of fault that any mail can have; returns the faults."""
    what, faults = mail['Subject'], []
    shown = {
        name: [address for _, address in getaddresses(mail.get_all(name, []))]
        for name in ('To', 'Cc')
    }
    if not shown['To'] or 'linux-kernel@vger.kernel.org' not in shown['Cc']:
        faults.append(f'{what}: To {shown["To"]}, Cc {shown["Cc"]}')
    if set(recipients) != {*shown['To'], *shown['Cc']} or not all(
        re.fullmatch(r'[^@\s"]+@[\w.-]+', each) for each in recipients
    ):
        faults.append(f'{what}: went to {recipients}')
    sender = mail['From'].addresses[0]
    if (sender.addr_spec, sender.display_name) != (ADDRESS, NAME):
        faults.append(f'{what}: from {mail["From"]}')
    if b' HERE ***' in data:
        faults.append(f'{what}: not filled in')
    return faults


def is_signed(data: bytes) -> bool:
    return git('interpret-trailers', '--parse', stdin=data.decode()).endswith(
        f'Signed-off-by: {NAME} <{ADDRESS}>\n'
    )


def has_letter(part: str) -> bool:
    """Returns whether the cover letter of a posting is sent as a separate mail. If a posting has
    only one patch, b4 puts the letter below the message of this patch."""
    return not is_single(part) and len(patch_files(part)) > 1


def faults_of(part: str, mails: Sequence[Mail]) -> list[str]:
    """Checks the mails of this part and returns the faults. A part is a posting, or a patch that is
    mailed alone."""
    if not mails:
        return ['a mail is missing']
    letter = None if is_single(part) else cover.read(part)
    count, read = len(mails) - has_letter(part), parsed(mails)
    numbers = [
        re.sub(rf'^\[PATCH[ RFC]* 0*(\d+)/{count}\] .*', r'\1', mail['Subject']) for mail in read
    ]
    if count != len(mails) and numbers != [str(number) for number in range(count + 1)]:
        return [f'expected mails 0 to {count}, got {numbers}']
    if count == len(mails) and not re.match(r'\[PATCH( RFC)?\] ', read[0]['Subject']):
        return [f'{read[0]["Subject"]}: not a mail of its own']
    first, faults = read[0]['Message-ID'], []
    if letter and letter[1] not in read[0].get_content():
        faults.append('the cover letter arrived with another text')
    if len({mail['Message-ID'] for mail in read}) != len(mails):
        faults.append('two mails have the same Message-ID')
    if not re.search(rb'^base-commit: [0-9a-f]{40}$', mails[0][1], re.M):
        faults.append('no base-commit')
    for mail, (recipients, data) in zip(read, mails):
        what = mail['Subject']
        faults += faults_of_one(mail, recipients, data)
        if set(recipients) - set(mails[0][0]):
            faults.append(f'{what}: has a recipient that the cover letter lacks')
        thread = {mail['In-Reply-To'], mail['References']}
        if thread != ({None} if mail['Message-ID'] == first else {first}):
            faults.append(f'{what}: not in the thread')
        if (mail is not read[0] or count == len(mails)) and not is_signed(data):
            faults.append(f'{what}: not signed off by the sender')
    return faults


def divided(mails: Sequence[Mail]) -> dict[str, list[list[Mail]]]:
    """Divides the mails into postings. They are in the order in which they were sent. Returns,
    for each part, the mails of each of its postings. A patch that is mailed alone counts as a
    posting."""
    rest, found = list(mails), {}
    for part in parts():
        count = len(patch_files(part))
        sizes = [1] * count if is_single(part) else [count + has_letter(part)]
        found[part] = [[rest.pop(0) for _ in range(size) if rest] for size in sizes]
    if rest:
        raise Failed(f'{len(rest)} unexpected mails arrived')
    return found


def applied(made: Tips, files: dict[str, list[Path]]) -> list[str]:
    """Applies the mails, one part after the other. Returns the faults of the resulting trees."""
    faults: list[str] = []
    git('checkout', '-q', '--force', '--detach', 'base', cwd=BOX_LINUX)
    for part, tip in made.items():
        done = try_git('am', '--quiet', '--3way', *files.get(part, []), cwd=BOX_LINUX)
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()[0]
            return [*faults, f'{part}: git am of the received mails: {said}']
        trees = git('rev-parse', 'HEAD^{tree}', f'{tip}^{{tree}}', cwd=BOX_LINUX).split()
        if trees[0] != trees[1]:
            faults.append(f'{part}: the received mails, applied, do not give the tree of series/')
    return faults


def check(tips: Tips) -> list[str]:
    """Mails the topics with these commits; returns faults, one per line."""
    made = make_box(tips)
    with Sink() as sink:
        status, said = send(sink)
    if status:
        return ['mail failed:', *said.splitlines()[-5:]]
    faults: list[str] = []
    files: dict[str, list[Path]] = {}
    (BOX / 'arrived').mkdir()
    for part, groups in divided(sink.mails).items():
        for mails in groups:
            faults += [f'{part}: {fault}' for fault in faults_of(part, mails)]
        patches = [data for mails in groups for _, data in mails[0 if len(mails) == 1 else 1 :]]
        for number, data in enumerate(patches, 1):
            path = BOX / 'arrived' / f'{part.replace("/", "-")}-{number:04}'
            path.write_bytes(FROM + data)
            files.setdefault(part, []).append(path)
    return faults or applied(made, files)


def mail() -> None:
    """Each posting arrives complete, threaded and signed off, and results in the same tree.

    The postings are mailed to a server on loopback."""
    need_patches()
    if found := check(series().parts):
        raise Failed('\n'.join(found))
