#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Boots a pseries guest with nested HV (L1), and in it a nested guest (L2) with QEMU and KVM.
Meanwhile, L1 collapses small pages into huge pages. Some of the small pages are memory of L2.

Downloads a QEMU for ppc64el (31 MB), so neither `make test` nor CI runs it. The exit status has
the same meaning as that of `make test`.
"""

import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from kit import cli  # noqa: E402
from kit.build import kernel, selftest  # noqa: E402
from kit.build.trees import PATCHED  # noqa: E402
from kit.errors import fail  # noqa: E402
from kit.model import Options, machine  # noqa: E402
from kit.paths import BUILD  # noqa: E402
from kit.process import output, say, step  # noqa: E402
from kit.setup import apt  # noqa: E402
from kit.vm import guest, initrd  # noqa: E402

ARCH = 'powerpc'
MACHINE = machine(ARCH)
CROSS = MACHINE.cross_compile
TEST = 'mm/collapse_ipis_test'
WORK = BUILD / 'apt' / 'qemu-ppc64el'
L1 = """#!/bin/sh
mkdir -p /lib64
ln -s /job/ld64.so.2 /lib64/
thp=/sys/kernel/mm/transparent_hugepage
# start with small pages, which khugepaged then collapses
echo never > $thp/enabled
echo 0 > $thp/khugepaged/alloc_sleep_millisecs
echo 10 > $thp/khugepaged/scan_sleep_millisecs
echo 4096 > $thp/khugepaged/pages_to_scan
(sleep 5; echo always > $thp/enabled) &
collapse_ipis_test -s 60 -f stress > /tmp/stress 2>&1 &
LD_LIBRARY_PATH=/job qemu-system-ppc64 -L /job -nodefaults -no-user-config -display none \
    -serial stdio -no-reboot -accel kvm,kernel-irqchip=off -M pseries,x-vof=on,cap-cfpc=broken \
    -M cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off -cpu host -m 512M -kernel /job/vmlinux \
    -initrd /job/l2.cpio -append 'console=hvc0 panic=-1' | tee /tmp/l2
wait $!
cat /tmp/stress
echo "huge pages that khugepaged has collapsed: $(cat $thp/khugepaged/pages_collapsed)"
grep -q '^ok 1 stress' /tmp/stress && grep -q 'L2: all there' /tmp/l2
"""
L2 = """#!/bin/sh
dd if=/dev/urandom of=/tmp/a bs=1M count=64 2> /dev/null
sum=$(md5sum < /tmp/a)
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	cp /tmp/a /tmp/b
	[ "$(md5sum < /tmp/b)" = "$sum" ] || exit
done
echo "L2: all there"
"""


def qemu():
    """Downloads QEMU for ppc64el, and unpacks it. Returns the folder."""
    suite = apt.suite()
    env = apt.private(WORK.name, [suite, f'{suite}-updates', f'{suite}-backports'], 'ppc64el')
    step(
        'download QEMU for ppc64el',
        [
            'apt-get',
            'install',
            '-y',
            '-q',
            '--no-install-recommends',
            '--download-only',
            '-t',
            f'{suite}-backports',
            'qemu-system-ppc',
        ],
        env=env,
        timeout=600,
    )
    root = WORK / 'root'
    shutil.rmtree(root, ignore_errors=True)
    for package in sorted((WORK / 'cache/archives').glob('*.deb')):
        step(None, ['dpkg-deb', '-x', package, root], log=WORK / 'unpack.log')
    return root


def with_libraries(root, program):
    """The program and the shared libraries that it needs, stripped of symbols."""
    libraries = {path.name: path for path in root.rglob('*.so*') if path.exists()}
    files, todo = [], [program, libraries['ld64.so.2']]
    while todo:
        path = todo.pop()
        target = WORK / 'files' / path.name
        if target in files:
            continue
        target.parent.mkdir(exist_ok=True)
        output([f'{CROSS}strip', '-o', target, path.resolve()])
        files.append(target)
        for name in re.findall(r'NEEDED.*\[(.*)\]', output([f'{CROSS}readelf', '-d', target])):
            todo.append(
                libraries.get(name) or fail(f'{path.name} needs {name}, which no package has')
            )
    return files


def main():
    root = qemu()
    files = with_libraries(root, root / 'usr/bin/qemu-system-ppc64')
    image = kernel.build(MACHINE, 'debug', PATCHED)
    inner = WORK / 'files' / 'vmlinux'
    output([f'{CROSS}strip', '-o', inner, image])
    l2 = initrd.joined(
        WORK / 'files' / 'l2.cpio',
        [initrd.system(MACHINE), initrd.overlay(WORK / 'l2-job.cpio', {'run': L2.encode()})],
    )
    test = selftest.build(MACHINE, PATCHED, [TEST])[TEST]
    options = Options(
        cpus=4,
        memory='4G',
        append=f'{guest.PATIENT} kmemleak=off',
        qemu=('-machine', 'cap-nested-hv=on'),
    )
    ended = guest.run_guest(
        MACHINE,
        image,
        L1,
        [*files, inner, l2, test, root / 'usr/share/qemu/vof.bin'],
        options,
        name='powerpc-l2',
        on_line=lambda line: print(line, flush=True),
    )
    say(f'{ended.message} ({ended.accelerator}, {ended.seconds:.1f} s)')
    if ended.detail:
        say(ended.detail)
    sys.exit(ended.status)


if __name__ == '__main__':
    cli.guarded(main, 'l2')
