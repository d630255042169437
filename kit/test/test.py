# SPDX-License-Identifier: GPL-2.0-only
"""make test: boots the topics' kernels and runs their selftests and KUnit suites. At the end, the
tests must detect two seeded bugs (see `make mutants`). FULL=1 adds slow tests, some of Debian's
programs, and more seeded bugs. If a patch fixes a bug of the base, its test then also runs on the
base kernel, where it must show the bug. FULL=1 also runs all workloads of `make soak` at once, for
five minutes.

Ends with `N passed, N failed, N skipped`. Exit status: 0, 1 if a test failed, 2 if a guest was
lost, 3 after a kernel splat.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kit import model
from kit.build import kernel, reproducer, selftest
from kit.build.trees import OURS, Tree, Trees, source
from kit.errors import KitError
from kit.host import host_cpus, host_memory
from kit.model import Boot, Limits, Options, Test
from kit.paths import shown
from kit.process import Pool, say
from kit.soak import soak
from kit.source.git import try_git
from kit.source.state import elsewhere
from kit.test import kselftest, plan, results, verdict
from kit.test.results import Ended
from kit.test.verdict import Counts, closing
from kit.vm import console, guest

MINUTES = 5  # how long FULL=1 runs all workloads on each architecture
Tell = Callable[[Ended], object]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of `make test`."""

    test: str = ''
    arch: str = ''
    flavour: str = ''
    cpus: int = 0
    iommu: str = ''
    full: bool = False
    linux: str = ''


def there(test: Test, tree: Tree) -> bool:
    """Returns whether the tree has the test. A user's tree may lack tests that the series adds. It
    may also lack fixes for bugs of the base, so reproducers do not run on it."""
    if test.reproducer:
        return False
    if test.program:
        return selftest.has(tree, test.program)
    return not try_git(
        'grep', '-qF', f'"{test.kunit}"', '--', '*.[ch]', cwd=source(tree)
    ).returncode


def boots_of(asked: Asked, trees: Trees = OURS) -> list[Boot]:
    """Returns the selected boots. Those on debug kernels come first, as they take longest."""
    machine = {'iommu': asked.iommu, 'cpus': asked.cpus}
    boots = plan.chosen(
        asked.arch,
        asked.flavour,
        asked.test,
        asked.full,
        {field: value for field, value in machine.items() if value},
    )
    if asked.iommu:
        boots = [boot for boot in boots if asked.iommu in boot.machine.known_iommus()]
        if not boots:
            raise KitError(f'IOMMU={asked.iommu}: no guest with these tests has this IOMMU')
    if asked.linux or elsewhere():
        tests = {each for boot in boots for each in boot.tests}
        missing = {each.name for each in tests if not there(each, trees.patched)}
        if missing:
            say(f'test: this tree lacks: {" ".join(sorted(missing))}')
        boots = [
            replace(boot, tests=tuple(each for each in boot.tests if each.name not in missing))
            for boot in boots
            if not boot.on_base
        ]
    return sorted(
        (boot for boot in boots if boot.tests),
        key=lambda boot: not boot.flavour.startswith('debug'),
    )


def soaked(asked: Asked) -> list[str]:
    """Returns the architectures on which the test `soak` runs all workloads at once. It needs
    FULL=1. There are none if the user has changed the kernel, the CPUs or the IOMMU of guests."""
    if (
        not asked.full
        or asked.linux
        or elsewhere()
        or asked.cpus
        or asked.iommu
        or asked.flavour not in ('', 'debug')
        or not re.search(asked.test, 'soak')
    ):
        return []
    return [each for each in soak.archs() if asked.arch in ('', each)]


def run_soak(arch: str, tell: Tell | None = None) -> tuple[Counts, int]:
    """Runs the workloads for some minutes; returns (Counter, guest status)."""
    counts, status, _ = soak.run(
        model.machine(arch), 'debug', MINUTES, soak.any_seed(), ['soak'], tell
    )
    return counts, status


def programs(boot: Boot, trees: Trees = OURS) -> list[Path]:
    """Builds the programs of the boot's tests, except reproducers. Selftests come from the patched
    tree, even for the base kernel."""
    names = sorted({test.program for test in boot.tests if test.program})
    files = selftest.build(boot.machine, trees.patched, names).values()
    return [*files, selftest.keep_vm(boot.machine)]


def prepare(boot: Boot, trees: Trees = OURS) -> tuple[Path, list[Path]]:
    """Builds the files of a boot; returns (image, the tests' programs)."""
    machine, tree = boot.machine, trees.base if boot.on_base else trees.patched
    image = kernel.build(machine, boot.flavour, tree)
    files = [
        reproducer.build(machine, boot.flavour, tree, test.topic, test.reproducer)
        for test in boot.tests
        if test.reproducer
    ]
    return image, [*files, *programs(boot, trees)]


def patient(boot: Boot) -> Options:
    """Returns the boot's options. Its time limits are long, as other guests may run at the same
    time."""
    silence = max(test.timeout for test in boot.tests)
    return replace(
        boot.options,
        append=f'{guest.PATIENT} {boot.options.append}',
        limits=Limits(boot=300, silence=silence, total=3600),
    )


