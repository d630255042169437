# SPDX-License-Identifier: GPL-2.0-only
"""make differ: runs the same random calls of VFIO's type1 and of iommufd on the base and on the
patched kernel. With each IOMMU, both kernels must return the same results to user space.

soak/differ.toml defines the boots. Ends with `N passed, N failed, N skipped`. Exit status: 0, 1 if
the kernels differ or a guest's job failed, 2 if a guest was lost, 3 after a kernel splat.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

from kit import model
from kit.bench import pages
from kit.build import kernel
from kit.build.trees import OURS, Tree
from kit.errors import KitError
from kit.model import Limits, Machine, Options, Words
from kit.paths import TOP, shown
from kit.process import Pool, say
from kit.soak import record, soak
from kit.soak.record import Row
from kit.test.verdict import Counts, closing
from kit.typed import load, read_toml
from kit.vm import guest


@dataclass(frozen=True)
class Arch:
    flavour: str
    iommus: Words
    append: str = ''
    before: str = ''  # shell commands that the guest runs first


@dataclass(frozen=True)
class Settings:
    """The contents of soak/differ.toml."""

    program: str
    folders: Words
    job: str
    guest: Options
    archs: Mapping[str, Arch]

    def iommus(self) -> list[tuple[str, str]]:
        """Returns [(architecture, IOMMU)] for all guests."""
        return [(name, iommu) for name, arch in self.archs.items() for iommu in arch.iommus]


@cache
def settings() -> Settings:
    path = TOP / 'soak' / 'differ.toml'
    return load(Settings, read_toml(path), str(shown(path)))


def told(tree: Tree, machine: Machine, iommu: str, job: str, image: Path, file: Path) -> list[str]:
    """Boots one of the kernels and runs the program that makes the calls. Returns the lines that
    the program prints."""
    asked, arch = settings().guest, settings().archs[machine.arch]
    options = replace(
        asked,
        iommu=iommu,
        append=f'{asked.append} {arch.append}'.strip(),
        limits=Limits(silence=900, total=7200),
    )
    ended = guest.run_guest(
        machine, image, job, [file], options, name=f'differ-{iommu}-{tree}', what=f'{iommu}, {tree}'
    )
    if ended.status != guest.OK:
        say(ended.detail or '\n'.join(ended.results().splitlines()[-3:]))
        raise KitError(f'{iommu}, {tree}: {ended.message}', ended.status)
    return ended.results().splitlines()


def compare(base: Sequence[str], patched: Sequence[str]) -> dict[str, str | None]:
    """Returns {path: the first difference between both kernels, or None}. The second word of
    each line is the path: type1 or iommufd."""
    found: dict[str, str | None] = {line.split()[1]: None for line in base}
    for one, other in zip_longest(base, patched, fillvalue='nothing'):
        path = (one if one != 'nothing' else other).split()[1]
        if one != other and not found.get(path):
            found[path] = f'base {one}, patched {other}'
    return found


def differ(machine: Machine, iommu: str, calls: int, seed: int, pool: Pool) -> Row:
    """Compares the kernels behind one IOMMU, prints the results, returns a row for soak.json."""
    asked, arch = settings(), settings().archs[machine.arch]
    trees = OURS.base, OURS.patched
    file = soak.built(machine, asked.program, asked.folders)
    images = [kernel.build(machine, arch.flavour, tree) for tree in trees]
    job = f'#!/bin/sh\nset -e\n{arch.before}{asked.job.format(calls=calls, seed=seed)}'
    base, patched = pool.map(
        lambda tree, image: told(tree, machine, iommu, job, image, file), trees, images
    )
    if not base:
        raise KitError(f'{iommu}: no call was made')
    found = compare(base, patched)
    for path, difference in found.items():
        print(
            f'  {"not ok" if difference else "ok":6} {iommu}: {path}, {calls} calls'
            f'{f": {difference}" if difference else ""}',
            flush=True,
        )
    return {
        'command': f'make differ IOMMU={iommu} CALLS={calls} SEED={seed}',
        'arch': machine.arch,
        'iommu': iommu,
        'seed': seed,
        'calls_compared': calls * len(found),
        'differences': sum(map(bool, found.values())),
    }


def main(calls: int = 12500, iommu: str = '', seed: int | None = None) -> int:
    seed, known = seed or soak.any_seed(), settings().iommus()
    chosen = [each for each in known if iommu in ('', each[1])]
    if not chosen:
        raise KitError(f'no IOMMU {iommu} (known: {" ".join(each for _, each in known)})')
    say(f'differ: {calls} calls each, SEED={seed}')
    counts: Counts = Counter()
    with Pool(2) as pool:
        for arch, each in chosen:
            row = differ(model.machine(arch), each, calls, seed, pool)
            record.record([row])
            pages.write()
            counts['failed'] += row['differences']
            counts['passed'] += 2 - row['differences']
    print(closing(counts))
    return guest.FAILED if counts['failed'] else guest.OK
