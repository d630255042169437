# SPDX-License-Identifier: GPL-2.0-only
"""Downloads Debian packages with a private configuration of apt. The system's configuration stays
unchanged. The mirror is the one that the system's configuration names.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from kit.errors import KitError
from kit.model import Machine
from kit.paths import BUILD, shown
from kit.process import Environment, result, step

KEYRINGS = Path('/usr/share/keyrings')


def mirror() -> str | None:
    def uris(*filters: str) -> list[str]:
        return result(
            ['apt-get', 'indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages', *filters]
        ).stdout.split()

    # before the first apt-get update, apt has no Origin
    found = uris('Origin: Debian', 'Label: Debian') or [
        uri for uri in uris() if uri.rstrip('/').endswith('/debian')
    ]
    return sorted(set(found))[0] if found else None


def suite() -> str:
    for line in Path('/etc/os-release').read_text().splitlines():
        if line.startswith('VERSION_CODENAME='):
            return line.split('=')[1].strip('"')
    raise KitError('/etc/os-release names no Debian release')


def private(
    name: str, suites: Sequence[str], arch: str | None = None, instead: str = ''
) -> Environment:
    """Writes the configuration build/apt/NAME and updates its lists; returns the environment for
    apt. `instead` is text for error messages: what the user can do without a download."""
    if not shutil.which('apt-get'):
        raise KitError(f'apt-get is needed to download {name}{instead and f": {instead}"}')
    source, keys = mirror(), sorted(KEYRINGS.glob('debian-archive-keyring.*'))
    if not source or not keys:
        raise KitError(
            f'this system has no Debian mirror to download {name} from{instead and f": {instead}"}'
        )
    folder = BUILD / 'apt' / name
    for sub in ('lists/partial', 'cache/archives/partial'):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    (folder / 'sources.list').write_text(
        ''.join(f'deb [signed-by={keys[0]}] {source} {each} main\n' for each in suites)
    )
    foreign = ''
    if arch:  # packages are only unpacked, so none counts as installed
        (folder / 'status').write_text('')
        foreign = (
            f'APT::Architecture "{arch}";\nAPT::Architectures {{ "{arch}"; }};\n'
            f'Dir::State::status "{folder}/status";\n'
        )
    (folder / 'apt.conf').write_text(f'''Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "{folder}/lists";
Dir::Cache "{folder}/cache";
Dir::Cache::archives "{folder}/cache/archives";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Acquire::Retries "1";
{foreign}''')
    env = {'APT_CONFIG': folder / 'apt.conf'}
    log = folder / 'update.log'
    if step(
        f'package lists for {name}',
        ['apt-get', 'update'],
        log=log,
        env=env,
        timeout=180,
        check=False,
    ):
        if 'No space left' in log.read_text(errors='replace'):
            raise KitError('no space left on the disk')
        raise KitError(
            f'no network to the Debian mirror for {name} ({shown(log)}): '
            f'connect{instead and f", or {instead}"}'
        )
    return env


def fetch(package: str, machine: Machine, instead: str = '') -> Path:
    """Downloads and unpacks a package of the guest's architecture; returns the new folder with its
    files."""
    arch = machine.debian_arch
    name = f'{package}-{arch}'
    env = private(name, [machine.debian_suite or suite()], arch, instead)
    work = BUILD / 'apt' / name / 'files'
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    step(
        f'download {package} ({arch})',
        ['apt-get', 'download', package],
        cwd=work,
        env=env,
        timeout=300,
    )
    step(None, ['dpkg-deb', '-x', next(work.glob('*.deb')), work / 'root'], log=work / 'log')
    return work / 'root'


def fetch_all(name: str, packages: Sequence[str], machine: Machine, release: str) -> Path:
    """Downloads packages of a Debian release with all that they depend on, and unpacks them;
    returns the new folder with their files. `name` is the name of the private configuration."""
    env, folder = private(name, [release], machine.debian_arch), BUILD / 'apt' / name
    for old in (folder / 'root', folder / 'cache' / 'archives'):
        shutil.rmtree(old, ignore_errors=True)
    (folder / 'cache/archives/partial').mkdir(parents=True)
    what, log = f'download {" ".join(packages)} ({release})', folder / 'download.log'
    words = ['install', '-y', '-q', '--no-install-recommends', '--download-only', *packages]
    if step(what, ['apt-get', *words], log=log, env=env, timeout=1800, check=False):
        errors = [line for line in log.read_text().splitlines() if line.startswith('E: ')]
        raise KitError(f'{what}: {(errors or [f"see {shown(log)}"])[0]}')
    debs = sorted((folder / 'cache/archives').glob('*.deb'))
    unpack = 'for deb; do dpkg-deb -x "$deb" root; done'
    step(f'unpack {len(debs)} packages', ['sh', '-ec', unpack, 'sh', *debs], cwd=folder)
    return folder / 'root'


def fetch_file(package: str, machine: Machine, members: Sequence[str], path: Path) -> None:
    """Downloads a package of the guest's architecture, and moves one of its files to `path`: the
    first of `members` that exists."""
    files = fetch(package, machine)
    for member in members:
        if (files / member).is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            (files / member).replace(path)
            return
    raise KitError(f'{package} ({machine.debian_arch}) has none of {" ".join(members)}')
