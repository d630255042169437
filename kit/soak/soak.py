# SPDX-License-Identifier: GPL-2.0-only
"""make soak: looks for bugs and leaks on a debug kernel. First, it repeats each call that the
topics change. In each repetition, it makes a different operation of the call fail. Then it runs the
workloads of all topics at once for MINUTES. Meanwhile processes are killed, stopped, frozen and
moved between cgroups, and CPUs go offline. In the end, no resource may have leaked. FLAVOUR=kcsan
runs only the workloads, on a kernel that detects data races.

The programs are in soak/. soak/soak.toml defines how they are built and booted. The last line is `N
passed, N failed, N skipped`. soak/soak.json records the counts. Exit status: as for make test.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kit import model
from kit.bench import pages
from kit.build import kernel, program, selftest
from kit.build.config import CONFIGS
from kit.build.trees import PATCHED
from kit.errors import KitError
from kit.model import Limits, Machine, Options, Skip, Test, Words
from kit.paths import TOP, shown
from kit.process import say
from kit.soak import races, record
from kit.soak.record import Row
from kit.test import results, verdict
from kit.typed import load, read_toml
from kit.vm import console, guest

SOAK = TOP / 'soak'


@dataclass(frozen=True)
class Settings:
    """The contents of soak/soak.toml."""

    programs: Mapping[str, Words]  # {name: folders}
    environment: Mapping[str, str]
    runs: Mapping[str, Words]  # {flavour: programs}
    guest: Options
    flavours: Mapping[str, tuple[Skip, ...]]
    archs: Mapping[str, tuple[Skip, ...]]


@cache
def settings() -> Settings:
    path = SOAK / 'soak.toml'
    return load(Settings, read_toml(path), str(shown(path)))


def archs() -> list[str]:
    """Returns the architectures on which `make soak` runs."""
    return sorted(settings().archs)


def built(machine: Machine, name: str, folders: Iterable[str]) -> Path:
    """Builds a program of soak/ with the patched tree's headers."""
    files = [file for folder in folders for file in sorted((SOAK / folder).glob('*.c'))]
    return program.build(
        machine, PATCHED, PATCHED.root / 'build' / f'{machine.arch}-soak', name, files, '-I', SOAK
    )


class Said(verdict.Report):
    """A report that reads a program's counts in addition to its results."""

    def __init__(self, tests: Sequence[Test]) -> None:
        super().__init__(tests)
        self.counts: dict[str, int] = {}
        self.leaks: int | None = None

    def line(self, text: str) -> None:
        super().line(text)
        if found := re.match(r'# count (\w+) (\d+)$', text):
            self.counts[found[1]] = int(found[2])
        elif found := re.match(r'# leaks (\d+)$', text):
            self.leaks = int(found[1])
        if text.startswith('# '):
            print(f'  {text[2:]}', flush=True)


def row_of(
    arch: str, flavour: str, minutes: int, seed: int, said: Said, splats: list[str], failed: int
) -> Row:
    """Returns the row in which a run is recorded."""
    counts = dict(said.counts)
    chosen = '' if flavour == 'debug' else f' FLAVOUR={flavour}'
    return {
        'command': f'make soak MINUTES={minutes} ARCH={arch}{chosen} SEED={seed}',
        'arch': arch,
        'flavour': flavour,
        'minutes': minutes,
        'seed': seed,
        'hotplugs': counts.pop('hotplug', 0),
        'kills': counts.pop('kill', 0),
        'vms': counts.pop('vm', 0),
        'injections': counts.pop('injections', 0),
        'operations': counts,
        'splats': len(splats),
        'leaks': said.leaks,
        'failed': failed,
    }


def any_seed() -> int:
    return random.randrange(1, 1 << 32)


def options_of(machine: Machine, minutes: int, splats: Words = ()) -> Options:
    """Returns the guest's options. Its time limits are long, as other guests may run at the same
    time."""
    asked = settings().guest
    return replace(
        asked,
        append=f'{guest.PATIENT} {asked.append}',
        splats=splats,
        devices=asked.devices if machine.iommu != 'none' else None,
        limits=Limits(boot=300, silence=600, total=60 * minutes + 3600),
    )


def tell_races(text: str, changed: Sequence[str]) -> None:
    """Prints the number of KCSAN's reports on code that the series does not change, and the titles
    of those that races.below() finds."""
    count = len(re.findall(races.of_others(changed), text))
    print(f'soak: {count} races in code that the series does not change')
    for title, number in races.below(text, changed).most_common():
        print(f'  {number} with functions of the series in the stacks of both accesses: {title}')


def run(
    machine: Machine,
    flavour: str,
    minutes: int,
    seed: int,
    names: Sequence[str],
    tell: Callable[[results.Ended], object] | None = None,
) -> tuple[verdict.Counts, int, Row]:
    """Runs these programs in this order; returns (Counter, guest status, record)."""
    arch, asked = machine.arch, settings()
    image = kernel.build(machine, flavour, PATCHED)
    arguments = {'faults': '$BDFS', 'soak': f'{minutes} {seed} $BDFS'}
    skips = asked.archs[arch] + asked.flavours[flavour]
    tests = [
        Test(
            name=name,
            program=name,
            arguments=arguments[name],
            skips=skips,
            environment=asked.environment.get(name, ''),
        )
        for name in names
    ]
    said = Said(tests)
    changed = races.changed_functions(machine, flavour) if flavour == 'kcsan' else []
    options = options_of(machine, minutes, (races.of_others(changed),) if changed else ())
    files = [
        *(built(machine, name, asked.programs[name]) for name in names),
        selftest.keep_vm(machine),
    ]
    say(f'soak: {arch} {flavour}, {minutes} minute(s), SEED={seed}')
    ended = guest.run_guest(
        machine,
        image,
        verdict.job_of(tests),
        files,
        options,
        name=f'soak-{arch}-{flavour}',
        on_line=said.line,
    )
    counts = said.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {arch} {flavour}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    if tell:
        tell(results.ended_of(f'{arch} {flavour}, soak', arch, said, ended))
    text = console.read(ended.folder / 'console')
    if changed:
        tell_races(text, changed)
    print(
        f'soak: {arch} {flavour}: {verdict.closing(counts)}, seed {seed}; {shown(ended.folder)}',
        flush=True,
    )
    splats = console.splats(text, console.splat_rules(arch, options.splats))
    return (
        counts,
        ended.status or (guest.FAILED if counts['failed'] else guest.OK),
        row_of(arch, flavour, minutes, seed, said, splats, counts['failed']),
    )


def main(
    minutes: int = 20, arch: str = 'x86_64', flavour: str = 'debug', seed: int | None = None
) -> int:
    asked = settings()
    for name, value, known in ('ARCH', arch, archs()), ('FLAVOUR', flavour, list(asked.runs)):
        if value not in known:
            raise KitError(f'{name}={value}: not one of {" ".join(known)}')
    if not (CONFIGS / f'{arch}-{flavour}.config').exists():
        raise KitError(f'FLAVOUR={flavour}: not on {arch}')
    counts, status, row = run(
        model.machine(arch), flavour, minutes, seed or any_seed(), asked.runs[flavour]
    )
    if status == guest.LOST:
        say('soak: not recorded, as the guest was lost')
    else:
        record.record([row])
        pages.write()
    print(verdict.closing(counts))
    return status
