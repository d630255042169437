# SPDX-License-Identifier: GPL-2.0-only
"""make soak: on a debug kernel each fault of the topics' calls in turn, then their workloads side
by side for MINUTES, with processes killed, stopped, frozen and moved, and CPUs taken away; nothing
may be left of them. With FLAVOUR=kcsan the workloads alone, on a kernel that finds data races.

The programs are soak/. Closes with `N passed, N failed, N skipped`; soak/soak.json has what was
counted. Exit status: as of make test.
"""
import random
import re
from pathlib import Path

from kit.bench import pages
from kit.build import kernel, selftest
from kit.build.config import CONFIGS
from kit.build.trees import make, root, source
from kit.errors import KitError
from kit.lock import Lock
from kit.machines import load_machine
from kit.paths import TOP, shown
from kit.process import say, step
from kit.soak import races, record
from kit.test import results, verdict
from kit.vm import console, guest
from kit.vm.qemu import Options

# of each flavour what runs: the faults first, as the soak looks for leaks in the end
RUNS = {'debug': ['faults', 'soak'], 'kcsan': ['soak']}
# After a fork the kernel writes the CPU's number to the thread's rseq area, in a page that has to
# be copied first: if that fails, as it is made to, the process gets SIGSEGV.
ENVIRONMENT = {'faults': 'GLIBC_TUNABLES=glibc.pthread.rseq=0'}
SOAK = TOP / 'soak'
# of each program the folders with its files
PROGRAMS = {'soak': ('.', 'lib'), 'faults': ('faults', 'lib'), 'random_maps': ('random',)}
# two for containers, one for iommufd, one for the kernel's own DMA: each in an IOMMU group of its
# own, as each is behind a port of its own
DEVICES = ['igb', *(word for number in range(1, 4) for word in (
    f'pcie-root-port,id=root{number},chassis={number}', f'igb,bus=root{number}'))]
# KCSAN watches one access of 400, not of 4,000, as few are to what somebody else has, too.
APPEND = f'{guest.PATIENT} kcsan.skip_watch=400'
NO_DEVICE = {'test': 'type1|iommufd|helper|dma|exec|memory is locked',
             'reason': 'the machine has no device for VFIO'}
NO_VM = {'test': 'vm happened|of a VM|vm: ', 'reason': 'nobody has written a program for them'}
TABLES = {'test': 'of a VM',
          'reason': "the IOMMU's are counted with them; the faults tell them apart"}
NOT_DEBUG = {'test': 'lockdep|kmemleak', 'reason': 'the debug kernel has them'}
# of each architecture that it runs on what may skip
SKIPS = {'x86_64': [TABLES], 'arm64': [NO_DEVICE],
         'powerpc': [NO_DEVICE, NO_VM, {'test': 'hugetlbfs|lockdep',
                                        'reason': 'not in its kernel; splats.allowed'}]}


def program(arch, name='soak', files=()):
    """The program, built for the guest and with the patched tree's headers; of files that are no
    soak's, if there are any."""
    machine, src = load_machine(arch), source('patched')
    made = root('patched') / 'build' / f'{arch}-soak'
    files = files or [file for folder in PROGRAMS[name]
                      for file in sorted((SOAK / folder).glob('*.c'))]
    with Lock(made):
        command, env = make(machine, made / 'headers', src, 'headers_install')
        step(f'build {arch} headers', command, log=made / 'headers.log', env=env)
        step(f'build {arch} {name}', [
            f'{machine["cross_compile"]}gcc', '-O2', '-Wall', '-static', '-pthread',
            '-isystem', made / 'headers/usr/include', '-I', SOAK, '-o', made / name, *files],
            log=made / f'{name}.log')
    return made / name


class Counts(verdict.Report):
    """What the program says of itself beside its results."""

    def __init__(self, tests):
        super().__init__(tests)
        self.counts, self.leaks = {}, None

    def line(self, text):
        super().line(text)
        if found := re.match(r'# count (\w+) (\d+)$', text):
            self.counts[found[1]] = int(found[2])
        elif found := re.match(r'# leaks (\d+)$', text):
            self.leaks = int(found[1])
        if text.startswith('# '):
            print(f'  {text[2:]}', flush=True)


