# SPDX-License-Identifier: GPL-2.0-only
"""QEMU: its command line and its version."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

from kit.errors import KitError
from kit.host import host_cpus
from kit.model import Machine, Options

NEEDED = (8, 2)  # the first version with the network device igb


def host_is(machine: Machine) -> bool:
    return platform.machine() == machine.host


def found_version(machine: Machine) -> tuple[int, int]:
    """Returns (major, minor) of the installed QEMU, or (0, 0) if there is none."""
    if not shutil.which(machine.qemu):
        return 0, 0
    try:
        text = subprocess.run(
            [machine.qemu, '--version'], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    match = re.search(r'version (\d+)\.(\d+)', text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def need(machine: Machine) -> None:
    """Raises an error unless a new enough QEMU is installed."""
    if found_version(machine) < NEEDED:
        raise KitError(
            f'{machine.qemu} {NEEDED[0]}.{NEEDED[1]} or newer is needed: make deps '
            f'(Debian package {machine.qemu_package})'
        )


def mebibytes(memory: str) -> int:
    match = re.fullmatch(r'(\d+)([MG]?)', memory)
    if not match:
        raise KitError(f'memory {memory}: expected a number with M or G')
    return int(match[1]) * (1024 if match[2] == 'G' else 1)


def memory_words(cpus: int, size: int, options: Options) -> list[str]:
    """Returns the words for memory size, NUMA nodes and preallocation."""
    words = ['-m', f'{size}M']
    prealloc = f',prealloc=on,prealloc-threads={host_cpus()}' if options.prealloc else ''
    if options.nodes > 1:
        if cpus % options.nodes or size % options.nodes:
            raise KitError(f'{cpus} CPUs and {size} MiB do not split into {options.nodes} nodes')
        each = cpus // options.nodes
        for node in range(options.nodes):
            part = f'id=memory{node},size={size // options.nodes}M{prealloc}'
            words += [
                '-object',
                f'memory-backend-ram,{part}',
                '-numa',
                f'node,nodeid={node},memdev=memory{node},'
                f'cpus={node * each}-{node * each + each - 1}',
            ]
    elif prealloc:
        words += [
            '-object',
            f'memory-backend-ram,id=memory0,size={size}M{prealloc}',
            '-machine',
            'memory-backend=memory0',
        ]
    return words


def command_line(
    machine: Machine, accelerator: str, image: Path, initrd: Path, options: Options, console: str
) -> list[str]:
    """Returns QEMU's command line, without default devices."""
    kvm, iommu = accelerator == 'kvm', machine.iommu_named(options.iommu)
    cpus = options.cpus or (1 if options.icount else 2)
    words = [
        machine.qemu,
        '-nodefaults',
        '-display',
        'none',
        '-no-reboot',
        '-no-user-config',
        '-accel',
        accelerator,
    ]
    words += (kvm and machine.options_kvm) or machine.options
    words += iommu.qemu
    # one socket for each node, so that each node has its own caches
    sockets = f',sockets={options.nodes}' if options.nodes > 1 else ''
    words += ['-cpu', machine.cpu_kvm if kvm else machine.cpu_tcg, '-smp', f'{cpus}{sockets}']
    words += memory_words(cpus, mebibytes(options.memory or machine.memory), options)
    append = [machine.append, iommu.append, 'kunit.autorun=0', options.append]
    if options.icount:
        append.append(machine.append_icount)
        words += ['-icount', 'shift=0,sleep=off', '-seed', '1', '-rtc', 'base=2026-01-01,clock=vm']
    usual = () if (options.iommu or machine.iommu) == 'none' else machine.devices
    for device in usual if options.devices is None else options.devices:
        words += ['-device', device]
    words += ['-chardev', console, '-serial', 'chardev:console', '-device', 'virtio-serial-pci']
    for port in ('results', 'status'):
        words += [
            '-chardev',
            f'file,id={port},path={port}',
            '-device',
            f'virtserialport,chardev={port},name={port}',
        ]
    return [
        *words,
        '-kernel',
        str(image),
        '-initrd',
        str(initrd),
        '-append',
        ' '.join(filter(None, append)),
        *options.qemu,
    ]
