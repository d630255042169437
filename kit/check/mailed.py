# SPDX-License-Identifier: GPL-2.0-only
"""The check `mail`: each topic sent to a server on loopback, what arrives applied again."""

import email
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from email import policy
from email.message import EmailMessage
from email.utils import getaddresses
from pathlib import Path

from kit import cli
from kit.check.common import Failed, need_patches, series
from kit.check.sink import Mail, Sink
from kit.mail import cover
from kit.paths import BUILD, LINUX, TOP
from kit.process import result
from kit.source.git import git, remove, sparse_worktree, try_git
from kit.source.patches import patch_files
from kit.source.pinned import touched
from kit.topics import is_single, parts

Tips = dict[str, str]  # {topic: its last commit}

# a repository like this one, so that linux/ gets no tag and no mail can go anywhere else
BOX = BUILD / 'check' / 'mail'
NAME, ADDRESS = 'A Sender', 'sender@example.com'


def make_box(tips: Tips) -> None:
    """kit/, series/ and a linux/ with as much in it as checkpatch and get_maintainer read."""
    shutil.rmtree(BOX, ignore_errors=True)
    for name in ('kit', 'series', 'guest'):
        shutil.copytree(TOP / name, BOX / name, ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(TOP / 'BASE', BOX)
    linux, last = BOX / 'linux', list(tips.values())[-1]
    git('clone', '-q', '--shared', '--no-checkout', LINUX, linux)
    for topic, tip in tips.items():
        git('update-ref', f'refs/heads/{topic}', tip, cwd=linux)
    git('symbolic-ref', 'HEAD', f'refs/heads/{parts()[-1]}', cwd=linux)
    git(
        'sparse-checkout',
        'set',
        '--no-cone',
        '--stdin',
        cwd=linux,
        stdin=''.join(
            f'{line}\n'
            for line in ('/*', '!/*/', '/scripts/', *(f'/{path}' for path in touched('base', last)))
        ),
    )
    git('checkout', '-q', '--force', 'HEAD', cwd=linux)
    # the check `checkpatch` has read the patches, and verbs.py sees what mail does with findings
    (linux / 'scripts/checkpatch.pl').write_text('exit 0;\n')
    for name in git('ls-tree', '-d', '--name-only', 'HEAD', cwd=linux).split():
        (linux / name).mkdir(exist_ok=True)


def send(topic: str, sink: Sink) -> tuple[int, str]:
    """(exit status, output) of make mail."""
    (BOX / 'gitconfig').write_text(sink.configuration())
    env = {
        'HOME': BOX,
        'XDG_CONFIG_HOME': BOX,
        'GIT_CONFIG_GLOBAL': BOX / 'gitconfig',
        'GIT_CONFIG_NOSYSTEM': '1',
        'GIT_CEILING_DIRECTORIES': BOX.parent,
        'PYTHONDONTWRITEBYTECODE': '1',
        **dict.fromkeys(cli.VARIABLES),
        'KIT_NO_SETUP': '1',
        **{
            f'GIT_{who}_{what}': value
            for who in ('AUTHOR', 'COMMITTER')
            for what, value in (('NAME', NAME), ('EMAIL', ADDRESS))
        },
    }
    done = result(
        [sys.executable, '-m', 'kit', 'mail', '--topic', topic, '--send', '--reviewed'],
        cwd=BOX,
        env=env,
    )
    return done.returncode, done.stdout + done.stderr


def body(message: bytes) -> bytes:
    return message.partition(b'\n\n')[2].strip()


def parsed(mails: Sequence[Mail]) -> list[EmailMessage]:
    return [email.message_from_bytes(data, policy=policy.default) for _, data in mails]


def bodies(mbox: Path) -> list[bytes]:
    """The text of each mail in an mbox that git format-patch wrote."""
    parts = re.split(rb'^From 0{40} .*\n', mbox.read_bytes(), flags=re.M)[1:]
    return [body(part) for part in parts]


def faults_of_one(mail: EmailMessage, recipients: list[str], data: bytes) -> list[str]:
    """What is wrong with a mail, whichever it is."""
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
    if b'***' in data or b'@TABLE@' in data:
        faults.append(f'{what}: not filled in')
    return faults


def is_signed(data: bytes) -> bool:
    return git('interpret-trailers', '--parse', stdin=data.decode()).endswith(
        f'Signed-off-by: {NAME} <{ADDRESS}>\n'
    )


def names_base(data: bytes) -> bool:
    return bool(re.search(rb'^base-commit: [0-9a-f]{40}$', data, re.M))


def faults_of_single(names: Sequence[str], mails: Sequence[Mail], folder: Path) -> list[str]:
    """What is wrong with mails of one patch each, from the mboxes of these names."""
    faults: list[str] = []
    if len(mails) != len(names):
        return [f'{len(mails)} mails of {len(names)} patches arrived']
    for name, mail, (recipients, data) in zip(names, parsed(mails), mails):
        what = mail['Subject']
        faults += faults_of_one(mail, recipients, data)
        if bodies(folder / f'{name}-v1.mbox') != [body(data)]:
            faults.append(f'{what}: what arrived is not what the mbox has')
        if not what.startswith('[PATCH] ') or mail.get('In-Reply-To'):
            faults.append(f'{what}: not a mail of its own')
        if not names_base(data):
            faults.append(f'{what}: no base-commit')
        if not is_signed(data):
            faults.append(f'{what}: not signed off by the sender')
    return faults


def faults_of(topic: str, mails: Sequence[Mail], mbox: Path) -> list[str]:
    """What is wrong with the mails of a topic that is mailed with a cover letter."""
    count = len(patch_files(topic))
    read = parsed(mails)
    numbers = Counter(
        re.sub(rf'^\[PATCH 0*(\d+)/{count}\] .*', r'\1', mail['Subject']) for mail in read
    )
    if numbers != Counter(map(str, range(count + 1))):
        return [f'not each of 0 to {count} arrived once: {dict(numbers)}']
    faults = (
        []
        if [body(data) for _, data in mails] == bodies(mbox)
        else ['what arrived is not what the mbox has']
    )
    cover = read[0]
    if cover.get('In-Reply-To') or len({mail['Message-ID'] for mail in read}) != count + 1:
        faults.append('the cover letter does not begin a thread of mails with names of their own')
    for mail, (recipients, data) in zip(read, mails):
        what = mail['Subject']
        faults += faults_of_one(mail, recipients, data)
        if set(recipients) - set(mails[0][0]):
            faults.append(f'{what}: went to somebody who did not get the cover letter')
        if mail is cover:
            if not names_base(data):
                faults.append(f'{what}: no base-commit')
            continue
        if mail['In-Reply-To'] != cover['Message-ID'] or mail['References'] != cover['Message-ID']:
            faults.append(f'{what}: not in the thread')
        if not is_signed(data):
            faults.append(f'{what}: not signed off by the sender')
    return faults


def what_is_wrong(topic: str, mails: Sequence[Mail]) -> tuple[list[str], Sequence[Mail]]:
    """What is wrong with a topic's mails; those that are patches."""
    folder = BOX / 'build' / 'mail'
    if is_single(topic):
        names = [re.sub('^[0-9]+-', '', path.stem) for path in patch_files(topic)]
        return faults_of_single(names, mails, folder / topic), mails
    if not cover.read(topic):
        return faults_of_single([topic], mails, folder), mails
    return faults_of(topic, mails, folder / f'{topic}-v1.mbox'), mails[1:]


def check(tips: Tips) -> list[str]:
    """The topics' commits; faults, one a line."""
    make_box(tips)
    faults: list[str] = []
    files: dict[str, list[Path]] = {}
    last = list(tips.values())[-1]
    for topic in parts():
        with Sink() as sink:
            status, said = send(topic, sink)
        if status:
            return [*faults, f'{topic}: mail failed:', *said.splitlines()[-5:]]
        wrong, patches = what_is_wrong(topic, sink.mails)
        if wrong:
            return [*faults, *(f'{topic}: {fault}' for fault in wrong)]
        for number, (_, data) in enumerate(patches, 1):
            path = BOX / 'arrived' / f'{topic}-{number:04}'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                b'From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n' + data
            )
            files.setdefault(topic, []).append(path)
    folder = BUILD / 'check.tmp'
    sparse_worktree(folder, touched('base', last))
    try:
        for topic, tip in tips.items():
            done = try_git('am', '--quiet', '--3way', *files[topic], cwd=folder)
            if done.returncode:
                faults.append(
                    f'{topic}: git am of what arrived: '
                    f'{(done.stdout + done.stderr).strip().splitlines()[0]}'
                )
                break
            if git('rev-parse', 'HEAD^{tree}', cwd=folder) != git('rev-parse', f'{tip}^{{tree}}'):
                faults.append(f'{topic}: what arrived, applied, is not the tree of series/')
    finally:
        remove(folder)
    return faults


def mail() -> None:
    """Each posting, mailed to a server on loopback, arrives whole, threaded and signed off, and
    applies to the same trees."""
    need_patches()
    if found := check(series().parts):
        raise Failed('\n'.join(found))