def run_boot(
    boot: Boot, image: Path, files: Sequence[Path], tell: Tell | None = None
) -> tuple[Counts, int]:
    """Runs one boot and prints its results; returns (Counter, guest status). `tell` is called with
    the results."""
    label, tests = f'{boot.arch} {boot.flavour}', boot.tests
    said = verdict.Failing(tests) if boot.on_base else verdict.Report(tests)
    options = patient(boot)
    label += ' base' if boot.on_base else ''
    say(f'{label}: {len(tests)} test program(s)')
    ended = guest.run_guest(
        boot.machine,
        image,
        verdict.job_of(tests),
        files,
        options,
        name=f'test-{label.replace(" ", "-")}',
        on_line=said.line,
    )
    if isinstance(said, verdict.Failing):  # the test may require a splat or a lost guest
        text = console.read(ended.folder / 'console')
        counts = said.verdict_of(f'{text}\n{ended.message}')
        status = guest.FAILED if counts['failed'] else guest.OK
    else:
        counts, status = said.verdict(), ended.status
    if status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {label}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    if tell and not boot.on_base:
        tell(results.ended_of(label, boot.arch, said, ended))
    boot_seconds = f'{ended.boot_seconds:.1f}' if ended.boot_seconds else '-'
    lockdep = {True: ', lockdep still enabled', False: ', lockdep DISABLED itself', None: ''}
    print(
        f'{label} ({ended.accelerator}): {closing(counts)}, boot {boot_seconds} s, '
        f'{ended.seconds:.0f} s in all{lockdep[ended.lockdep]}; {shown(ended.folder)}',
        flush=True,
    )
    return counts, status


def worse(one: int, other: int) -> int:
    """Returns the worse status of two guests. A lost guest is worse than a splat, and a splat is
    worse than a failed test."""
    badness = [guest.OK, guest.FAILED, guest.SPLAT, guest.LOST]
    return max(one, other, key=badness.index)


def run_all(
    boots: Sequence[Boot],
    soaks: Sequence[str],
    pool: Pool,
    trees: Trees = OURS,
    tell: Tell | None = None,
) -> Iterator[tuple[Counts, int]]:
    """Runs all boots and soak runs in parallel. While guests run, the files of later boots are
    built. Boots with `alone` depend on CPU time: they come last, one after the other. Yields
    (Counter, guest status). For `tell`, see run_boot().
    """
    alone = [boot for boot in boots if boot.alone]
    running = [pool.submit(run_soak, arch, tell) for arch in soaks]
    running += [
        pool.submit(lambda boot: run_boot(boot, *prepare(boot, trees), tell), boot)
        for boot in boots
        if not boot.alone
    ]
    ready = [prepare(boot, trees) for boot in alone]
    for each in running:
        yield each.result()
    for boot, built in zip(alone, ready):
        yield pool.submit(run_boot, boot, *built, tell).result()


def places() -> int:
    """Returns the number of guests that may run at a time: one per CPU, but at most one per 5 GiB
    of memory, as the largest guest has 4 GiB."""
    return max(1, min(host_cpus(), host_memory() // (5 << 30)))


def main(trees: Trees = OURS, **given: Any) -> int:
    """Runs `make test` and returns its exit status. `given` has fields of Asked, or arguments of
    kselftest.main(). Its entry `results` is the file for the results."""
    found: list[Ended] = []
    path: Path | None = given.pop('results', None)
    if 'kselftest' in given:
        status = kselftest.main(**given, tell=found.append)
    else:
        status = boot_all(Asked(**given), found.append, trees)
    if path:
        results.write(path, sorted(found, key=lambda each: each.kernel), kselftest.parser_tree())
    return status


def clients() -> tuple[Counts, int]:
    """Runs the programs of make clients on both kernels; returns (Counter, guest status)."""
    from kit.clients import clients as programs  # not at the top: it imports this

    return programs.run()[:2]


def mutants(full: bool) -> Counts:
    """Tries some of the seeded bugs: two bugs or, if `full` is set, one in ten."""
    from kit.mutants import run  # not at the top: kit.mutants.making imports this module

    return run.tenth() if full else run.two()


def boot_all(asked: Asked, tell: Tell, trees: Trees = OURS) -> int:
    """Runs the selected boots; returns the exit status."""
    total: Counts = Counter()
    worst, boots, soaks = guest.OK, boots_of(asked, trees), soaked(asked)
    if not boots and not soaks:
        more = (
            0
            if asked.full
            else sum(len(boot.tests) for boot in boots_of(replace(asked, full=True), trees))
        )
        raise KitError(f'no test matches{f" ({more} more with FULL=1)" if more else ""}')
    with Pool(places()) as pool:
        for counts, status in run_all(boots, soaks, pool, trees, tell):
            total += counts
            worst = worse(worst, status)
    if asked == Asked(full=asked.full) and trees == OURS and not elsewhere():
        if asked.full:
            counts, status = clients()
            total += counts
            worst = worse(worst, status)
        total += mutants(asked.full)
    print(closing(total))
    return worst or (guest.FAILED if total['failed'] else guest.OK)
