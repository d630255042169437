# SPDX-License-Identifier: GPL-2.0-only
"""What every verb needs: errors, steps with a log and a clock, other programs' output."""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LINUX = TOP / 'linux'
BUILD = TOP / 'build'
SERIES = TOP / 'series'
GUEST = TOP / 'guest'


# a terminated verb takes what it started with it, as an interrupted one does, and so does one whose
# terminal is closed, unless it was told to go on (nohup)
TERMINATED, INTERRUPTED = 143, 130    # what a shell says of them
for ends in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(ends) != signal.SIG_IGN:
        signal.signal(ends, lambda *_: sys.exit(TERMINATED))


# the verb, set by kit/cli.py: what an error begins with
program = 'kit'


def die(message, code=1):
    """One clear line, non-zero exit."""
    print(f'{program}: {message}', file=sys.stderr)
    sys.exit(code)


def one_line(kind, error, trace):
    """What nobody caught: a disk, a permission, Ctrl-C. One line; anything else is a bug and shows
    where."""
    if issubclass(kind, OSError) and error.strerror:
        say(': '.join(filter(None, (program, str(error.filename or ''), error.strerror))))
    elif not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = one_line


def say(message):
    print(message, file=sys.stderr, flush=True)


class Progress:
    """'what … 12 s' on a terminal, otherwise one plain line when done."""

    def __init__(self, what):
        self.what, self.start, self.shown = what, time.monotonic(), -1
        if not sys.stderr.isatty():
            say(f'{what} …')

    def seconds(self):
        return time.monotonic() - self.start

    def tick(self, note=''):
        now = int(self.seconds())
        # what goes on beside does not write over it
        first = threading.current_thread() is threading.main_thread()
        if first and sys.stderr.isatty() and now != self.shown:
            self.shown = now
            print(f'\r\033[K{self.what} … {now} s {note}', end='', file=sys.stderr, flush=True)

    def done(self, result=''):
        start = '\r\033[K' if sys.stderr.isatty() else ''
        say(f'{start}{self.what}: {self.seconds():.1f} s{" " + result if result else ""}')


def step(what, command, log=None, cwd=None, env=None, timeout=None, check=True, stdin=None):
    """Run a command with its output in a log, and show what runs for how long.

    what     words of the progress line; None shows nothing
    log      file for stdout and stderr (default build/log/WHAT.log)
    env      variables on top of the caller's; None removes one
    timeout  seconds; the whole process group is killed then
    check    die with the log's last lines unless the exit status is 0

    Returns the exit status (-1 on timeout when check is False).
    """
    command = [str(c) for c in command]
    if log is None:
        name = ''.join(c if c.isalnum() else '-' for c in (what or command[0]))
        log = BUILD / 'log' / f'{name}.log'
    log = Path(log)
    progress = Progress(what) if what else None
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        out = open(log, 'wb')
    except OSError as error:
        die(f'{log}: {error.strerror}')
    with out:
        out.write(f'$ {shlex.join(command)}\n'.encode())
        out.flush()
        try:
            # close_fds: with the verb's locks (kit/trees.py), which Python keeps from children
            child = subprocess.Popen(command, cwd=cwd, env=environment(env), stdout=out,
                                     stderr=subprocess.STDOUT, stdin=stdin or subprocess.DEVNULL,
                                     start_new_session=True, close_fds=False)
        except OSError as error:
            die(f'{command[0]}: {error.strerror}')
        start = time.monotonic()
        try:
            while True:
                try:
                    status = child.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    pass
                if progress:
                    progress.tick()
                if timeout and time.monotonic() - start > timeout:
                    kill_group(child)
                    status = -1
                    break
        except BaseException:    # Ctrl-C must not leave a build behind
            kill_group(child)
            raise
    if progress:
        progress.done('' if status == 0 else f'(failed: {"timeout" if status == -1 else status})')
    if status and check:
        text = log.read_text(errors='replace')
        for line in text.splitlines()[-15:]:
            say(f'  {line}')
        why = f'no end after {timeout} s' if status == -1 else f'exit status {status}'
        # dash calls it an I/O error
        if 'No space left on device' in text or shutil.disk_usage(log.parent).free < 1 << 20:
            why = 'no space left on the disk'
        die(f'{what or command[0]}: {why}; see {shown(log)}')
    return status


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def end_children():
    """What other threads have started would go on by itself."""
    for file in Path('/proc/self/task').glob('*/children'):
        try:
            children = file.read_text().split()
        except OSError:    # the thread has ended
            continue
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)


