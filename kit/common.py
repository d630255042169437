# SPDX-License-Identifier: GPL-2.0-only
"""What every verb needs: errors, steps with a log and a clock, git, records."""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LINUX = TOP / 'linux'
BUILD = TOP / 'build'


# a terminated verb takes what it started with it, as an interrupted one does
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def die(message, code=1):
    """One clear line, non-zero exit."""
    print(f'{Path(sys.argv[0]).name}: {message}', file=sys.stderr)
    sys.exit(code)


def one_line(kind, error, trace):
    """What nobody caught: a disk, a permission, Ctrl-C. One line; anything else is a bug and shows where."""
    if issubclass(kind, OSError) and error.strerror:
        say(': '.join(filter(None, (Path(sys.argv[0]).name, str(error.filename or ''), error.strerror))))
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
        if sys.stderr.isatty() and now != self.shown:
            self.shown = now
            print(f'\r\033[K{self.what} … {now} s {note}', end='', file=sys.stderr, flush=True)

    def done(self, result=''):
        start = '\r\033[K' if sys.stderr.isatty() else ''
        say(f'{start}{self.what}: {self.seconds():.1f} s{" " + result if result else ""}')


def run(what, command, log=None, cwd=None, env=None, timeout=None, check=True, stdin=None):
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
            child = subprocess.Popen(command, cwd=cwd, env=environment(env), stdout=out,
                                     stderr=subprocess.STDOUT, stdin=stdin or subprocess.DEVNULL,
                                     start_new_session=True)
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
        done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment(env), input=stdin or b'',
                              capture_output=True, check=False)
    except OSError as error:
        die(f'{command[0]}: {error.strerror}')
    # decoded by hand: text mode would turn CR LF into LF
    done.stdout, done.stderr = (text.decode('utf-8', 'surrogateescape') for text in (done.stdout, done.stderr))
    if done.returncode and check:
        die(f'{shlex.join(str(c) for c in command)}: {(done.stderr or done.stdout).strip()[-500:]}')
    return done.stdout if check else done


# The fixed identity of commits that the scripts make, so that the same series gives the same commit ids anywhere
COMMITTER = {'name': 'v7.3.y series', 'email': 'series@localhost', 'date': '2026-01-01T00:00:00Z'}

# A user's git configuration must change neither what is applied nor what is exported
GIT_ENV = {'GIT_CONFIG_GLOBAL': os.devnull, 'GIT_CONFIG_NOSYSTEM': '1', 'GIT_ATTR_NOSYSTEM': '1', 'LC_ALL': 'C.UTF-8',
           'GIT_COMMITTER_NAME': COMMITTER['name'], 'GIT_COMMITTER_EMAIL': COMMITTER['email'], 'GIT_EDITOR': 'false'}
GIT_SET = ['safe.directory=*', 'core.hooksPath=/dev/null', 'core.attributesFile=/dev/null', 'core.excludesFile=/dev/null',
           'core.autocrlf=false', 'core.eol=lf', 'core.safecrlf=false', 'core.abbrev=auto', 'core.quotePath=true',
           'core.fsmonitor=false', 'core.whitespace=', 'commit.gpgSign=false', 'tag.gpgSign=false', 'gc.auto=0',
           'maintenance.auto=false', 'advice.detachedHead=false', 'color.ui=false', 'i18n.commitEncoding=utf-8',
           'i18n.logOutputEncoding=utf-8', 'apply.whitespace=nowarn', 'am.keepcr=false', 'am.threeWay=false',
           'am.messageId=false', 'mailinfo.scissors=false', 'rerere.enabled=false', 'merge.conflictStyle=merge',
           'merge.renames=true', 'merge.directoryRenames=conflict', 'notes.displayRef=', 'log.showSignature=false']


def git_command(*arguments):
    return ['git', *(word for setting in GIT_SET for word in ('-c', setting)), *map(str, arguments)]


def git_env(**more):
    # an outer git (a hook, rebase --exec) exports variables that would redirect ours: None removes them
    return {**{name: None for name in os.environ if name.startswith('GIT_')}, **GIT_ENV, **more}


def git(*arguments, cwd=None, env=None, check=True, stdin=None):
    """git's stdout in linux/ (or cwd), whatever the user's configuration."""
    return output(git_command(*arguments), cwd=cwd or LINUX, env=git_env(**(env or {})), check=check, stdin=stdin)


def load_record(arch):
    """guest/ARCH.toml as a dictionary."""
    path = TOP / 'guest' / f'{arch}.toml'
    if not path.exists():
        known = ' '.join(sorted(p.stem for p in path.parent.glob('*.toml') if p.stem != 'tests'))
        die(f'no architecture {arch} (known: {known})')
    with open(path, 'rb') as file:
        try:
            return tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            die(f'{shown(path)}: {error}')
