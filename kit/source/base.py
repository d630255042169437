# SPDX-License-Identifier: GPL-2.0-only
"""Makes linux/: the base kernel as one commit with the tag `base`.

If --linux names a git tree or an unpacked tree, the files come from it. That tree is only read.
Otherwise they come from the stable git tree that --stable-git or `git config series.stable` names.
If no such tree is named, or it does not answer, they come from Debian's source package.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kit.errors import KitError
from kit.lock import Lock
from kit.paths import BUILD, LINUX, TOP
from kit.process import Done, Environment, Progress, output, result, say, step
from kit.setup import apt
from kit.source import preimages
from kit.source.git import COMMITTER, git, git_command, git_env, try_git
from kit.source.pinned import Reader, base_file, check_sums, mainline, pinned, tag_of, version_of

TMP = BUILD / 'base.tmp'
TREE = TMP / 'linux'
ORIGIN = LINUX / '.git/series-origin'  # the LINUX= from which linux/ was made
NEEDED = 4 << 30  # bytes on disk: 1.8 GB of files, 0.4 GB of git's data, and the package


# An argument `release` is either X.Y, which stands for every X.Y.Z, or one particular X.Y.Z. The
# value None stands for the X.Y of the release in BASE.


def is_release(version: str, release: str | None) -> bool:
    release = release or mainline()
    same = release in (version, f'{version}.0')
    return same or bool(re.fullmatch(rf'{re.escape(release)}\.\d+', version))


def newest(tags: Iterable[str], release: str) -> list[str]:
    """Returns the tags of the release, newest first."""
    wanted = (
        rf'v{re.escape(release)}(\.\d+)?' if release.count('.') == 1 else re.escape(tag_of(release))
    )
    return sorted(
        (tag for tag in tags if re.fullmatch(wanted, tag)),
        reverse=True,
        key=lambda tag: [int(word) for word in tag[1:].split('.')],
    )


def glob_of(release: str) -> str:
    """Returns the pattern with which git lists the release's tags."""
    return f'v{".".join(release.split(".")[:2])}*'


def version_error(version: str, where: str, release: str | None = None) -> None:
    if release and not is_release(version, release):
        raise KitError(f'{where} is Linux {version or "of unknown version"}, not {release}')
    if not is_release(version, release):
        raise KitError(
            f'{where} is Linux {version or "of unknown version"}, but the series is based on '
            f'{mainline()}.y: give a v{mainline()}.y tree'
        )


def from_linux(path: str | Path, release: str | None = None) -> str:
    wanted = release or mainline()
    path = Path(path).expanduser().resolve()
    if not path.is_dir():
        raise KitError(f'LINUX={path}: no such folder')

    def read(*words: str) -> Done:
        return try_git('--no-optional-locks', *words, cwd=path)

    top = read('rev-parse', '--show-toplevel').stdout.strip()
    if not top or Path(top).resolve() != path:
        return from_unpacked(path, release)
    tags = newest(read('tag', '--list', glob_of(wanted)).stdout.split(), wanted)
    # the newest release in the tree, without commits on top
    source = tags[0] if tags else 'HEAD'
    makefile = read('show', f'{source}:Makefile')
    if makefile.returncode:
        raise KitError(f'LINUX={path}: {source} has no Makefile: give a tree of Linux v{wanted}.y')
    version_error(version_of(makefile.stdout), f'LINUX={path} ({source})', release)
    say(f'base: {source} of the git tree {path}')
    if read('status', '--porcelain', '-uno').stdout:
        say(f'base: note: uncommitted changes in {path} are ignored')
    TREE.mkdir()
    script = '"$@" archive --format=tar "$SOURCE" | tar -x --no-same-owner -f - -C "$TREE"'
    step(
        'unpack',
        ['bash', '-o', 'pipefail', '-c', script, 'sh', *git_command()],
        cwd=path,
        env=git_env(SOURCE=source, TREE=TREE),
    )
    return f'{source} of a git tree'


def from_unpacked(path: Path, release: str | None = None) -> str:
    if not (path / 'Makefile').is_file():
        raise KitError(
            f'LINUX={path}: no Makefile there: give a tree of Linux v{release or mainline()}.y'
        )
    version_error(version_of((path / 'Makefile').read_text()), f'LINUX={path}', release)
    if (path / '.config').exists() or (path / 'include/config').exists():
        raise KitError(
            f'LINUX={path}: it contains a build: give a clean tree, or run `make mrproper` there'
        )
    if TOP.is_relative_to(path):
        raise KitError(f'LINUX={path}: this repository is inside it')
    say(f'base: the unpacked tree {path}')
    step('copy', ['cp', '-r', '--preserve=mode,timestamps,links', '--reflink=auto', path, TREE])
    return 'an unpacked tree'


