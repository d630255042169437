# SPDX-License-Identifier: GPL-2.0-only
"""The series as files (series/) and as branches (linux/), and the base it stands on (BASE)."""
import contextlib
import functools
import hashlib
import re
import shutil
from email.header import decode_header, make_header
from pathlib import Path

from kit.common import BUILD, LINUX, SERIES, TOP, Progress, die, say
from kit.git import git, remove, sparse_worktree
from kit.topics import order
from kit.trees import Lock

# Kept by `tree` and `export`: what linux/ and series/ were when they last were the same
STATE = LINUX / '.git' / 'series-state'
# The commits that `tree` has made of series/ last, on the branches or not yet
MADE = 'refs/series/made'
# The touched files of the release in BASE, if linux/'s base is another one, and the series on them:
# what git merges with, and does not collect as garbage
PINNED, PREIMAGES = 'refs/series/pinned', 'refs/series/preimages'


def version_of(makefile):
    """7.3.4 from the text of the kernel's Makefile; the empty string when it is none."""
    value = dict(
        re.findall(r'^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *=[ \t]*(\S*)', makefile, re.M)
    )
    if not value.get('VERSION'):
        return ''
    return '.'.join(value.get(k) or '0' for k in ('VERSION', 'PATCHLEVEL', 'SUBLEVEL')) + value.get(
        'EXTRAVERSION', ''
    )


def pinned():
    """What BASE pins: the version, and {path: SHA-256}."""
    try:
        text = (TOP / 'BASE').read_text()
    except OSError as error:
        die(f'BASE: {error.strerror}')
    version = re.search(r'^version (\S+)$', text, re.M)
    if not version:
        die('BASE: no line `version 7.3.y`')
    return version[1], {
        path: digest for digest, path in re.findall(r'^([0-9a-f]{64})  (\S.*)$', text, re.M)
    }


def mainline():
    """7.3 of 7.3.4: the series is of its releases."""
    return '.'.join(pinned()[0].split('.')[:2])


def base_file(path, commit='base'):
    """A file's bytes in a commit, None where it is absent."""
    done = git('cat-file', 'blob', f'{commit}:{path}', check=False)
    return None if done.returncode else done.stdout.encode('utf-8', 'surrogateescape')


def check_sums(version, read):
    """The files that the series touches must be those it is written on; for another 7.3.y `git am`
    decides."""
    wanted, sums = pinned()
    for path, digest in sums.items():
        content = read(path)
        if content is not None and hashlib.sha256(content).hexdigest() == digest:
            continue
        what = (
            'is missing from the base'
            if content is None
            else 'is not the one the series is written on (SHA-256 in BASE)'
        )
        if version == wanted:
            die(f'{path} {what}: get an unaltered Linux {wanted}')
        say(f'note: {path} {what}')


def as_pinned(read):
    """{path: bytes} of all files that BASE lists, or None when one is not the one meant."""
    found = {}
    for path, digest in pinned()[1].items():
        content = read(path)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            return None
        found[path] = content
    return found


def tag_of(version):
    """v7.4 of 7.4.0, as there is no v7.4.0."""
    return f'v{version.removesuffix(".0") if version.count(".") == 2 else version}'


def patch_files(topic):
    return sorted((SERIES / topic).glob('[0-9][0-9][0-9][0-9]-*.patch'))


def ranges():
    """[(topic, from, to)] of the branches in linux/, which must be stacked in the order of
    series/order."""
    result, below = [], 'base'
    for topic in order():
        branch = f'refs/heads/{topic}'
        if git('rev-parse', '-q', '--verify', branch, check=False).returncode:
            die(
                f'linux/ has no branch {topic}: create it on its first commit\'s parent, or take '
                f'it out of series/order'
            )
        if git('merge-base', '--is-ancestor', below, branch, check=False).returncode:
            die(f'branch {topic} does not stand on {below.removeprefix("refs/heads/")}: '
                f'rebase it there (series/order is the order)')
        if git('rev-list', '--merges', '-n1', f'{below}..{branch}'):
            die(f'branch {topic} has a merge commit: rebase it, a series is a line of patches')
        result.append((topic, below, branch))
        below = branch
    return result


