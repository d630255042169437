# SPDX-License-Identifier: GPL-2.0-only
"""make clients: runs unmodified programs on the base and on the patched kernel. Debian's QEMU gives
a device to a guest. Debian's DPDK sends packets with testpmd. The crates of rust-vmm map memory as
cloud-hypervisor does. Debian's fio and socat use an NVMe and two igb through the kernel's own
drivers. On arm64, Debian's QEMU runs a guest with KVM beside cyclictest or sockperf, and khugepaged
collapses memory of stress-ng. Exit statuses, answers and data must be right. clients/clients.json
records the instructions of one boot of each kernel (key `counted`), or the figures of RUNS boots.

clients/clients.toml has the programs and the cases. TEST selects cases. Cases whose program cannot
be built on this host are skipped. Ends with `N passed, N failed, N skipped`. Exit status: as for
make test.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from kit.bench import measure, pages
from kit.build import kernel
from kit.build.trees import OURS, Tree
from kit.clients import crate, record, root
from kit.clients.settings import CLIENTS, settings
from kit.errors import KitError
from kit.model import Limits, Options, Test, Words
from kit.paths import shown
from kit.process import say
from kit.setup import deps
from kit.soak.record import Row
from kit.test import verdict
from kit.test.test import worse
from kit.test.verdict import Counts, closing
from kit.vm import guest

FIGURE = re.compile(r'# ([a-z][a-z0-9-]*) (\d+\.\d+)(?: (us|IPIs))?$')
INSTRUCTIONS = 'billion instructions'  # with icount, one second of the guest
# {(case, metric, unit): figure} of a boot. The unit is empty for seconds of the guest.
Figures = dict[tuple[str, str, str], float]


def figures_of(said: verdict.Report) -> Figures:
    """Returns {(case, metric, unit): figure} from the output of each case."""
    return {
        (test.arguments, found[1], found[3] or ''): float(found[2])
        for test, lines in zip(said.tests, said.output)
        for found in map(FIGURE.match, lines or [])
        if found
    }


def boot(
    name: str, tree: Tree, cases: Words, iommu: str, icount: bool = False
) -> tuple[Counts, int, Figures, str]:
    """Runs the cases on a kernel. Returns (Counter, guest status, figures, version of the program).
    With `icount`, the guest has one vCPU, and its time is the number of instructions executed."""
    asked, client = settings(), settings().clients[name]
    machine = client.machine
    script = CLIENTS / f'{name}.sh'
    files, archives = [script, CLIENTS / 'lib.sh'], list[Path]()
    if client.crate:
        files.append(crate.program(machine, client.crate))
    else:
        archives.append(root.archive(machine, name, asked.suite, client.packages, client.files))
    said = verdict.Report(
        [
            Test(name=name, arguments=case, command=f"plain '{case}' /job/{script.name} {case}")
            for case in cases
        ]
    )
    limits = Limits(boot=300, total=3600)
    common = asked.guests.get(client.arch, Options())
    options = replace(client.guest(common), iommu=iommu, icount=icount, limits=limits)
    ended = guest.run_guest(
        machine,
        kernel.build(machine, client.flavour, tree),
        verdict.job_of(said.tests, f'/job/{script.name} version'),
        files,
        options,
        name=f'clients-{name}-{tree}',
        on_line=said.line,
        archives=archives,
    )
    (ended.folder / 'initrd').unlink(missing_ok=True)  # large
    counts = said.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {name}, {tree}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    print(f'{name}, {tree}: {closing(counts)}; {shown(ended.folder)}', flush=True)
    version = re.search(r'^version (.+)$', ended.results(), re.M)
    return counts, ended.status, figures_of(said), version[1] if version else ''


def rows_of(
    before: Sequence[Figures], after: Sequence[Figures], unit: str, **more: str
) -> list[Row]:
    """Returns a row for each figure that all boots printed. `before` has the figures from boots of
    the base. `after` has the figures from boots of the patched kernel. `unit` is what a second of
    the guest stands for."""
    keys = [key for key in before[0] if all(key in figures for figures in (*before, *after))]
    found = []
    for key in keys:
        base, patched = ([[figures[key]] for figures in boots] for boots in (before, after))
        case, metric, own = key
        row = measure.row(metric, base, patched, own or unit)
        found.append({**more, 'case': case, **row})
    return found


def chosen(pattern: str, iommu: str) -> dict[str, Words]:
    """Returns {client: its cases that match the pattern} for the clients that run behind the
    IOMMU. Without a name, each client runs behind the default IOMMU of its machine."""
    found = {
        name: tuple(case for case in client.cases if re.search(pattern, f'{name} {case}'))
        for name, client in settings().clients.items()
        if client.runs_behind(iommu)
    }
    if not any(found.values()):
        known = f'known{iommu and f" with {iommu}"}: {" ".join(found)}'
        raise KitError(f'no client matches TEST={pattern} ({known})')
    return {name: cases for name, cases in found.items() if cases}


def run(
    pattern: str = '', iommu: str = '', runs: int = 1, counted: bool = False
) -> tuple[Counts, int, list[Row]]:
    """Runs the cases on both kernels in turn; returns (Counter, exit status, rows). If `counted`
    is set, clients that have this key run with icount, in one boot of each kernel."""
    machines = [client.machine for client in settings().clients.values()]
    iommus = list(dict.fromkeys(name for machine in machines for name in machine.iommus))
    if iommu and iommu not in iommus:
        raise KitError(f'no IOMMU {iommu} (known: {" ".join(iommus)})')
    clients = chosen(pattern, iommu)
    if counted:
        measure.warn_if_busy()
    counts: Counts = Counter()
    worst, rows = guest.OK, []
    for name, cases in clients.items():
        client = settings().clients[name]
        deps.install_missing('BUILD', 'one', client.arch)
        if client.crate and (why := crate.obstacle(client.machine, client.crate)):
            say(f'clients: {name} is skipped: {why}')
            counts['skipped'] += len(cases)
            continue
        behind = iommu or client.machine.iommu
        icount = counted and client.counted
        unit, boots = (INSTRUCTIONS, 1) if icount else ('s', runs)
        figures: dict[Tree, list[Figures]] = {OURS.base: [], OURS.patched: []}
        for number, (tree, found) in product(range(boots), figures.items()):
            say(f'clients: {name}, {behind}, {tree}: {unit}, boot {number + 1} of {boots}')
            some, status, each, version = boot(name, tree, cases, behind, icount)
            counts, worst = counts + some, worse(worst, status)
            found.append(each)
        of = {'client': name, 'version': version, 'iommu': behind}
        rows += rows_of(figures[OURS.base], figures[OURS.patched], unit, **of)
    return counts, worst or (guest.FAILED if counts['failed'] else guest.OK), rows


def main(test: str = '', iommu: str = '', runs: int = 3) -> int:
    counts, status, rows = run(test, iommu, runs, counted=True)
    if status == guest.OK:
        record.record(rows)
        pages.write()
    else:
        say('clients: not recorded, as not all cases passed')
    print(closing(counts))
    return status
