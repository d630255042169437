# SPDX-License-Identifier: GPL-2.0-only
"""The Debian packages that the verbs need. When run as root, installs missing packages. Otherwise,
reports them in an error message."""

import os
import re
import shutil
from collections.abc import Sequence
from typing import NoReturn

from kit import topics
from kit.errors import KitError
from kit.model import machine, usual_archs
from kit.paths import SERIES, TOP
from kit.process import Environment, result, say, step
from kit.setup import apt
from kit.vm.qemu import NEEDED, found_version, host_is

# {package: a program of it, which is looked up on systems without dpkg}
GIT = {'git': 'git', 'make': 'make', 'xz-utils': 'xz', 'perl': 'perl'}
BUILD = {
    **GIT,
    'gcc': 'gcc',
    'libc6-dev': '',
    'bc': 'bc',
    'bison': 'bison',
    'flex': 'flex',
    'libelf-dev': '',
    'libssl-dev': '',
    'rsync': 'rsync',
    'busybox-static': 'busybox',
    'ccache': 'ccache',
    'uuid-dev': '',  # for selftests/vfio
}
TESTS = {**BUILD, 'libcap-dev': ''}  # libcap-dev: for selftests/iommu
MAIL = {**GIT, 'python3-venv': ''}  # python3-venv: for b4
CHECK = {
    **TESTS,
    **MAIL,
    'sparse': 'sparse',
    'shellcheck': 'shellcheck',
    'python3-ply': '',
    'python3-git': '',
    'codespell': 'codespell',
    'python3-docutils': '',
    'spin': 'spin',
}
BENCH = {**TESTS, 'python3-venv': ''}
# for packages of a kernel with a distribution's configuration
HARDWARE = {**BUILD, 'debhelper': 'dh', 'kmod': 'depmod', 'openssl': 'openssl', 'zstd': 'zstd'}
SETS = {
    'GIT': GIT,
    'BUILD': BUILD,
    'TESTS': TESTS,
    'MAIL': MAIL,
    'CHECK': CHECK,
    'BENCH': BENCH,
    'HARDWARE': HARDWARE,
    'CARGO': {'cargo-web': 'cargo'},  # newer than `cargo` in Debian 12 and 13
    'ALL': {**CHECK, **BENCH},
}


def missing(packages: str, archs: Sequence[str], full: bool = False) -> tuple[list[str], list[str]]:
    """Returns (packages, QEMU packages) that are missing."""
    wanted, qemu = dict(SETS[packages]), []
    if full and packages in ('CHECK', 'ALL'):  # compilers of small configurations
        wanted.update({'clang-19': 'clang-19', 'gcc-riscv64-linux-gnu': 'riscv64-linux-gnu-gcc'})
    for each in map(machine, archs):
        if not host_is(each):
            wanted.update(dict.fromkeys(each.cross_packages, ''))
            wanted[each.cross_packages[0]] = each.gcc
        if found_version(each) < NEEDED:
            qemu.append(each.qemu_package)
    if not shutil.which('dpkg-query'):
        return [
            name for name, program in wanted.items() if program and not shutil.which(program)
        ], qemu
    known = result(['dpkg-query', '-W', '-f', '${Package} ${db:Status-Status}\n', *wanted]).stdout
    have = {line.split()[0] for line in known.splitlines() if line.endswith(' installed')}
    return [name for name in wanted if name not in have], qemu


INSTALL = """
apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2
-o Acquire::http::Timeout=30
""".split()


def install(packages: Sequence[str], env: Environment | None = None, *options: str) -> int:
    return step(
        f'install {" ".join(packages)}',
        [*INSTALL, *options, *packages],
        timeout=1800,
        check=False,
        env={'DEBIAN_FRONTEND': 'noninteractive', **(env or {})},
        log=TOP / 'build/log/install.log',
    )


def qemu_candidate(package: str) -> bool:
    """Returns whether the QEMU in the system's own suite is new enough."""
    found = re.search(
        r'Candidate: (?:\d+:)?(\d+)\.(\d+)', result(['apt-cache', 'policy', package]).stdout
    )
    return found is not None and (int(found[1]), int(found[2])) >= NEEDED


def not_installed(packages: Sequence[str]) -> NoReturn:
    log = (TOP / 'build/log/install.log').read_text(errors='replace')
    errors = [line for line in log.splitlines() if line.startswith('E: ')] or [
        'see build/log/install.log'
    ]
    raise KitError(f'could not install {" ".join(packages)}: {errors[0]}')


def archs_of(archs: str, arch: str | None = None, full: bool = False) -> list[str]:
    """Returns the architectures that a verb builds for: see cli.Verb."""
    if archs == 'one':
        return [arch or 'x86_64']
    if archs != 'all':
        return []
    if arch:
        return [arch]
    if not (SERIES / 'order').exists():
        return ['x86_64']
    booted = {boot.arch for _, boot in topics.boots()}
    return sorted({'x86_64', *(booted & set(usual_archs(full)))})


def main(arch: str | None = None, full: bool = False) -> None:
    install_missing('ALL', 'all', arch, full)


def install_missing(
    names: str,
    archs: str = '',
    arch: str | None = None,
    full: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Installs missing packages. `names` is a key of SETS. `archs` is 'one', 'all' or empty, see
    archs_of(). `options` are apt-get's."""
    wanted = archs_of(archs, arch, full)
    packages, qemu = missing(names, wanted, full)
    if not packages and not qemu:
        return
    if os.geteuid() or not shutil.which('apt-get'):
        old = (
            f' (QEMU {NEEDED[0]}.{NEEDED[1]} or newer: on Debian 12 from bookworm-backports)'
            if qemu
            else ''
        )
        raise KitError(f'as root: apt-get install {" ".join([*packages, *qemu])}{old}')
    say(f'deps: installing {" ".join([*packages, *qemu])}')
    updated = False
    if packages and install(packages, None, *options):
        step('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
        updated = True
        if install(packages, None, *options):
            not_installed(packages)
    if qemu and not all(map(qemu_candidate, qemu)) and not updated:
        step('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
    if qemu and all(map(qemu_candidate, qemu)):
        if install(qemu):
            not_installed(qemu)
    elif qemu:
        suite = apt.suite()
        env = apt.private('qemu', [suite, f'{suite}-updates', f'{suite}-backports'])
        if install(qemu, env, '-t', f'{suite}-backports'):
            not_installed(qemu)
    packages, qemu = missing(names, wanted, full)
    if packages or qemu:
        raise KitError(
            f'still missing after the installation: {" ".join([*packages, *qemu])} '
            f'(build/log/install.log)'
        )