class Pool(ThreadPoolExecutor):
    """Threads of a verb. When it ends, by a signal or die(), so does what they have started, for
    which the executor would wait."""

    def __exit__(self, kind, error, trace):
        if kind and issubclass(kind, (SystemExit, KeyboardInterrupt)):
            end_children()
            with suppress(OSError):    # nobody reads it any more
                sys.stdout.flush()
            code = getattr(error, 'code', INTERRUPTED)
            os._exit(code if isinstance(code, int) else bool(code))
        return super().__exit__(kind, error, trace)


def container_limit(name, path=Path('/sys/fs/cgroup')):
    """The numbers in a file of the container's cgroup; None: no limit, no container, cgroup v1."""
    try:
        return [int(word) for word in (path / name).read_text().split()]
    except (OSError, ValueError):
        return None


def host_cpus():
    """How many CPUs there are for a build or a guest."""
    allowed = len(os.sched_getaffinity(0))
    if limit := container_limit('cpu.max'):
        allowed = min(allowed, -(-limit[0] // limit[1]))
    return allowed


def host_memory():
    """Bytes of memory that there are for guests."""
    whole = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return min(whole, *(container_limit('memory.max') or [whole]))


def shown(path):
    """The path as a reader in the repository would type it."""
    try:
        return Path(path).resolve().relative_to(TOP)
    except ValueError:
        return path


def environment(changes):
    """The caller's environment with changes; None removes a variable."""
    merged = {**os.environ, **(changes or {})}
    return {name: str(value) for name, value in merged.items() if value is not None}


def output(command, cwd=None, env=None, check=True, stdin=None):
    """A command's stdout as text; dies with its stderr unless check is False."""
    if isinstance(stdin, str):
        stdin = stdin.encode('utf-8', 'surrogateescape')
    try:
        done = subprocess.run(
            [str(c) for c in command],
            cwd=cwd,
            env=environment(env),
            input=stdin or b'',
            capture_output=True,
            check=False,
            close_fds=False,    # as in step()
        )
    except OSError as error:
        die(f'{command[0]}: {error.strerror}')
    # decoded by hand: text mode would turn CR LF into LF
    done.stdout, done.stderr = (
        text.decode('utf-8', 'surrogateescape') for text in (done.stdout, done.stderr)
    )
    if done.returncode and check:
        die(f'{shlex.join(str(c) for c in command)}: {(done.stderr or done.stdout).strip()[-500:]}')
    return done.stdout if check else done


def read_toml(path):
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        return die(f'{shown(path)}: {error}')


def check_keys(where, table, known):
    for key in table.keys() - set(known):
        die(f'{where}: {key}: no such key (known: {" ".join(sorted(known))})')


def archs():
    """The architectures that have a guest."""
    return sorted(path.stem for path in GUEST.glob('*.toml'))


def usual_archs(full=False):
    """Those that are built and checked without being asked for: a machine that is `full` only with
    FULL=1."""
    return [arch for arch in archs() if full or not load_machine(arch).get('full')]


def load_machine(arch):
    """guest/ARCH.toml: the guest's machine."""
    if arch not in archs():
        die(f'no architecture {arch} (known: {" ".join(archs())})')
    return read_toml(GUEST / f'{arch}.toml')