def format_patches(first, last, folder, *more, env=None):
    """The commits of a range as files whose bytes depend on nothing but the commits."""
    git(
        '-c',
        'diff.suppressBlankEmpty=false',
        '-c',
        'diff.noprefix=false',
        '-c',
        'diff.mnemonicPrefix=false',
        '-c',
        'diff.relative=false',
        '-c',
        'diff.orderFile=/dev/null',
        '-c',
        'diff.statGraphWidth=0',
        '-c',
        'diff.ignoreSubmodules=none',
        '-c',
        'format.encodeEmailHeaders=true',
        '-c',
        'format.mboxrd=false',
        '-c',
        'format.filenameMaxLength=64',
        '-c',
        'diff.dirstat=',
        '-c',
        'diff.wsErrorHighlight=none',
        '-c',
        'diff.colorMoved=no',
        'format-patch',
        '--zero-commit',
        '--no-signature',
        '--no-numbered',
        '--full-index',
        '--no-attach',
        '--no-thread',
        '--no-to',
        '--no-cc',
        '--no-from',
        '--no-signoff',
        '--no-base',
        '--no-notes',
        '--no-add-header',
        '--no-cover-letter',
        '--no-ext-diff',
        '--no-textconv',
        '--subject-prefix=PATCH',
        '--suffix=.patch',
        '--start-number=1',
        '--find-renames=50%',
        '--binary',
        '--unified=3',
        '--inter-hunk-context=0',
        '--diff-algorithm=histogram',
        '--indent-heuristic',
        '--src-prefix=a/',
        '--dst-prefix=b/',
        '--no-relative',
        '--submodule=short',
        '-o',
        folder,
        *more,
        f'{first}..{last}',
        env=env,
    )


def write_series(folder, parts):
    """series/'s patches as they would be exported, into a folder; {topic: [names]}."""
    result = {}
    for topic, first, last in parts:
        target = Path(folder) / topic
        target.mkdir(parents=True, exist_ok=True)
        format_patches(first, last, target)
        result[topic] = sorted(path.name for path in target.iterdir())
    return result


@contextlib.contextmanager
def exported():
    """A fresh folder with what `make export` would write now, and its names."""
    with Lock(BUILD / 'export'):
        folder = BUILD / 'export' / 'series'
        shutil.rmtree(folder, ignore_errors=True)
        yield folder, write_series(folder, ranges())
        shutil.rmtree(folder)


def same_bytes(folder, names):
    """Does series/ hold exactly these patches? The names of those that differ, none when it
    does."""
    different = []
    for topic, files in names.items():
        old = {path.name: path for path in patch_files(topic)}
        for name in sorted(set(files) | set(old)):
            if (
                name not in files
                or name not in old
                or (folder / topic / name).read_bytes() != old[name].read_bytes()
            ):
                different.append(f'series/{topic}/{name}')
    return different


def digest(topic):
    """One number for a topic's patches."""
    total = hashlib.sha256()
    for path in patch_files(topic):
        content = path.read_bytes()
        total.update(f'{path.name} {len(content)}\n'.encode() + content)
    return total.hexdigest()


def save_state():
    tips = branches()
    STATE.write_text(''.join(f'{topic} {tips[topic]} {digest(topic)}\n' for topic in order()))


def load_state():
    """{topic: (commit, digest of its patches)} when linux/ and series/ last were the same."""
    try:
        return {
            topic: (commit, number)
            for topic, commit, number in (line.split() for line in STATE.read_text().splitlines())
        }
    except (OSError, ValueError):
        return {}


def series_changed(different):
    """Those of the differing files whose topic has changed in series/ (git pull, an edit) since
    linux/ was made from it."""
    changed = {topic for topic, (_, number) in load_state().items() if number != digest(topic)}
    return [name for name in different if name.split('/')[1] in changed]


def busy():
    """An unfinished git operation in linux/, in words."""
    for name, words in (
        ('rebase-merge', 'git rebase'),
        ('rebase-apply', 'git am or rebase'),
        ('MERGE_HEAD', 'git merge'),
        ('CHERRY_PICK_HEAD', 'git cherry-pick'),
        ('REVERT_HEAD', 'git revert'),
        ('BISECT_LOG', 'git bisect'),
    ):
        if (LINUX / '.git' / name).exists():
            return words
    return ''


