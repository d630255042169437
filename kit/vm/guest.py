# SPDX-License-Identifier: GPL-2.0-only
"""Boots a guest in QEMU, runs a job in it and returns the outcome.

The console, the job's output (results) and its exit status leave the guest through separate ports
and are stored in a folder of build/results/. Boot, job and shutdown have separate time limits. A
guest that exceeds a limit, or ends without an exit status, is lost. Its exit status, LOST, differs
from that of a failed test.
"""

import ctypes
import datetime
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kit.errors import KitError
from kit.model import Limits, Machine, Options
from kit.paths import BUILD, shown
from kit.process import Progress, say
from kit.vm import console, initrd, monitor
from kit.vm.console import Rules, read, size
from kit.vm.qemu import command_line, host_is, need

OK, FAILED, LOST, SPLAT = 0, 1, 2, 3  # exit statuses of verbs that boot guests
RESULTS = BUILD / 'results'
# On a busy host, four vCPUs stalled for more than half a minute. With its default limits, Linux
# reports this as a lockup. A real hang exceeds these higher limits, too.
PATIENT = 'watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120'
FOLDERS = 40  # number of folders to keep in build/results


# called with each line of the job's output as it arrives; True stops the guest
OnLine = Callable[[str], bool | None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a guest."""

    status: int  # OK, FAILED, LOST, SPLAT
    message: str  # one line
    detail: str  # the relevant lines of the console
    code: int | None  # the job's exit status
    accelerator: str
    folder: Path
    seconds: float
    boot_seconds: float | None
    lockdep: bool | None  # was lockdep still enabled at the end? None: not in this kernel

    def results(self) -> str:
        return read(self.folder / 'results')


def die_with_parent() -> None:
    """Makes the kernel kill QEMU when its parent ends for any reason. Runs in the child process."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def in_use(folder: Path) -> bool:
    """Returns whether the program that made the folder is still running."""
    return Path('/proc', folder.name.rpartition('-')[2].partition('.')[0]).exists()


def new_folder(name: str) -> Path:
    """Makes a folder for one boot and deletes the oldest folders."""
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
        for old in sorted(path for path in RESULTS.iterdir() if path.is_dir())[:-FOLDERS]:
            if not in_use(old):
                shutil.rmtree(old, ignore_errors=True)
        folder = RESULTS / f'{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}-{os.getpid()}'
        for number in range(1000):
            try:
                path = folder if not number else folder.with_name(f'{folder.name}.{number}')
                path.mkdir()
                return path
            except FileExistsError:
                continue
    except OSError as error:
        raise KitError(f'{shown(RESULTS)}: {error.strerror}') from error
    raise KitError(f'{shown(RESULTS)}: no free name')


class Heard:
    """The output of a running guest so far, and its times."""

    def __init__(self, folder: Path, start: float) -> None:
        self.folder, self.start, self.last = folder, start, start
        self.results = console.Follow(folder / 'results')
        self.status = console.Follow(folder / 'status')
        self.sizes: tuple[int, int] | None = None
        self.up: float | None = None
        self.ended: float | None = None
        self.code: int | None = None
        self.stop = False  # on_line has returned True
        self.lockdep: bool | None = None

    def listen(self, now: float, on_line: OnLine | None) -> None:
        for line in self.status.lines():
            if line == 'up':
                self.up = self.last = now
            elif line.startswith('debug_locks '):
                self.lockdep = line.split()[1] == '1'
            elif line.startswith('exit '):
                self.code, self.ended = int(line.split()[1]), now
        for line in self.results.lines():
            if on_line and on_line(line):
                self.stop = True
        sizes = size(self.folder / 'console'), size(self.folder / 'results')
        if sizes != self.sizes:
            self.sizes, self.last = sizes, now

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Returns the limit that the guest has exceeded, as text, or None if it has exceeded
        none."""
        if self.up is None:
            late = now - self.start > limits.boot
            return f'did not reach its init within {limits.boot} s' if late else None
        if self.ended is not None:
            late = now - self.ended > limits.shutdown
            return f'did not power off within {limits.shutdown} s' if late else None
        if now - self.up > limits.total:
            return f'did not finish its job within {limits.total} s'
        if now - self.last > limits.silence:
            return f'was silent for {limits.silence} s'
        return None


def why_lost(heard: Heard, text: str, folder: Path, status: int) -> str:
    """Returns the reason why a guest ended without an exit status."""
    if heard.stop:
        return 'was stopped after a line of its output'
    if 'Kernel panic' in text:
        return 'panicked'
    if not heard.up:
        said = read(folder / 'qemu').strip()[-200:] or f'exit status {status}'
        return f'ended before its init ran (QEMU: {said})'
    return 'ended without an exit status'


def judge(
    lost: str | None, code: int | None, found: Sequence[str], folder: Path
) -> tuple[int, str, str]:
    """Returns (status, message, detail) of a guest. The status is decided by the first of these
    that applies: the guest was lost, the kernel had a splat, the job failed."""
    where = shown(folder / 'console')
    if lost:
        registers = folder / 'registers'
        more = f'; registers: {shown(registers)}' if registers.exists() else ''
        message = f'guest lost: it {lost}; console: {where}{more}'
        return LOST, message, console.tail(folder / 'console')
    if found:
        return (
            SPLAT,
            f'kernel splat, {len(found)} line(s) on the console: {where}',
            '\n'.join(f'  {line}' for line in found[:10]),
        )
    if code:
        return (
            FAILED,
            f'the job failed with exit status {code}; its output: {shown(folder / "results")}',
            '',
        )
    return OK, 'ok', ''


def watch(
    words: Sequence[str],
    folder: Path,
    limits: Limits,
    rules: Rules,
    what: str | None = None,
    on_line: OnLine | None = None,
) -> Outcome:
    """Starts QEMU (words), waits until the guest ends or exceeds a limit, and returns the
    outcome."""
    (folder / 'command').write_text(shlex.join(words) + '\n')
    progress, start, lost = Progress(what) if what else None, time.monotonic(), None
    heard = Heard(folder, start)
    with open(folder / 'qemu', 'wb') as said:
        qemu = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
    try:
        while not lost and not heard.stop:
            gone = qemu.poll() is not None  # checked before the last read of the files
            now = time.monotonic()
            heard.listen(now, on_line)
            if gone:
                break
            lost = heard.overdue(now, limits)
            if progress:
                progress.tick('' if heard.up else '(booting)')
            time.sleep(0.05)
        if lost and (found := monitor.registers(folder)):
            (folder / 'registers').write_text(found)
    finally:
        qemu.kill()
        qemu.wait()
    seconds, text = time.monotonic() - start, read(folder / 'console')
    if heard.code is None and not lost:
        lost = why_lost(heard, text, folder, qemu.returncode)
    if shutil.disk_usage(folder).free < 1 << 20:  # QEMU ignores failed writes
        lost = 'ran with no space left on the disk'
    accelerator = words[words.index('-accel') + 1] if '-accel' in words else ''
    boot = heard.up and heard.up - start
    if progress:
        progress.done(f'({accelerator}{f", boot {boot:.1f} s" if boot else ""})')
    verdict = judge(lost, heard.code, console.splats(text, rules), folder)
    return Outcome(*verdict, heard.code, accelerator, folder, seconds, boot, heard.lockdep)


def kvm_works(machine: Machine, image: Path) -> bool:
    """Returns whether a guest reaches its init with KVM. An openable /dev/kvm does not prove
    that."""
    if not host_is(machine) or not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return False
    flags = re.search(r'^flags\s*:.*\b(vmx|svm)\b', read(Path('/proc/cpuinfo')), re.M)
    if machine.host == 'x86_64' and not flags:
        return False
    boot_id = read(Path('/proc/sys/kernel/random/boot_id')).strip()
    verdict = BUILD / f'kvm-{machine.host}-{boot_id}'  # tried once per boot of the host
    if not verdict.exists():
        folder = new_folder('kvm-probe')
        whole = initrd.with_job(machine, folder, {'run': b'#!/bin/sh\nexit 0\n'})
        options = Options(limits=Limits(boot=8, silence=8, total=8, shutdown=8))
        words = command_line(machine, 'kvm', image, whole, options, FILE)
        ended = watch(words, folder, options.limits, console.splat_rules(machine.arch))
        verdict.write_text('yes' if ended.status == OK else 'no')
    return verdict.read_text() == 'yes'


FILE = 'file,id=console,path=console'  # the console's chardev


def accelerator_for(machine: Machine, image: Path, options: Options) -> str:
    if options.icount:
        return 'tcg,thread=single'
    # plugins work with TCG only
    if '-plugin' not in options.qemu and kvm_works(machine, image):
        return 'kvm'
    return 'tcg,thread=multi'


def run_guest(
    machine: Machine,
    image: Path,
    job: str | Path,
    files: Iterable[Path] = (),
    options: Options = Options(),
    name: str = 'guest',
    what: str | None = None,
    on_line: OnLine | None = None,
    archives: Sequence[Path] = (),
) -> Outcome:
    """Boots the image, runs the job in the guest, and returns the Outcome. `job` is the text or
    the path of a shell script. The guest has copies of `files` in /job.

    `on_line` is called with each line of the job's output as it arrives. If it returns True, the
    guest is stopped and counts as lost. `archives` are cpio archives to unpack in addition to the
    system's.
    """
    image = image.resolve()
    need(machine)
    rules = console.splat_rules(machine.arch, options.splats)
    accelerator = accelerator_for(machine, image, options)
    folder = new_folder(name)
    try:
        inside = {'run': job.read_bytes() if isinstance(job, Path) else job.encode()}
        for file in files:
            inside[file.name] = file.read_bytes()
        whole = initrd.with_job(machine, folder, inside, archives)
        config = Path(str(image).removesuffix(machine.image)) / '.config'
        if config.exists():
            shutil.copy(config, folder / 'config')
        words = command_line(machine, accelerator, image, whole, options, FILE)
        words += monitor.words()
        return watch(words, folder, options.limits, rules, what, on_line)
    except OSError as error:
        raise KitError(f'{error.filename or shown(folder)}: {error.strerror}') from error


def shell(
    machine: Machine, image: Path, options: Options, share: str = '', gdb: bool = False
) -> int:
    """Boots the image with the guest's console on this terminal; returns QEMU's exit status."""
    need(machine)
    accelerator = accelerator_for(machine, image, options)
    folder = new_folder(f'shell-{machine.arch}')
    append, more = [options.append], list(options.qemu)
    terminal = shutil.get_terminal_size(fallback=(0, 0))
    if terminal.lines:
        append.append(f'ROWS={terminal.lines} COLS={terminal.columns}')
    if share:
        more += [
            '-fsdev',
            f'local,id=share,path={share},security_model=none',
            '-device',
            'virtio-9p-pci,fsdev=share,mount_tag=share',
        ]
        say(f'{share} is /share in the guest')
    if gdb:
        append.append('nokaslr')
        more += ['-S', '-gdb', 'tcp:127.0.0.1:1234']
        symbols = Path(str(image).removesuffix(machine.image), 'vmlinux')
        say(f'waiting: gdb {shown(symbols)} -ex "target remote :1234"')
    options = replace(options, append=' '.join(filter(None, append)), qemu=tuple(more))
    words = command_line(
        machine,
        accelerator,
        image,
        initrd.system(machine),
        options,
        'stdio,id=console,mux=on,signal=off,logfile=console',
    )
    words += ['-mon', 'chardev=console']
    (folder / 'command').write_text(shlex.join(words) + '\n')
    say(f'{accelerator}; Ctrl-A X ends QEMU; the console is saved in {shown(folder / "console")}')
    with subprocess.Popen(words, cwd=folder, preexec_fn=die_with_parent) as qemu:
        try:
            return qemu.wait()
        finally:
            qemu.kill()
