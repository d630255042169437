# SPDX-License-Identifier: GPL-2.0-only
"""The Debian packages that the verbs need: installs what is missing as root, names it otherwise."""
import os
import platform
import re
import shutil
import sys

import apt
from common import TOP, die, load_record, output, run, say

# package: a program that shows it is there, for systems without dpkg
PACKAGES = {
    'git': 'git', 'make': 'make', 'gcc': 'gcc', 'libc6-dev': '', 'bc': 'bc', 'bison': 'bison', 'flex': 'flex', 'perl': 'perl',
    'libelf-dev': '', 'libssl-dev': '', 'rsync': 'rsync', 'xz-utils': 'xz', 'busybox-static': 'busybox', 'ccache': 'ccache',
    # selftests/iommu
    'libcap-dev': '',
    # make check
    'sparse': 'sparse', 'shellcheck': 'shellcheck', 'pyflakes3': 'pyflakes3', 'python3-ply': '', 'python3-git': '',
    'codespell': 'codespell', 'python3-docutils': '',
    # make mail; git-email only recommends what git send-email does not start without
    'git-email': '', 'libmailtools-perl': '',
    # make bench
    'python3-matplotlib': '',
}
QEMU = (8, 2)    # the first with igb


def qemu_new_enough(record):
    if not shutil.which(record['qemu']):
        return False
    version = re.search(r'version (\d+)\.(\d+)', output([record['qemu'], '--version'], check=False).stdout)
    return bool(version) and tuple(map(int, version.groups())) >= QEMU


def missing(archs):
    """(packages, QEMU packages) that are not there."""
    wanted, qemu = dict(PACKAGES), []
    if os.environ.get('FULL', '') not in ('', '0'):    # make check's second compiler
        wanted['clang-19'] = 'clang-19'
    for record in map(load_record, archs):
        if record['machine'] != platform.machine():
            wanted.update({name: '' for name in record['cross_packages']})
            wanted[record['cross_packages'][0]] = f'{record["cross_compile"]}gcc'
        if not qemu_new_enough(record):
            qemu.append(record['qemu_package'])
    if not shutil.which('dpkg-query'):
        return [name for name, program in wanted.items() if program and not shutil.which(program)], qemu
    have = output(['dpkg-query', '-W', '-f', '${Package} ${db:Status-Status}\n', *wanted], check=False).stdout
    have = {line.split()[0] for line in have.splitlines() if line.endswith(' installed')}
    return [name for name in wanted if name not in have], qemu


def install(packages, env=None, *options):
    return run(f'install {" ".join(packages)}',
               ['apt-get', 'install', '-y', '-q', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120',
                '-o', 'Acquire::Retries=2', '-o', 'Acquire::http::Timeout=30', *options, *packages],
               timeout=1800, check=False, env={'DEBIAN_FRONTEND': 'noninteractive', **(env or {})},
               log=TOP / 'build/log/install.log')


def qemu_candidate(package):
    """Is the system's own suite new enough?"""
    found = re.search(r'Candidate: (?:\d+:)?(\d+)\.(\d+)', output(['apt-cache', 'policy', package], check=False).stdout)
    return bool(found) and tuple(map(int, found.groups())) >= QEMU


def fail(packages):
    log = (TOP / 'build/log/install.log').read_text(errors='replace')
    errors = [line for line in log.splitlines() if line.startswith('E: ')] or ['see build/log/install.log']
    die(f'could not install {" ".join(packages)}: {errors[0]}')


def main():
    if sys.argv[1:]:
        archs = sys.argv[1:]
    else:
        tests = TOP / 'guest' / 'tests.toml'
        archs = sorted({'x86_64', *re.findall(r'^arch = "(\w+)"', tests.read_text() if tests.exists() else '', re.M)})
    packages, qemu = missing(archs)
    if not packages and not qemu:
        return
    if os.geteuid() or not shutil.which('apt-get'):
        old = f' (QEMU {QEMU[0]}.{QEMU[1]} or newer: on Debian 12 from bookworm-backports)' if qemu else ''
        die(f'as root: apt-get install {" ".join([*packages, *qemu])}{old}')
    say(f'deps: installing {" ".join([*packages, *qemu])}')
    updated = False
    if packages and install(packages):
        run('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
        updated = True
        if install(packages):
            fail(packages)
    if qemu and not all(map(qemu_candidate, qemu)) and not updated:
        run('apt-get update', ['apt-get', 'update'], timeout=300, check=False)
    if qemu and all(map(qemu_candidate, qemu)):
        if install(qemu):
            fail(qemu)
    elif qemu:
        suite = apt.suite()
        env = apt.private('qemu', [suite, f'{suite}-updates', f'{suite}-backports'])
        if install(qemu, env, '-t', f'{suite}-backports'):
            fail(qemu)
    packages, qemu = missing(archs)
    if packages or qemu:
        die(f'still missing after the installation: {" ".join([*packages, *qemu])} (build/log/install.log)')


if __name__ == '__main__':
    sys.argv[0] = 'deps'
    main()
