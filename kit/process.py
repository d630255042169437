# SPDX-License-Identifier: GPL-2.0-only
"""Runs other programs. step() writes their output to a log and shows how long they run; result()
and output() return their output. Pool runs functions in threads."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.errors import KitError
from kit.paths import BUILD, shown

Word = str | Path  # of a command
Environment = dict[str, Any]  # None removes a variable
Child = subprocess.Popen[bytes]


def say(message: object) -> None:
    print(message, file=sys.stderr, flush=True)


class Progress:
    """Shows that a step is running. On a terminal, its line `WHAT … 12 s` counts the seconds.
    Otherwise, it prints one line at the start and one at the end."""

    def __init__(self, what: str) -> None:
        self.what, self.start, self.shown = what, time.monotonic(), -1
        if not sys.stderr.isatty():
            say(f'{what} …')

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def tick(self, note: str = '') -> None:
        now = int(self.seconds())
        # only the main thread may overwrite the line
        first = threading.current_thread() is threading.main_thread()
        if first and sys.stderr.isatty() and now != self.shown:
            self.shown = now
            print(f'\r\033[K{self.what} … {now} s {note}', end='', file=sys.stderr, flush=True)

    def done(self, result: str = '') -> None:
        start = '\r\033[K' if sys.stderr.isatty() else ''
        say(f'{start}{self.what}: {self.seconds():.1f} s{" " + result if result else ""}')


def step(
    what: str | None,
    command: Sequence[Word],
    log: Path | None = None,
    cwd: Path | None = None,
    env: Environment | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> int:
    """Runs a command with its output in a log, and shows how long it runs.

    what     text of the progress line; None shows nothing
    log      file for stdout and stderr (default build/log/WHAT.log)
    env      variables to add to the caller's; the value None removes a variable
    timeout  seconds after which the whole process group is killed
    check    raise an error with the log's last lines unless the exit status is 0

    Returns the exit status (-1 on timeout when check is False).
    """
    words = [str(word) for word in command]
    if log is None:
        name = ''.join(c if c.isalnum() else '-' for c in (what or words[0]))
        log = BUILD / 'log' / f'{name}.log'
    progress = Progress(what) if what else None
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        out = open(log, 'wb')
    except OSError as error:
        raise KitError(f'{log}: {error.strerror}') from error
    with out:
        out.write(f'$ {shlex.join(words)}\n'.encode())
        out.flush()
        try:
            # close_fds=False: children inherit the verb's locks (kit/lock.py)
            child = subprocess.Popen(
                words,
                cwd=cwd,
                env=environment(env),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                close_fds=False,
            )
        except OSError as error:
            raise KitError(f'{words[0]}: {error.strerror}') from error
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
        except BaseException:  # Ctrl-C must not leave a build behind
            kill_group(child)
            raise
    if progress:
        progress.done('' if status == 0 else f'(failed: {"timeout" if status == -1 else status})')
    if status and check:
        text = log.read_text(errors='replace')
        for line in text.splitlines()[-15:]:
            say(f'  {line}')
        why = f'still running after {timeout} s' if status == -1 else f'exit status {status}'
        # the shell dash reports a full disk as an I/O error
        if 'No space left on device' in text or shutil.disk_usage(log.parent).free < 1 << 20:
            why = 'no space left on the disk'
        raise KitError(f'{what or words[0]}: {why}; see {shown(log)}')
    return status


def kill_group(child: Child) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def end_children() -> None:
    """Ends the child processes of all threads. They would otherwise outlive this process."""
    for file in Path('/proc/self/task').glob('*/children'):
        try:
            children = file.read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)


class Pool(ThreadPoolExecutor):
    """The threads of a verb. After a signal or an error, the pool does not wait for its threads:
    cli.guarded() ends their child processes, and then this process."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)


def environment(changes: Environment | None) -> dict[str, str]:
    """Returns the caller's environment with these changes. A value of None removes the variable."""
    merged = {**os.environ, **(changes or {})}
    return {name: str(value) for name, value in merged.items() if value is not None}


@dataclass(frozen=True)
class Done:
    """The output and exit status of a command."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def result(
    command: Sequence[Word],
    cwd: Path | None = None,
    env: Environment | None = None,
    stdin: str | None = None,
) -> Done:
    """Runs a command and returns its output and exit status, which may be non-zero."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=environment(env),
            input=(stdin or '').encode('utf-8', 'surrogateescape'),
            capture_output=True,
            check=False,
            close_fds=False,  # as in step()
        )
    except OSError as error:
        raise KitError(f'{command[0]}: {error.strerror}') from error
    # decoded explicitly, as text mode converts CR LF to LF
    return Done(
        done.returncode,
        done.stdout.decode('utf-8', 'surrogateescape'),
        done.stderr.decode('utf-8', 'surrogateescape'),
    )


def output(
    command: Sequence[Word],
    cwd: Path | None = None,
    env: Environment | None = None,
    stdin: str | None = None,
) -> str:
    """Runs a command and returns its stdout. If the command fails, raises an error with its
    stderr."""
    done = result(command, cwd, env, stdin)
    if done.returncode:
        words = shlex.join(str(word) for word in command)
        raise KitError(f'{words}: {(done.stderr or done.stdout).strip()[-500:]}')
    return done.stdout
