# SPDX-License-Identifier: GPL-2.0-only
"""Boots a guest in QEMU, runs a job in it and says how that ended.

The console, the job's output (results) and its exit status leave the guest on three different ways and
end in a folder of build/results/. Boot, job and shutdown have time limits of their own; a guest that
exceeds one, or ends without an exit status, is lost, which is another thing than a failed test.
"""
import ctypes
import dataclasses
import datetime
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import initrd as initrd_file
import kernel
from common import BUILD, TOP, Progress, die, load_record, say, shown

OK, FAILED, LOST, SPLAT = 0, 1, 2, 3    # exit statuses of whoever boots a guest
RESULTS = BUILD / 'results'
KEPT = 40                               # folders there


@dataclasses.dataclass
class Limits:
    """Seconds, for TCG."""
    boot: int = 180        # until init says that it runs
    silence: int = 300     # of results and console, while the job runs
    total: int = 1800      # of the job
    shutdown: int = 60     # from the exit status to QEMU's end


@dataclasses.dataclass
class Options:
    cpus: int = 0                    # 0: two, or one with icount
    memory: str = ''                 # the record's when empty
    append: str = ''
    icount: bool = False             # guest time = instructions, whatever else the host does; TCG, one host thread
    prealloc: bool = False           # back the memory before the guest starts
    nodes: int = 1                   # NUMA nodes
    devices: list | None = None      # the record's when None
    qemu: list = dataclasses.field(default_factory=list)    # more words for the command line
    limits: Limits = dataclasses.field(default_factory=Limits)


@dataclasses.dataclass
class Outcome:
    status: int             # OK, FAILED, LOST, SPLAT
    message: str            # one line
    detail: str             # what the console says about it
    code: int | None        # the job's exit status
    accelerator: str
    folder: Path
    seconds: float
    boot_seconds: float | None
    splats: list

    def results(self):
        return read(self.folder / 'results')


def read(path):
    try:
        return path.read_text(errors='replace')
    except OSError:
        return ''


def die_with_parent():
    """In the child: QEMU must not outlive the script, however that ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)    # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def mebibytes(memory):
    match = re.fullmatch(r'(\d+)([MG]?)', memory)
    if not match:
        die(f'memory {memory}: a number with M or G is meant')
    return int(match[1]) * (1024 if match[2] == 'G' else 1)


def command_line(record, accelerator, image, initrd, options, console):
    """QEMU's command line, and nothing in it but what was asked for."""
    kvm = accelerator == 'kvm'
    cpus = options.cpus or (1 if options.icount else 2)
    words = [record['qemu'], '-nodefaults', '-display', 'none', '-no-reboot', '-no-user-config', '-accel', accelerator]
    words += record.get('options_kvm', record['options']) if kvm else record['options']
    words += ['-cpu', record['cpu_kvm' if kvm else 'cpu_tcg'], '-smp', str(cpus) if options.nodes == 1 else f'{cpus},sockets={options.nodes}']    # a node has caches of its own
    size = mebibytes(options.memory or record['memory'])
    words += ['-m', f'{size}M']
    prealloc = f',prealloc=on,prealloc-threads={os.cpu_count()}' if options.prealloc else ''
    if options.nodes > 1:
        if cpus % options.nodes or size % options.nodes:
            die(f'{cpus} CPUs and {size} MiB do not split into {options.nodes} nodes')
        each = cpus // options.nodes
        for node in range(options.nodes):
            words += ['-object', f'memory-backend-ram,id=memory{node},size={size // options.nodes}M{prealloc}',
                      '-numa', f'node,nodeid={node},memdev=memory{node},cpus={node * each}-{node * each + each - 1}']
    elif prealloc:
        words += ['-object', f'memory-backend-ram,id=memory0,size={size}M{prealloc}', '-machine', 'memory-backend=memory0']
    append = f'{record["append"]} kunit.autorun=0 {options.append}'.strip()
    if options.icount:
        append += f' {record.get("append_icount", "")}'.rstrip()
        words += ['-icount', 'shift=0,sleep=off', '-seed', '1', '-rtc', 'base=2026-01-01,clock=vm']
    for device in record['devices'] if options.devices is None else options.devices:
        words += ['-device', device]
    words += ['-chardev', console, '-serial', 'chardev:console', '-device', 'virtio-serial-pci']
    for port in ('results', 'status'):
        words += ['-chardev', f'file,id={port},path={port}', '-device', f'virtserialport,chardev={port},name={port}']
    return words + ['-kernel', str(image), '-initrd', str(initrd), '-append', append, *options.qemu]


