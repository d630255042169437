# SPDX-License-Identifier: GPL-2.0-only
"""make test: boots what the topics ask for and runs their selftests and KUnit suites, and for some
minutes the workloads of all topics at once.

Closes with `N passed, N failed, N skipped`. Exit status: 0, 1 a test failed, 2 a guest was lost,
3 a kernel splat.
"""
import os
import re
from collections import Counter

from kit import boots, build, guest, own, report, selftests, soak
from kit.common import (Pool, die, flag, host_cpus, host_memory, load_machine, number,
                        pattern, say, shown)
from kit.git import git
from kit.qemu import iommus_of
from kit.report import closing
from kit.series import elsewhere
from kit.trees import source


MINUTES = 5    # of the workloads of all topics, on each architecture


def there(test):
    """Has the tree the test? One of the user's own may lack what the series adds."""
    if 'program' in test:
        return selftests.has('patched', test['program'])
    return not git('grep', '-qF', f'"{test["kunit"]}"', '--', '*.[ch]',
                   cwd=source('patched'), check=False).returncode


def plan():
    """The boots that were asked for, first those on debug kernels, which take longest."""
    arch, flavour = os.environ.get('ARCH', ''), os.environ.get('FLAVOUR', '')
    machine = {'iommu': os.environ.get('IOMMU'), 'cpus': number('CPUS')}
    planned = boots.chosen(arch, flavour, pattern('TEST'), flag('FULL'),
                           {field: value for field, value in machine.items() if value})
    if machine['iommu']:
        planned = [boot for boot in planned
                   if machine['iommu'] in iommus_of(load_machine(boot['arch']))] or \
            die(f'IOMMU={machine["iommu"]}: no guest with those tests has it')
    if own.given() or elsewhere():
        missing = {test['name'] for boot in planned for test in boot['test'] if not there(test)}
        if missing:
            say(f'test: this tree has not: {" ".join(sorted(missing))}')
        planned = [{**boot, 'test': [test for test in boot['test'] if test['name'] not in missing]}
                   for boot in planned]
    return sorted((boot for boot in planned if boot['test']),
                  key=lambda boot: not boot['flavour'].startswith('debug'))


def soaked():
    """The architectures whose workloads run side by side: `soak` to TEST=. They have a kernel, CPUs
    and devices of their own."""
    arch, flavour = os.environ.get('ARCH', ''), os.environ.get('FLAVOUR', '')
    if not flag('FULL') or own.given() or elsewhere() or number('CPUS') or \
            os.environ.get('IOMMU') or flavour not in ('', 'debug') or \
            not re.search(pattern('TEST'), 'soak'):
        return []
    return [each for each in sorted(soak.SKIPS) if arch in ('', each)]


def run_soak(arch):
    """(Counter, guest status) of some minutes of it."""
    counts, status, _ = soak.run(arch, 'debug', MINUTES, soak.any_seed(), ['soak'])
    return counts, status


def prepare(boot):
    """Builds what the boot needs: (image, the tests' programs)."""
    image = build.build(boot['arch'], boot['flavour'], 'patched')
    programs = sorted({test['program'] for test in boot['test'] if 'program' in test})
    files = selftests.build(boot['arch'], 'patched', programs).values()
    return image, [*files, selftests.keep_vm(boot['arch'])]


def run_boot(boot, image, files):
    """(Counter, guest status) of one boot; prints its results."""
    kernel, tests = f'{boot["arch"]} {boot["flavour"]}', boot['test']
    options, results = boots.options_of(boot), report.Report(tests)
    options.append = f'{guest.PATIENT} {options.append}'
    options.limits.silence = max(test.get('timeout', 360) for test in tests)
    options.limits.boot, options.limits.total = 300, 3600    # other guests run meanwhile
    say(f'{kernel}: {len(tests)} test program(s)')
    ended = guest.run_guest(boot['arch'], image, report.job_of(tests), files, options,
                            name=f'test-{kernel.replace(" ", "-")}', on_line=results.line)
    counts = results.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {kernel}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    boot_seconds = f'{ended.boot_seconds:.1f}' if ended.boot_seconds else '-'
    lockdep = {True: ', lockdep on to the end', False: ', lockdep went OFF', None: ''}
    print(
        f'{kernel} ({ended.accelerator}): {closing(counts)}, boot {boot_seconds} s, '
        f'{ended.seconds:.0f} s in all{lockdep[ended.lockdep]}; {shown(ended.folder)}',
        flush=True,
    )
    return counts, ended.status


def worse(one, other):
    """Of two guests' statuses: a lost guest is worst, then a splat, then a failed test."""
    badness = [guest.OK, guest.FAILED, guest.SPLAT, guest.LOST]
    return max(one, other, key=badness.index)


def run_all(planned, soaks, pool):
    """(Counter, guest status) of each boot and each soak. They run side by side, and what others
    need is built meanwhile; those that measure what CPUs they get come last, one after the other.
    """
    alone = [boot for boot in planned if boot.get('alone')]
    running = [pool.submit(run_soak, arch) for arch in soaks]
    running += [pool.submit(lambda boot: run_boot(boot, *prepare(boot)), boot)
                for boot in planned if not boot.get('alone')]
    ready = [prepare(boot) for boot in alone]
    for each in running:
        yield each.result()
    for boot, built in zip(alone, ready):
        yield pool.submit(run_boot, boot, *built).result()


def places():
    """How many guests at a time: one for each CPU, the largest kind has 4 GiB."""
    return max(1, min(host_cpus(), host_memory() // (5 << 30)))


def main():
    total, worst, planned, soaks = Counter(), guest.OK, plan(), soaked()
    if not planned and not soaks:
        die('no test is meant by that')
    with Pool(places()) as pool:
        for counts, status in run_all(planned, soaks, pool):
            total += counts
            worst = worse(worst, status)
    print(closing(total))
    return worst or (guest.FAILED if total['failed'] else guest.OK)
