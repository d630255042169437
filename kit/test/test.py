# SPDX-License-Identifier: GPL-2.0-only
"""make test: boots what the topics ask for and runs their selftests and KUnit suites, and for some
minutes the workloads of all topics at once. Reproducers of bugs of the base run on the base, too,
where they have to show them.

Closes with `N passed, N failed, N skipped`. Exit status: 0, 1 a test failed, 2 a guest was lost,
3 a kernel splat.
"""
import re
from collections import Counter

from kit.build import kernel, reproducer, selftest
from kit.build.trees import source
from kit.errors import KitError, fail
from kit.host import host_cpus, host_memory
from kit.machines import load_machine
from kit.paths import shown
from kit.process import Pool, say
from kit.soak import soak
from kit.source.git import git
from kit.source.state import elsewhere
from kit.test import kselftest, plan, results, verdict
from kit.test.verdict import closing
from kit.vm import console, guest
from kit.vm.qemu import iommus_of

MINUTES = 5    # of the workloads of all topics, on each architecture


def there(test):
    """Has the tree the test? One of the user's own may lack what the series adds, and has the bugs
    of the base that it does not fix."""
    if 'reproducer' in test:
        return False
    if 'program' in test:
        return selftest.has('patched', test['program'])
    return not git('grep', '-qF', f'"{test["kunit"]}"', '--', '*.[ch]',
                   cwd=source('patched'), check=False).returncode


def boots_of(test='', arch='', flavour='', cpus=0, iommu='', full=False, linux=''):
    """The boots that were asked for, first those on debug kernels, which take longest."""
    machine = {'iommu': iommu, 'cpus': cpus}
    planned = plan.chosen(arch, flavour, test, full,
                           {field: value for field, value in machine.items() if value})
    if iommu:
        planned = [boot for boot in planned
                   if iommu in iommus_of(load_machine(boot['arch']))] or \
            fail(f'IOMMU={iommu}: no guest with those tests has it')
    if linux or elsewhere():
        missing = {each['name'] for boot in planned for each in boot['test'] if not there(each)}
        if missing:
            say(f'test: this tree has not: {" ".join(sorted(missing))}')
        planned = [{**boot, 'test': [each for each in boot['test'] if each['name'] not in missing]}
                   for boot in planned if 'tree' not in boot]
    return sorted((boot for boot in planned if boot['test']),
                  key=lambda boot: not boot['flavour'].startswith('debug'))


def soaked(test='', arch='', flavour='', cpus=0, iommu='', full=False, linux=''):
    """The architectures whose workloads run side by side: `soak` to --test. They have a kernel,
    CPUs and devices of their own."""
    if not full or linux or elsewhere() or cpus or iommu or flavour not in ('', 'debug') or \
            not re.search(test, 'soak'):
        return []
    return [each for each in sorted(soak.SKIPS) if arch in ('', each)]


def run_soak(arch, tell=None):
    """(Counter, guest status) of some minutes of it."""
    counts, status, _ = soak.run(arch, 'debug', MINUTES, soak.any_seed(), ['soak'], tell)
    return counts, status


def prepare(boot):
    """Builds what the boot needs: (image, the tests' programs)."""
    arch, flavour, tree = boot['arch'], boot['flavour'], boot.get('tree', 'patched')
    image = kernel.build(arch, flavour, tree)
    files = [reproducer.build(arch, flavour, tree, test['topic'], test['reproducer'])
             for test in boot['test'] if 'reproducer' in test]
    programs = sorted({test['program'] for test in boot['test'] if 'program' in test})
    # selftests come from the patched tree, also for a guest with the base's kernel
    files += selftest.build(arch, 'patched', programs).values()
    return image, [*files, selftest.keep_vm(arch)]


def run_boot(boot, image, files, tell=None):
    """(Counter, guest status) of one boot; prints its results, and tell is given them."""
    label, tests, on_base = f'{boot["arch"]} {boot["flavour"]}', boot['test'], 'tree' in boot
    options = plan.options_of(boot)
    said = verdict.Failing(tests) if on_base else verdict.Report(tests)
    options.append = f'{guest.PATIENT} {options.append}'
    options.limits.silence = max(test.get('timeout', 360) for test in tests)
    options.limits.boot, options.limits.total = 300, 3600    # other guests run meanwhile
    label += ' base' if on_base else ''
    say(f'{label}: {len(tests)} test program(s)')
    ended = guest.run_guest(boot['arch'], image, verdict.job_of(tests), files, options,
                            name=f'test-{label.replace(" ", "-")}', on_line=said.line)
    if on_base:    # a splat or a lost guest may be what has to happen
        text = console.read(ended.folder / 'console')
        counts = said.verdict_of(f'{text}\n{ended.message}')
        status = guest.FAILED if counts['failed'] else guest.OK
    else:
        counts, status = said.verdict(), ended.status
    if status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {label}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    if tell and not on_base:
        tell(results.boot_of(label, boot['arch'], said, ended))
    boot_seconds = f'{ended.boot_seconds:.1f}' if ended.boot_seconds else '-'
    lockdep = {True: ', lockdep on to the end', False: ', lockdep went OFF', None: ''}
    print(
        f'{label} ({ended.accelerator}): {closing(counts)}, boot {boot_seconds} s, '
        f'{ended.seconds:.0f} s in all{lockdep[ended.lockdep]}; {shown(ended.folder)}',
        flush=True,
    )
    return counts, status


def worse(one, other):
    """Of two guests' statuses: a lost guest is worst, then a splat, then a failed test."""
    badness = [guest.OK, guest.FAILED, guest.SPLAT, guest.LOST]
    return max(one, other, key=badness.index)


def run_all(planned, soaks, pool, tell=None):
    """(Counter, guest status) of each boot and each soak. They run side by side, and what others
    need is built meanwhile; those that measure what CPUs they get come last, one after the other.
    tell: see run_boot().
    """
    alone = [boot for boot in planned if boot.get('alone')]
    running = [pool.submit(run_soak, arch, tell) for arch in soaks]
    running += [pool.submit(lambda boot: run_boot(boot, *prepare(boot), tell), boot)
                for boot in planned if not boot.get('alone')]
    ready = [prepare(boot) for boot in alone]
    for each in running:
        yield each.result()
    for boot, built in zip(alone, ready):
        yield pool.submit(run_boot, boot, *built, tell).result()


def places():
    """How many guests at a time: one for each CPU, the largest kind has 4 GiB."""
    return max(1, min(host_cpus(), host_memory() // (5 << 30)))


def main(**given):
    """given: as boots_of() takes it, or kselftest.main(); results: a file for what the tests
    gave."""
    path, kept = given.pop('results', None), []
    if 'kselftest' in given:
        status = kselftest.main(**given, tell=kept.append)
    else:
        status = boot_all(given, kept.append)
    if path:
        results.write(path, sorted(kept))
    return status


def boot_all(given, tell):
    """What the topics ask for; the exit status."""
    total, worst, planned, soaks = Counter(), guest.OK, boots_of(**given), soaked(**given)
    if not planned and not soaks:
        more = 0 if given.get('full') else sum(
            len(boot['test']) for boot in boots_of(**{**given, 'full': True}))
        raise KitError(f'no test matches{f" ({more} more with FULL=1)" if more else ""}')
    with Pool(places()) as pool:
        for counts, status in run_all(planned, soaks, pool, tell):
            total += counts
            worst = worse(worst, status)
    print(closing(total))
    return worst or (guest.FAILED if total['failed'] else guest.OK)