def new_folder(name):
    """A folder for one run; the oldest ones go."""
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
        for old in sorted(path for path in RESULTS.iterdir() if path.is_dir())[:-KEPT]:
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
        die(f'{shown(RESULTS)}: {error.strerror}')
    return die(f'{shown(RESULTS)}: no free name')


def kvm_works(record, image):
    """KVM only when a guest reached its init with it: an openable /dev/kvm proves nothing."""
    if not kernel.host_is(record) or not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return False
    if record['machine'] == 'x86_64' and not re.search(r'^flags\s*:.*\b(vmx|svm)\b', read(Path('/proc/cpuinfo')), re.M):
        return False
    boot_id = read(Path('/proc/sys/kernel/random/boot_id')).strip()
    verdict = BUILD / f'kvm-{record["machine"]}-{boot_id}'    # tried once per boot of the host
    if not verdict.exists():
        folder = new_folder('kvm-probe')
        job = initrd_file.overlay(folder / 'job.cpio', {'run': b'#!/bin/sh\nexit 0\n'})
        whole = initrd_file.joined(folder / 'initrd', [initrd_file.base(record), job])
        options = Options(limits=Limits(boot=8, silence=8, total=8, shutdown=8))
        ended = watch(record, 'kvm', image, whole, options, folder, None, None)
        verdict.write_text('yes' if ended.status == OK else 'no')
    return verdict.read_text() == 'yes'


def accelerator_for(record, image, options):
    if options.icount:
        return 'tcg,thread=single'
    return 'kvm' if kvm_works(record, image) else 'tcg,thread=multi'


def patterns(name):
    """The regular expressions of guest/NAME; a missing or broken file is an error."""
    path = TOP / 'guest' / name
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        die(f'{shown(path)}: {error.strerror}')
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith('#')]


def compiled(name, number, text):
    try:
        return re.compile(text)
    except re.error as error:
        return die(f'guest/{name}:{number}: {error}')


def splat_rules():
    """(what fails a run, what is allowed); an exception that has expired is an error."""
    bad = [compiled('splats', number, line) for number, line in patterns('splats')]
    if not bad:
        die('guest/splats has no pattern')
    allowed = []
    for number, line in patterns('splats.allowed'):
        parts = [part.strip() for part in line.split(' | ')]
        where = f'guest/splats.allowed:{number}'
        if len(parts) != 4 or not all(parts):
            die(f'{where}: not REGEX | REASON | LINK | YYYY-MM-DD')
        try:
            expiry = datetime.date.fromisoformat(parts[3])
        except ValueError:
            die(f'{where}: no date: {parts[3]}')
        if expiry < datetime.date.today():
            die(f'{where}: expired on {expiry}: {parts[1]}')
        allowed.append(compiled('splats.allowed', number, parts[0]))
    return bad, allowed


def splats(console, rules):
    bad, allowed = rules
    return [line.rstrip() for line in console.splitlines()
            if any(rule.search(line) for rule in bad) and not any(rule.search(line) for rule in allowed)]


def tail(path, lines=15):
    return '\n'.join(f'  {line}' for line in read(path).splitlines()[-lines:])


class Follow:
    """Complete new lines of a growing file."""

    def __init__(self, path):
        self.path, self.offset, self.rest = path, 0, b''

    def lines(self):
        try:
            with open(self.path, 'rb') as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b'\n')
        return [line.decode(errors='replace').rstrip('\r') for line in whole]


def size(path):
    try:
        return path.stat().st_size
    except OSError:
        return 0