def uncommitted():
    """Files of linux/ that git does not hold as they are."""
    return [line[3:] for line in git('--no-optional-locks', 'status', '--porcelain',
                                     '--untracked-files=all').splitlines()]


def half_checked_out(name):
    """Is this file as in the commits that `tree` has made? Then one that was killed wrote it."""
    path = LINUX / name
    return path.is_file() and path.read_bytes() == base_file(name, MADE)


def own_work():
    """One line on what linux/ holds that series/ does not and that must not be lost; '' when
    nothing."""
    if busy():
        return f'a {busy()} is under way in linux/: finish or abort it'
    head = git('symbolic-ref', '-q', '--short', 'HEAD', check=False).stdout.strip()
    commit = git('rev-parse', 'HEAD').strip()
    state, names = load_state(), order()
    known = {git('rev-parse', 'base^{commit}').strip(), *(value[0] for value in state.values())}
    different = []
    for topic in dict.fromkeys([*names, *state]):
        tip = git('rev-parse', '-q', '--verify', f'refs/heads/{topic}', check=False).stdout.strip()
        if tip and tip not in known:
            different.append(topic)
    if (
        not head
        and commit not in known
        and not git('for-each-ref', '--contains', commit, 'refs/heads', MADE).strip()
    ):
        return 'linux/ has a detached HEAD with commits on no branch: give them a branch'
    if head and head not in names and head not in state and commit not in known:
        return f'linux/ is on the branch {head}, which is no topic: check out {names[-1]}'
    if different:
        # a rebase that changed nothing but commit ids is no work
        if not any(
            git('rev-parse', '-q', '--verify', f'refs/heads/{name}', check=False).returncode
            for name in names
        ):
            with exported() as (folder, written):
                if not same_bytes(folder, written):
                    different = []
    if different:
        return (
            f'linux/ has commits that series/ has not (branch {", ".join(different)}): make '
            f'export, or take them back')
    files = [name for name in uncommitted() if not half_checked_out(name)]
    if files:
        return (
            f'linux/ has uncommitted changes ({files[0]}{" …" if len(files) > 1 else ""}): '
            f'commit or stash them')
    return ''


def elsewhere():
    """What linux/ has checked out, in words, unless it is the last commit of the last topic."""
    tip = git('rev-parse', '-q', '--verify', f'refs/heads/{order()[-1]}', check=False).stdout
    commit = git('rev-parse', 'HEAD')
    branch = git('symbolic-ref', '-q', '--short', 'HEAD', check=False).stdout.strip()
    return '' if commit == tip else branch or commit[:12]


def corresponds():
    """Is linux/ what series/ describes, the last topic checked out, whatever is uncommitted?"""
    head = git('symbolic-ref', '-q', '--short', 'HEAD', check=False).stdout.strip()
    if busy() or head != order()[-1]:
        return False
    if unchanged():
        return True
    if set(order()) - set(branches()):
        return False
    with exported() as (folder, written):
        if same_bytes(folder, written):
            return False
    save_state()
    return True


def branches():
    """{branch of linux/: commit}"""
    tips = git('for-each-ref', '--format=%(refname:short) %(objectname)', 'refs/heads').splitlines()
    return dict(line.split() for line in tips)


def unchanged():
    """Are the branches and series/ what they were when they last were the same?"""
    names, state, tips = order(), load_state(), branches()
    return list(state) == names and all(
        state[name] == (tips.get(name), digest(name)) for name in names)


def patch_subject(path):
    """The subject of a patch file."""
    match = re.search(
        r'^Subject: (?:\[[^]]*\] )?(.*(?:\n[ \t].*)*)', path.read_text(errors='replace'), re.M
    )
    if not match:
        return path.name
    return ' '.join(str(make_header(decode_header(match[1]))).split())


def touched(first, last, *more):
    """Paths that a range of commits changes."""
    return git(
        '-c', 'core.quotePath=false', 'diff', '--no-renames', '--name-only', *more, first, last
    ).splitlines()