def row_of(arch, flavour, minutes, seed, said, splats, failed):
    """What is recorded of a run."""
    counts = dict(said.counts)
    chosen = '' if flavour == 'debug' else f' FLAVOUR={flavour}'
    return {'command': f'make soak MINUTES={minutes} ARCH={arch}{chosen} SEED={seed}',
            'arch': arch, 'flavour': flavour, 'minutes': minutes, 'seed': seed,
            'hotplugs': counts.pop('hotplug', 0), 'kills': counts.pop('kill', 0),
            'vms': counts.pop('vm', 0), 'injections': counts.pop('injections', 0),
            'operations': counts, 'splats': len(splats), 'leaks': said.leaks,
            'failed': failed}


def any_seed():
    return random.randrange(1, 1 << 32)


def options_of(arch, minutes):
    options = Options(cpus=4, memory='4G', append=APPEND,
                      devices=DEVICES if load_machine(arch)['devices'] else None)
    # other guests may run meanwhile
    options.limits.boot, options.limits.silence = 300, 600
    options.limits.total = 60 * minutes + 3600
    return options


def tell_races(text, changed):
    """What KCSAN says of code that the series does not change."""
    print(f'soak: {len(re.findall(races.elsewhere(changed), text))} races elsewhere')
    for title, count in races.below(text, changed).most_common():
        print(f'  {count} called by the series on both sides: {title}')


def run(arch, flavour, minutes, seed, names, tell=None):
    """(Counter, guest status, what is recorded) of the programs of these names, in that order."""
    image = kernel.build(arch, flavour, 'patched')
    arguments = {'faults': '$BDFS', 'soak': f'{minutes} {seed} $BDFS'}
    skips = [*SKIPS[arch], *([] if flavour == 'debug' else [NOT_DEBUG])]
    tests = [{'name': name, 'program': name, 'arguments': arguments[name], 'skips': skips,
              'environment': ENVIRONMENT.get(name, '')} for name in names]
    said, options = Counts(tests), options_of(arch, minutes)
    if flavour == 'kcsan':
        changed = races.changed_functions(arch, flavour)
        options.splats.append(races.elsewhere(changed))
    files = [*(program(arch, name) for name in names), selftest.keep_vm(arch)]
    say(f'soak: {arch} {flavour}, {minutes} minute(s), SEED={seed}')
    ended = guest.run_guest(arch, image, verdict.job_of(tests), files, options,
                            name=f'soak-{arch}-{flavour}', on_line=said.line)
    counts = said.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {arch} {flavour}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    if tell:
        tell(results.boot_of(f'{arch} {flavour}, soak', arch, said, ended))
    text = console.read(ended.folder / 'console')
    if flavour == 'kcsan':
        tell_races(text, changed)
    print(f'soak: {arch} {flavour}: {verdict.closing(counts)}, seed {seed}; '
          f'{shown(Path(ended.folder))}', flush=True)
    splats = console.splats(text, console.splat_rules(arch, options.splats))
    return (counts, ended.status or (guest.FAILED if counts['failed'] else guest.OK),
            row_of(arch, flavour, minutes, seed, said, splats, counts['failed']))


def main(minutes=20, arch='x86_64', flavour='debug', seed=None):
    for name, value, known in ('ARCH', arch, SKIPS), ('FLAVOUR', flavour, RUNS):
        if value not in known:
            raise KitError(f'{name}={value}: not one of {" ".join(known)}')
    if not (CONFIGS / f'{arch}-{flavour}.config').exists():
        raise KitError(f'FLAVOUR={flavour}: not on {arch}')
    counts, status, row = run(arch, flavour, minutes, seed or any_seed(), RUNS[flavour])
    if status == guest.LOST:
        say('soak: not recorded, as the guest was lost')
    else:
        record.record([row])
        pages.write()
    print(verdict.closing(counts))
    return status