def watch(record, accelerator, image, initrd, options, folder, what, on_line):
    """Starts QEMU, follows it within the limits, and judges."""
    rules = splat_rules()
    limits = options.limits
    words = command_line(record, accelerator, image, initrd, options, 'file,id=console,path=console')
    (folder / 'command').write_text(shlex.join(words) + '\n')
    config = Path(str(image.resolve()).removesuffix(record['image'])) / '.config'
    if config.exists():
        shutil.copy(config, folder / 'config')
    progress = Progress(what) if what else None
    start = time.monotonic()
    qemu = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=open(folder / 'qemu', 'wb'),
                            stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
    results, status = Follow(folder / 'results'), Follow(folder / 'status')
    up = code = ended = lost = None
    heard, sizes = start, None
    try:
        while not lost:
            gone = qemu.poll() is not None    # before the files are read for the last time
            now = time.monotonic()
            for line in status.lines():
                if line == 'up':
                    up = heard = now
                elif line.startswith('exit '):
                    code, ended = int(line.split()[1]), now
            for line in results.lines():
                if on_line:
                    on_line(line)
            if sizes != (sizes := (size(folder / 'console'), size(folder / 'results'))):
                heard = now
            if gone:
                break
            if up is None and now - start > limits.boot:
                lost = f'did not reach its init within {limits.boot} s'
            elif up and ended is None and now - up > limits.total:
                lost = f'did not finish its job within {limits.total} s'
            elif up and ended is None and now - heard > limits.silence:
                lost = f'was silent for {limits.silence} s'
            elif ended and now - ended > limits.shutdown:
                lost = f'did not power off within {limits.shutdown} s'
            if progress:
                progress.tick('' if up else '(booting)')
            time.sleep(0.05)
    finally:
        qemu.kill()
        qemu.wait()
    seconds = time.monotonic() - start
    console = read(folder / 'console')
    if code is None and not lost:
        if 'Kernel panic' in console:
            lost = 'panicked'
        elif not up:
            lost = f'ended before its init ran (QEMU: {read(folder / "qemu").strip()[-200:] or f"exit status {qemu.returncode}"})'
        else:
            lost = 'ended without an exit status'
    if shutil.disk_usage(folder).free < 1 << 20:    # QEMU goes on without what it could not write
        lost = 'ran with no space left on the disk'
    found = splats(console, rules)
    where = shown(folder / 'console')
    if lost:
        verdict = LOST, f'guest lost: it {lost}; console: {where}', tail(folder / 'console')
    elif found:
        verdict = SPLAT, f'kernel splat, {len(found)} line(s) on the console: {where}', '\n'.join(f'  {line}' for line in found[:10])
    elif code:
        verdict = FAILED, f'the job failed with exit status {code}; its output: {shown(folder / "results")}', ''
    else:
        verdict = OK, 'ok', ''
    if progress:
        progress.done(f'({accelerator}{f", boot {up - start:.1f} s" if up else ""})')
    return Outcome(*verdict, code, accelerator, folder, seconds, up and up - start, found)


def run_guest(arch, image, job, files=(), options=None, name='guest', what=None, on_line=None):
    """Boots the image, runs the job (a script's text or path) next to the files, returns the Outcome.

    on_line is called with each line of the job's output as it comes.
    """
    record, options = load_record(arch), options or Options()
    kernel.qemu_version(record)
    accelerator = accelerator_for(record, image, options)
    folder = new_folder(name)
    try:
        inside = {'run': job.read_bytes() if isinstance(job, Path) else job.encode()}
        for file in map(Path, files):
            inside[file.name] = file.read_bytes()
        whole = initrd_file.joined(folder / 'initrd', [initrd_file.base(record), initrd_file.overlay(folder / 'job.cpio', inside)])
        return watch(record, accelerator, image, whole, options, folder, what, on_line)
    except OSError as error:
        return die(f'{error.filename or shown(folder)}: {error.strerror}')


def shell(arch, image, options):
    """The guest's console on this terminal; returns QEMU's exit status."""
    record = load_record(arch)
    kernel.qemu_version(record)
    accelerator = accelerator_for(record, image, options)
    folder = new_folder(f'shell-{arch}')
    rows, columns = os.popen('stty size 2>/dev/null').read().split() or ('', '')
    options.append += f' ROWS={rows} COLS={columns}' if rows else ''
    console = 'stdio,id=console,mux=on,signal=off,logfile=console'
    words = command_line(record, accelerator, image, initrd_file.base(record), options, console) + ['-mon', 'chardev=console']
    (folder / 'command').write_text(shlex.join(words) + '\n')
    say(f'{accelerator}; Ctrl-A X ends QEMU; console kept in {shown(folder / "console")}')
    qemu = subprocess.Popen(words, cwd=folder, preexec_fn=die_with_parent)
    try:
        return qemu.wait()
    finally:
        qemu.kill()
        qemu.wait()