def base_text(last):
    """BASE for a series that ends with this commit."""
    sums = [(hashlib.sha256(content).hexdigest(), path) for path in touched('base', last)
            if (content := base_file(path)) is not None]
    comments = [line for line in (TOP / 'BASE').read_text().splitlines() if line.startswith('#')]
    return '\n'.join([*comments, f'version {version_of(git("show", "base:Makefile"))}',
                      *(f'{number}  {path}' for number, path in sums)]) + '\n'


def stopped_at(folder):
    """The number of the patch that git am has stopped at."""
    file = folder / git('rev-parse', '--git-path', 'rebase-apply/next', cwd=folder).strip()
    return int(file.read_text()) if file.exists() else 1


AM = ('am', '--quiet', '--committer-date-is-author-date', '--no-gpg-sign', '--no-signoff',
      '--keep-cr', '--no-scissors', '--patch-format=mbox', '--whitespace=nowarn')


def am(folder, paths, merge='--3way'):
    """git am of patches in a worktree, all in one go: each start reads and writes the index of
    90,000 files. None, or (the patch that does not apply, ' (its file)', what git said)."""
    done = git(*AM, merge, *paths, cwd=folder, check=False)
    if not done.returncode:
        return None
    text = done.stdout + done.stderr
    found = re.search(r'CONFLICT .* in (\S+)|error: patch failed: (\S+)|error: (\S+): does not',
                      text)
    names = [next(filter(None, found.groups()))] if found else git(
        'diff', '--name-only', '--diff-filter=U', cwd=folder).splitlines()
    return paths[stopped_at(folder) - 1], f' ({names[0]})' if names else '', text


def files_of(paths):
    """The files that patches name."""
    found = set()
    for path in paths:
        for names in re.findall(r'^diff --git a/(\S+) b/(\S+)$', path.read_text(errors='replace'),
                                re.M):
            found.update(names)
    return found


def preimages():
    """Makes what each patch was made of, which git merges with if the base is another release: the
    series applied to the touched files of the pinned one (kit/other.py)."""
    if version_of(git('show', 'base:Makefile')) == pinned()[0] \
            or not as_pinned(lambda path: base_file(path, PINNED)):
        return
    folder = BUILD / 'preimages' / 'linux'
    with Lock(folder.parent):
        remove(folder)
        git('worktree', 'add', '--quiet', '--force', '--force', '--detach', folder, PINNED)
        try:
            for topic in filter(patch_files, order()):
                if am(folder, patch_files(topic)):
                    say(f'note: topic {topic} does not apply to the files of {pinned()[0]} in BASE')
                    return
            git('update-ref', PREIMAGES, git('rev-parse', 'HEAD', cwd=folder).strip())
        finally:
            remove(folder)


def apply(folder, names=None):
    """Apply series/, or only some topics of it, in a worktree of its own; {topic: commit}."""
    names = names or order()
    patches = [path for topic in names for path in patch_files(topic)]
    preimages()
    sparse_worktree(folder, files_of(patches) or {'Makefile'})
    progress, tips = Progress(f'apply series/{names[0] if len(names) == 1 else ""}'), {}
    for topic in names:
        progress.tick(topic)
        paths = patch_files(topic)
        if failed := am(folder, paths):
            path, where, text = failed
            note = ''
            version, wanted = version_of(git('show', 'base:Makefile')), pinned()[0]
            if 'No space left' in text:
                die('no space left on the disk; linux/ is as it was')
            if version != wanted:
                note = f'; the base is {version}, the series is written on {wanted}'
            if 'lacks necessary blobs' in text:
                note += f', whose files git lacks to merge: LINUX= a git tree with {tag_of(wanted)}'
            die(
                f'{path.name} ("{patch_subject(path)}") of topic {topic} does not '
                f'apply{where}{note}; linux/ is as it was'
            )
        tips[topic] = git('rev-parse', 'HEAD', cwd=folder).strip()
    progress.done(f'({len(patches)} patches)')
    return tips


@functools.cache
def applied():
    """{topic: commit} of all of series/, applied from scratch by whoever asks first."""
    with Lock(BUILD / 'apply'):
        folder = BUILD / 'apply' / 'linux'
        try:
            return apply(folder)
        finally:
            remove(folder)