def from_stable(url: str, release: str | None = None) -> str | None:
    """Fetches the newest v7.3.y tag of a stable git tree; None if the network does not allow it."""
    wanted = release or mainline()
    try:
        found = subprocess.run(
            ['git', 'ls-remote', '--tags', url, glob_of(wanted)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={**os.environ, 'GIT_TERMINAL_PROMPT': '0'},
        ).stdout
    except (subprocess.TimeoutExpired, OSError):
        found = ''
    tags = newest(re.findall(r'refs/tags/(\S+)$', found, re.M), wanted)
    if not tags:
        say(f'base: the stable git tree does not answer or has no v{wanted}.y: skipped')
        return None
    tag = tags[0]
    git('init', '-q', TREE, cwd=TMP)
    # with the user's configuration (proxy, keys)
    status = step(
        f'fetch {tag}',
        ['git', '-C', TREE, 'fetch', '--depth=1', '--no-tags', url, f'refs/tags/{tag}'],
        timeout=900,
        check=False,
        env={'GIT_TERMINAL_PROMPT': '0'},
    )
    if status == 0:
        git('checkout', '-q', '--detach', 'FETCH_HEAD', cwd=TREE)
        shutil.rmtree(TREE / '.git')  # linux/ has one commit, without history
        return f'{tag} of the stable tree'
    shutil.rmtree(TREE)
    return None


def from_debian(release: str | None = None) -> str:
    env, name, versions = debian_versions(release)
    return from_package(env, name, versions[0])  # the newest


def debian_versions(release: str | None = None) -> tuple[Environment, str, list[str]]:
    """Returns (environment for apt, name of the source package, its versions in the archive)."""
    wanted = release or mainline()
    name = f'linux-source-{".".join(wanted.split(".")[:2])}'
    instead = (
        f'give --linux /path of a v{wanted} tree'
        if release
        else f'make tree LINUX=/path of a v{wanted}.y tree'
    )
    for program in ('dpkg-deb', 'xz'):
        if not shutil.which(program):
            raise KitError(f'{program} is needed to unpack {name}: {instead}')
    env = apt.private(name, ['trixie-backports'], instead=instead)
    versions = [
        line.split('|')[1].strip()
        for line in output(['apt-cache', 'madison', name], env=env).splitlines()
        if line.startswith(name) or f' {name} ' in line
    ]
    # 7.3.4-1 and 7.3.4-1~bpo13+1 are versions of 7.3.4
    versions = [version for version in versions if is_release(version.split('-')[0], release)]
    if not versions:
        raise KitError(f'the Debian mirror has no {name} {release or ""} any more: {instead}')
    return env, name, versions


def from_package(env: Environment, name: str, version: str, *paths: str) -> str:
    """Downloads and unpacks the package. If `paths` are given, unpacks only these files."""
    step(
        f'download {name} {version}',
        ['apt-get', 'download', f'{name}={version}'],
        cwd=TMP,
        env=env,
        timeout=1800,
    )
    package = next(TMP.glob('*.deb'))
    TREE.mkdir()
    script = (
        'dpkg-deb --fsys-tarfile "$1" | tar -xO -f - "./usr/src/$2.tar.xz" | xz -dc -T0 |'
        ' tar -x --no-same-owner --strip-components=1 -f - -C "$3" "${@:4}"'
    )
    step(
        'unpack',
        [
            'bash',
            '-o',
            'pipefail',
            '-c',
            script,
            'sh',
            package,
            name,
            TREE,
            *(f'{name}/{path}' for path in paths),
        ],
    )
    package.unlink()
    if paths:
        return f"Debian's {name} {version}"
    # Debian's .gitignore ends with `/*`, so git would ignore new files of the series
    ignore = TREE / '.gitignore'
    ignore.write_text(
        re.sub(r'#\n# Debian packaging:.*\n(#.*\n)*#\n/\*\n!/debian/\n', '', ignore.read_text())
    )
    return f"Debian's {name} {version}"


def package_reader() -> Reader:
    """Returns a reader for the files of Debian's package, in the pinned version. The reader
    downloads the package when first called, and returns None if the archive no longer has the
    package."""

    @functools.cache
    def unpacked() -> bool:
        TMP.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(TREE, ignore_errors=True)
        try:
            env, name, versions = debian_versions(pinned()[0])
            from_package(env, name, versions[0], *pinned()[1])
        except KitError as error:
            say(f'base: {error}')
            return False
        return True

    return lambda path: (TREE / path).read_bytes() if unpacked() else None


def commit(version: str) -> None:
    """Makes TREE a git repository with one commit, which has the tag `base`."""
    git('init', '-q', TREE, cwd=TMP)
    head = write_commit(version)
    git('update-ref', '--no-deref', 'HEAD', head, cwd=TREE)
    git('tag', 'base', head, cwd=TREE)
    # with these settings, a rebase also moves the branches of earlier topics
    for setting in ('rebase.updateRefs', 'rebase.autoSquash'):
        git('config', setting, 'true', cwd=TREE)


def write_commit(version: str, **env: str) -> str:
    """Commits the files of TREE; the commit id depends only on these files. `env` can direct git
    to another repository."""
    progress = Progress('add to git')
    # one by one, because `git add` compares each file with all others of the same command
    for path in sorted(TREE.iterdir()):
        if path.name != '.git':
            progress.tick(path.name)
            # big files go straight into a pack; 80,000 loose objects are slower to write, and git
            # would pack them later in the background
            git(
                '-c',
                'core.bigFileThreshold=1',
                '-c',
                'core.compression=1',
                'add',
                '-A',
                '-f',
                '--',
                path.name,
                cwd=TREE,
                env=env,
            )
    progress.done()
    tree = git('write-tree', cwd=TREE, env=env).strip()
    identity = {
        f'GIT_{who}_{what.upper()}': value
        for who in ('AUTHOR', 'COMMITTER')
        for what, value in COMMITTER.items()
    }
    return git(
        'commit-tree', tree, '-m', f'Linux {version}', cwd=TREE, env={**identity, **env}
    ).strip()


def existing(path: str | None) -> None:
    """Checks an existing linux/, and leaves it unchanged. Raises an error unless its tag `base` is
    a release to which the series can apply."""
    if (
        try_git('rev-parse', '-q', '--verify', 'base^{commit}').returncode
        or not (LINUX / '.git').exists()
    ):
        raise KitError(
            'linux/ exists but has no tag `base`: move it away, and `make tree` makes a new one'
        )
    version = version_of(git('show', 'base:Makefile'))
    version_error(version, 'linux/ (tag base)')
    if version != pinned()[0]:
        say(f'base: note: linux/ has {version}, the series is based on {pinned()[0]}')
    check_sums(version, base_file)
    kept = ORIGIN.read_text() if ORIGIN.exists() else ''
    if version != pinned()[0] and kept:  # BASE may list more files than when linux/ was made
        preimages.find(kept)
    if path and kept != str(Path(path).expanduser().resolve()):
        raise KitError(
            f'linux/ exists already, made from {kept or "another source"}: LINUX={path} would be '
            'ignored; move linux/ away first'
        )


def main(linux: str | None = None, stable_git: str | None = None) -> None:
    """Makes linux/, or checks an existing one. `linux` is a tree with the base, and `stable_git` is
    the URL of a stable git tree."""
    with Lock(BUILD / 'base'):  # against concurrent makes
        if LINUX.exists() or LINUX.is_symlink():
            existing(linux)
            return
        if TMP.exists():  # left by an interrupted run
            shutil.rmtree(TMP)
        free = shutil.disk_usage(BUILD).free
        if free < NEEDED:
            raise KitError(
                f'the base needs {NEEDED >> 30} GiB of disk in {TOP}, but only '
                f'{free / (1 << 30):.1f} GiB are free'
            )
        TMP.mkdir()
        try:
            make(linux, stable_git)
        finally:
            shutil.rmtree(TMP, ignore_errors=True)


def stable_of_config() -> str:
    return result(['git', 'config', 'series.stable'], cwd=TOP).stdout.strip()


def unpack(
    path: str | Path | None, stable: str | None, release: str | None = None
) -> tuple[str, str]:
    """Unpacks the source into TREE; returns (its version, its origin)."""
    if path:
        source = from_linux(path, release)
    else:
        source = (stable and from_stable(stable, release)) or from_debian(release)
    version = version_of((TREE / 'Makefile').read_text())
    version_error(version, source, release)
    return version, source


def make(path: str | None, stable: str | None = None) -> None:
    stable = stable or stable_of_config()
    version, source = unpack(path, stable)
    wanted = pinned()[0]
    if version != wanted:
        say(
            f'base: note: this is {version}, the series is based on {wanted}: git merges patches '
            'that do not apply directly'
        )
    check_sums(
        version, lambda path: (TREE / path).read_bytes() if (TREE / path).is_file() else None
    )
    commit(version)
    TREE.rename(LINUX)
    if version != wanted:
        preimages.find(path, stable, package_reader())
    if path:
        ORIGIN.write_text(str(Path(path).expanduser().resolve()))
    say(f'base: linux/ is Linux {version}, {source}')
