# SPDX-License-Identifier: GPL-2.0-only
"""QEMU: its command line for a guest, its version, and whether KVM can be used."""
import dataclasses
import platform
import re
import shutil
import subprocess

from kit.errors import KitError
from kit.host import host_cpus
from kit.typed import check_keys

NEEDED = (8, 2)    # the first with igb


@dataclasses.dataclass
class Limits:
    """Seconds, for TCG."""
    boot: int = 180        # until init says that it runs
    silence: int = 300     # of results and console, while the job runs
    total: int = 1800      # of the job
    shutdown: int = 60     # from the exit status to QEMU's end


@dataclasses.dataclass
class Options:
    """What a boot may ask for beside its architecture's own."""
    cpus: int = 0                    # 0: two, or one with icount
    memory: str = ''                 # the machine's when empty
    append: str = ''                 # more words for the kernel's command line
    icount: bool = False             # guest time = instructions executed; TCG, one host thread
    prealloc: bool = False           # back the memory before the guest starts
    nodes: int = 1                   # NUMA nodes
    iommu: str = ''                  # one of the machine's [iommus]; its own when empty
    devices: list | None = None      # the machine's when None
    qemu: list = dataclasses.field(default_factory=list)    # more words for QEMU's command line
    splats: list = dataclasses.field(default_factory=list)  # console lines that its tests ask for
    limits: Limits = dataclasses.field(default_factory=Limits)


def host_is(machine):
    return platform.machine() == machine['host']


def found_version(machine):
    """(major, minor) of the installed QEMU, (0, 0) of none."""
    if not shutil.which(machine['qemu']):
        return 0, 0
    try:
        text = subprocess.run([machine['qemu'], '--version'], capture_output=True, text=True,
                              timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    match = re.search(r'version (\d+)\.(\d+)', text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def need(machine):
    """Dies unless QEMU is there and new enough."""
    if found_version(machine) < NEEDED:
        raise KitError(f'{machine["qemu"]} {NEEDED[0]}.{NEEDED[1]} or newer is needed: make deps '
                       f'(Debian package {machine["qemu_package"]})')


def iommus_of(machine):
    """{name: what it adds to the guest}"""
    return {'none': {}, **machine.get('iommus', {})}


def iommu_of(machine, options):
    """What the guest's IOMMU adds: {'qemu': words, 'append': words}."""
    name, known = options.iommu or machine.get('iommu', 'none'), iommus_of(machine)
    if name not in known:
        raise KitError(f'no IOMMU {name} (known: {" ".join(known)})')
    check_keys(f'IOMMU {name}', known[name], {'qemu', 'append'})
    return {'qemu': known[name].get('qemu', []), 'append': known[name].get('append', '')}


def mebibytes(memory):
    match = re.fullmatch(r'(\d+)([MG]?)', memory)
    if not match:
        raise KitError(f'memory {memory}: a number with M or G is meant')
    return int(match[1]) * (1024 if match[2] == 'G' else 1)


def memory_words(cpus, size, options):
    """-m, and nodes or memory that is backed before the guest starts."""
    words = ['-m', f'{size}M']
    prealloc = f',prealloc=on,prealloc-threads={host_cpus()}' if options.prealloc else ''
    if options.nodes > 1:
        if cpus % options.nodes or size % options.nodes:
            raise KitError(f'{cpus} CPUs and {size} MiB do not split into {options.nodes} nodes')
        each = cpus // options.nodes
        for node in range(options.nodes):
            part = f'id=memory{node},size={size // options.nodes}M{prealloc}'
            words += ['-object', f'memory-backend-ram,{part}', '-numa',
                      f'node,nodeid={node},memdev=memory{node},'
                      f'cpus={node * each}-{node * each + each - 1}']
    elif prealloc:
        words += ['-object', f'memory-backend-ram,id=memory0,size={size}M{prealloc}',
                  '-machine', 'memory-backend=memory0']
    return words


def command_line(machine, accelerator, image, initrd, options, console):
    """QEMU's command line, and nothing in it but what was asked for."""
    kvm, iommu = accelerator == 'kvm', iommu_of(machine, options)
    cpus = options.cpus or (1 if options.icount else 2)
    words = [machine['qemu'], '-nodefaults', '-display', 'none', '-no-reboot', '-no-user-config',
             '-accel', accelerator]
    words += machine.get('options_kvm', machine['options']) if kvm else machine['options']
    words += iommu['qemu']
    # a node has caches of its own
    sockets = f',sockets={options.nodes}' if options.nodes > 1 else ''
    words += ['-cpu', machine['cpu_kvm' if kvm else 'cpu_tcg'], '-smp', f'{cpus}{sockets}']
    words += memory_words(cpus, mebibytes(options.memory or machine['memory']), options)
    append = [machine['append'], iommu['append'], 'kunit.autorun=0', options.append]
    if options.icount:
        append.append(machine.get('append_icount', ''))
        words += ['-icount', 'shift=0,sleep=off', '-seed', '1', '-rtc', 'base=2026-01-01,clock=vm']
    for device in machine['devices'] if options.devices is None else options.devices:
        words += ['-device', device]
    words += ['-chardev', console, '-serial', 'chardev:console', '-device', 'virtio-serial-pci']
    for port in ('results', 'status'):
        words += ['-chardev', f'file,id={port},path={port}',
                  '-device', f'virtserialport,chardev={port},name={port}']
    return [*words, '-kernel', str(image), '-initrd', str(initrd),
            '-append', ' '.join(filter(None, append)), *options.qemu]
