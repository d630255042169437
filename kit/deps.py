# SPDX-License-Identifier: GPL-2.0-only
"""The Debian packages that the verbs need: installs what is missing as root, names it otherwise."""
import os
import re
import shutil

from kit import apt, topics
from kit.common import SERIES, TOP, die, flag, load_machine, output, say, step, usual_archs
from kit.qemu import NEEDED, found_version, host_is

# what a verb needs: {package: a program that shows it is there, for systems without dpkg}
GIT = {'git': 'git', 'make': 'make', 'xz-utils': 'xz', 'perl': 'perl'}
BUILD = {**GIT, 'gcc': 'gcc', 'libc6-dev': '', 'bc': 'bc', 'bison': 'bison', 'flex': 'flex',
         'libelf-dev': '', 'libssl-dev': '', 'rsync': 'rsync', 'busybox-static': 'busybox',
         'ccache': 'ccache', 'uuid-dev': ''}    # selftests/vfio
TESTS = {**BUILD, 'libcap-dev': ''}    # selftests/iommu
# git-email only recommends what git send-email does not start without
MAIL = {**GIT, 'git-email': '', 'libmailtools-perl': ''}
CHECK = {**TESTS, **MAIL, 'sparse': 'sparse', 'shellcheck': 'shellcheck', 'python3-ply': '',
         'pyflakes3': 'pyflakes3', 'pycodestyle': 'pycodestyle', 'python3-git': '',
         'codespell': 'codespell', 'python3-docutils': '', 'spin': 'spin'}
BENCH = {**TESTS, 'python3-matplotlib': ''}
# {verb: (packages, does it build for every architecture of the topics?)}
VERBS = {'tree': (GIT, False), 'export': (GIT, False), 'mail': (MAIL, False), 'run': (BUILD, False),
         'shell': (BUILD, False), 'soak': (BUILD, False),
         'differ': (BUILD, True), 'test': (TESTS, True),
         'bench': (BENCH, True), 'check': (CHECK, True), 'deps': ({**CHECK, **BENCH}, True)}


def missing(verb, archs):
    """(packages, QEMU packages) that are not there."""
    wanted, qemu = dict(VERBS[verb][0]), []
    if flag('FULL') and verb in ('check', 'deps'):    # the small configurations' compilers
        wanted.update({'clang-19': 'clang-19', 'gcc-riscv64-linux-gnu': 'riscv64-linux-gnu-gcc'})
    for machine in map(load_machine, archs):
        if not host_is(machine):
            wanted.update({name: '' for name in machine['cross_packages']})
            wanted[machine['cross_packages'][0]] = f'{machine["cross_compile"]}gcc'
        if found_version(machine) < NEEDED:
            qemu.append(machine['qemu_package'])
    if not shutil.which('dpkg-query'):
        return [
            name for name, program in wanted.items() if program and not shutil.which(program)
        ], qemu
    have = output(
        ['dpkg-query', '-W', '-f', '${Package} ${db:Status-Status}\n', *wanted], check=False
    ).stdout
    have = {line.split()[0] for line in have.splitlines() if line.endswith(' installed')}
    return [name for name in wanted if name not in have], qemu


def install(packages, env=None, *options):
    return step(
        f'install {" ".join(packages)}',
        [
            'apt-get',
            'install',
            '-y',
            '-q',
            '--no-install-recommends',
            '-o',
            'DPkg::Lock::Timeout=120',
            '-o',
            'Acquire::Retries=2',
            '-o',
            'Acquire::http::Timeout=30',
            *options,
            *packages,
        ],
        timeout=1800,
        check=False,
        env={'DEBIAN_FRONTEND': 'noninteractive', **(env or {})},
        log=TOP / 'build/log/install.log',
    )


def qemu_candidate(package):
    """Is the system's own suite new enough?"""
    found = re.search(
        r'Candidate: (?:\d+:)?(\d+)\.(\d+)',
        output(['apt-cache', 'policy', package], check=False).stdout,
    )
    return bool(found) and tuple(map(int, found.groups())) >= NEEDED


def fail(packages):
    log = (TOP / 'build/log/install.log').read_text(errors='replace')
    errors = [line for line in log.splitlines() if line.startswith('E: ')] or [
        'see build/log/install.log'
    ]
    die(f'could not install {" ".join(packages)}: {errors[0]}')


def archs_of(verb):
    """The architectures that the verb builds for."""
    if not VERBS[verb][1]:
        if verb in ('run', 'shell', 'soak'):
            return [os.environ.get('ARCH') or 'x86_64']
        return []
    if os.environ.get('ARCH') and verb in ('test', 'deps'):
        return [os.environ['ARCH']]
    if not (SERIES / 'order').exists():
        return ['x86_64']
    booted = {boot['arch'] for _, boot in topics.boots()}
    return sorted({'x86_64', *(booted & set(usual_archs()))})


def main(verb='deps'):
    archs = archs_of(verb)
    packages, qemu = missing(verb, archs)
    if not packages and not qemu:
        return
    if os.geteuid() or not shutil.which('apt-get'):
        old = (
            f' (QEMU {NEEDED[0]}.{NEEDED[1]} or newer: on Debian 12 from bookworm-backports)'
            if qemu
            else ''
        )
        die(f'as root: apt-get install {" ".join([*packages, *qemu])}{old}')
    say(f'deps: installing {" ".join([*packages, *qemu])}')
    updated = False
    if packages and install(packages):
        step('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
        updated = True
        if install(packages):
            fail(packages)
    if qemu and not all(map(qemu_candidate, qemu)) and not updated:
        step('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
    if qemu and all(map(qemu_candidate, qemu)):
        if install(qemu):
            fail(qemu)
    elif qemu:
        suite = apt.suite()
        env = apt.private('qemu', [suite, f'{suite}-updates', f'{suite}-backports'])
        if install(qemu, env, '-t', f'{suite}-backports'):
            fail(qemu)
    packages, qemu = missing(verb, archs)
    if packages or qemu:
        die(
            f'still missing after the installation: {" ".join([*packages, *qemu])} '
            f'(build/log/install.log)'
        )
