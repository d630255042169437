# SPDX-License-Identifier: GPL-2.0-only
"""Initial file systems of guests: reproducible cpio archives."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kit.errors import KitError
from kit.model import Machine
from kit.paths import BUILD, GUEST, shown
from kit.setup import apt
from kit.vm.qemu import host_is

Member = tuple[Any, ...]  # name, mode, data, device; the last two may be missing

HOST_BUSYBOX = Path('/bin/busybox')
ONE_AT_A_TIME = threading.Lock()  # guests start in parallel


def entry(
    number: int, name: str, mode: int, data: bytes = b'', device: tuple[int, int] = (0, 0)
) -> bytes:
    """Returns a member of an archive in the newc format, dated 1970."""
    head = '070701' + ''.join(
        f'{field:08x}'
        for field in (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    )
    text = head.encode() + name.encode() + b'\0'
    return text + b'\0' * (-len(text) % 4) + data + b'\0' * (-len(data) % 4)


def archive(members: Iterable[Member]) -> bytes:
    """Returns an archive with the members (name, mode, data[, device])."""
    parts = [entry(number, *member) for number, member in enumerate(sorted(members), 1)]
    return b''.join([*parts, entry(0, 'TRAILER!!!', 0)])


def busybox(machine: Machine) -> Path:
    """Returns the path of a static busybox of the guest's architecture."""
    if host_is(machine) and HOST_BUSYBOX.exists() and static(HOST_BUSYBOX):
        return HOST_BUSYBOX
    path = BUILD / 'apt' / f'busybox-{machine.debian_arch}'
    if not path.exists():
        apt.fetch_file('busybox-static', machine, ['bin/busybox', 'usr/bin/busybox'], path)
    return path


def static(path: Path) -> bool:
    """Returns whether the ELF file lacks a program interpreter."""
    data = path.read_bytes()
    offset, size, count = (
        int.from_bytes(data[at : at + length], 'little')
        for at, length in ((32, 8), (54, 2), (56, 2))
    )
    return all(
        int.from_bytes(data[at : at + 4], 'little') != 3
        for at in range(offset, offset + size * count, size)
    )


def system(machine: Machine) -> Path:
    """Returns the path of the archive with busybox and init. The archive is written again if one of
    them has changed."""
    with ONE_AT_A_TIME:
        return write(BUILD / f'initrd-{machine.debian_arch}.cpio', archive(members(machine)))


def members(machine: Machine) -> list[Member]:
    program, init = busybox(machine), GUEST / 'init'
    folders = ['bin', 'dev', 'proc', 'sys', 'tmp', 'job', 'root', 'etc', 'share']
    return [
        *((name, 0o40755) for name in folders),
        ('dev/console', 0o20600, b'', (5, 1)),
        ('bin/busybox', 0o100755, program.read_bytes()),
        ('bin/sh', 0o120777, b'busybox'),
        ('init', 0o100755, init.read_bytes()),
        (
            'etc/passwd',
            0o100644,
            b'root:x:0:0:root:/job:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n',
        ),
        ('etc/group', 0o100644, b'root:x:0:\nnogroup:x:65534:\n'),
    ]


def overlay(path: Path, files: dict[str, bytes]) -> Path:
    """Writes an archive with files {name in /job: bytes}, and returns its path."""
    return write(
        path,
        archive(
            [('job', 0o40755), *((f'job/{name}', 0o100755, data) for name, data in files.items())]
        ),
    )


def write(path: Path, data: bytes) -> Path:
    if not path.exists() or path.read_bytes() != data:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f'{path.name}.part')
            part.write_bytes(data)
            part.rename(path)
        except OSError as error:
            raise KitError(f'{shown(path)}: {error.strerror}') from error
    return path


def joined(path: Path, archives: Sequence[Path]) -> Path:
    """Writes the concatenated archives to `path`. The kernel unpacks all of them."""
    return write(path, b''.join(part.read_bytes() for part in archives))


def with_job(
    machine: Machine, folder: Path, files: dict[str, bytes], more: Sequence[Path] = ()
) -> Path:
    """Writes an initrd into the folder of a boot. The initrd contains the system, the archives in
    `more` and, in /job, the files."""
    return joined(folder / 'initrd', [system(machine), *more, overlay(folder / 'job.cpio', files)])
