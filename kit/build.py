# SPDX-License-Identifier: GPL-2.0-only
"""Configures and builds a kernel; knows where each tree has its source and its outputs.

A root R has its source in R/linux and its outputs in R/build/ARCH-FLAVOUR, so the way from one to
the other is the same everywhere and ccache shares objects between the trees.
"""
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time

from common import BUILD, LINUX, TOP, die, git, git_command, git_env, load_record, run, say, shown

ROOTS = {'patched': TOP, 'base': BUILD / 'base', 'bisect': BUILD / 'bisect', 'sweep': BUILD / 'sweep'}
WORKTREES = {'base': 'base', 'sweep': 'HEAD'}    # of which commit; whoever wants others changes files in them
FLAVOURS = ('plain', 'debug', 'trace')    # +NAME adds the architecture's fragment ARCH+NAME
CONFIGS = TOP / 'guest' / 'config'


def root(tree):
    if tree not in ROOTS:
        die(f'no tree {tree} (known: {" ".join(ROOTS)})')
    return ROOTS[tree]


def source(tree):
    """The tree's source folder; a worktree is made when it is not there."""
    folder = root(tree) / 'linux'
    if not (LINUX / '.git').exists():
        die('linux/ is not there: run scripts/base')
    if tree in WORKTREES:
        checkout(tree, folder)
    if not (folder / 'Makefile').exists():
        die(f'{shown(folder)} is not there')
    return folder


def checkout(tree, folder):
    wanted = git('rev-parse', '--verify', f'{WORKTREES[tree]}^{{commit}}').strip()
    if (folder / '.git').exists():
        if git('rev-parse', 'HEAD', cwd=folder).strip() != wanted:
            run(f'{tree}: checkout', git_command('checkout', '-q', '--force', '--detach', wanted), cwd=folder, env=git_env())
        return
    git('worktree', 'prune')
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # under another name first: an interrupted checkout must not pass for a whole one
    part = folder.with_name('linux.part')
    shutil.rmtree(part, ignore_errors=True)
    run(f'{tree}: worktree', git_command('worktree', 'add', '-q', '--force', '--detach', part, wanted), cwd=LINUX, env=git_env())
    git('worktree', 'move', part, folder)


def out(arch, flavour, tree):
    return root(tree) / 'build' / f'{arch}-{flavour}'


def make(record, folder, src, *goals, compile_with_ccache=True):
    """(command, environment) of a make in the tree; the same bytes whoever builds."""
    cross = record['cross_compile']
    if not shutil.which(f'{cross}gcc'):
        die(f'{cross}gcc is missing: run scripts/deps')
    env = {'KBUILD_BUILD_TIMESTAMP': 'Thu Jan 1 00:00:00 UTC 2026', 'KBUILD_BUILD_USER': 'build',
           'KBUILD_BUILD_HOST': 'guest', 'KBUILD_BUILD_VERSION': '1', 'LOCALVERSION': '', 'LC_ALL': 'C',
           'KCFLAGS': None, 'MAKEFLAGS': None, 'MAKELEVEL': None, 'KBUILD_OUTPUT': None, 'KCONFIG_CONFIG': None}
    command = ['make', '-C', src, f'-j{os.cpu_count()}', f'O={folder}', f'ARCH={record["kernel_arch"]}',
               f'CROSS_COMPILE={cross}']
    if compile_with_ccache and shutil.which('ccache'):
        env |= {'CCACHE_BASEDIR': TOP, 'CCACHE_DEPEND': '1'}    # the dependencies kbuild asks for spare a preprocessor run
        command += [f'CC=ccache {cross}gcc', 'HOSTCC=ccache gcc']
    return [*command, *goals], env


def fragments(record, arch, flavour, src):
    """[(file, {symbol: value})], later ones override."""
    flavour, *variants = flavour.split('+')
    if flavour not in FLAVOURS:
        die(f'no flavour {flavour} (known: {" ".join(FLAVOURS)})')
    variants = [f'{arch}+{variant}' for variant in variants]
    # series*: what the series adds
    files = [src / 'tools/testing/selftests' / name / 'config' for name in record['selftests']]
    files += [CONFIGS / f'{name}.config'
              for name in ('common', arch, flavour, f'{arch}-{flavour}', *variants, 'series', f'series-{flavour}', f'series-{arch}-{flavour}')]
    found = []
    for file in files:
        if not file.exists():
            if file.stem in ('common', flavour, arch, *variants):
                die(f'{shown(file)} is missing')
            continue
        wanted = {}
        for number, line in enumerate(file.read_text().splitlines(), 1):
            line = line.split('#')[0].strip()
            match = re.fullmatch(r'CONFIG_(\w+)=(.+)', line)
            if match:
                wanted[match[1]] = match[2]
            elif line:
                die(f'{shown(file)}:{number}: not CONFIG_NAME=value: {line}')
        if file.parent != CONFIGS:    # the initrd has no modules
            wanted = {symbol: 'y' if value == 'm' else value for symbol, value in wanted.items()
                      if symbol not in record.get('foreign_symbols', [])}
        found.append((file, wanted))
    return found


def known_symbols(src, symbols):
    """Those of the symbols that some Kconfig file of the tree defines."""
    if not symbols:
        return set()
    pattern = rf'^[[:space:]]*(menu)?config ({"|".join(symbols)})$'
    done = git('grep', '-hE', pattern, '--', '*Kconfig*', cwd=src, check=False)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def configure(arch, flavour, tree):
    """Writes .config; every requested symbol is in it as requested, or this is an error."""
    record, src, folder = load_record(arch), source(tree), out(arch, flavour, tree)
    requested = {}
    for file, wanted in fragments(record, arch, flavour, src):
        if file.name.startswith('series') and tree != 'patched':
            known = known_symbols(src, wanted)    # the base has none of them, half a series some
            wanted = {symbol: value for symbol, value in wanted.items() if symbol in known}
        requested.update({symbol: (value, file) for symbol, value in wanted.items()})
    folder.mkdir(parents=True, exist_ok=True)
    merged = folder / 'merged.config'
    merged.write_text(''.join(f'CONFIG_{symbol}={value}\n' for symbol, (value, _) in sorted(requested.items())))
    command, env = make(record, folder, src, 'allnoconfig')
    run(None, command, log=folder / 'config.log', env={**env, 'KCONFIG_ALLCONFIG': merged})

    final = dict(re.findall(r'^CONFIG_(\w+)=(.+)$', (folder / '.config').read_text(), re.M))
    wrong = {symbol: entry for symbol, entry in requested.items() if final.get(symbol, 'n') != entry[0]}
    known = known_symbols(src, wanted_known := list(wrong)) if wrong else set()
    for symbol in wanted_known if wrong else []:
        value, file = wrong[symbol]
        why = f'is {final.get(symbol, "n")} (its dependencies?)' if symbol in known else 'does not exist in this kernel'
        say(f'{shown(file)}: CONFIG_{symbol}={value} was requested but {why}')
    if wrong:
        (folder / '.config').unlink()
        die(f'{tree} {arch} {flavour}: {len(wrong)} requested symbol(s) missing from .config')


def state(src, *paths):
    """A digest of the source (or of some paths in it) as it is: HEAD's trees and whatever is not committed."""
    unlocked = {'GIT_OPTIONAL_LOCKS': '0'}    # whoever works in the tree is not disturbed
    digest = hashlib.sha256()
    digest.update(git('ls-tree', 'HEAD', '--', *paths, cwd=src, env=unlocked).encode())
    changed = git('status', '--porcelain', '-z', '--no-renames', '-uall', '--', *paths, cwd=src, env=unlocked)
    for entry in sorted(filter(None, changed.split('\0'))):
        file = src / entry[3:]
        digest.update(entry.encode(errors='surrogateescape'))
        digest.update(file.read_bytes() if file.is_file() else b'')
    return digest.hexdigest()


def stamp_of(record, *inputs):
    """A digest of what a build depends on: the inputs and the compiler."""
    compiler = shutil.which(f'{record["cross_compile"]}gcc')
    stat = os.stat(compiler) if compiler else None
    wanted = *inputs, record['kernel_arch'], record['target'], compiler, stat and (stat.st_size, stat.st_mtime_ns)
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


class Lock:
    """One build at a time in an output folder."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, open(folder / '.lock', 'w')

    def __enter__(self):
        for second in range(3600):
            try:
                return fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not second:
                    say(f'{shown(self.folder)}: waiting for the build that runs there')
                time.sleep(1)
        return die(f'{shown(self.folder)}: another build has held it for an hour')

    def __exit__(self, *_):
        self.file.close()


def build(arch, flavour, tree, parts=()):
    """Builds unless nothing changed; returns the image. Or compiles only parts, folders of the tree."""
    record, src, folder = load_record(arch), source(tree), out(arch, flavour, tree)
    image, stamp = folder / record['image'], folder / '.stamp'
    try:
        with Lock(folder):
            header = CONFIGS / f'{arch}-{flavour}.h'
            extra = header.read_text() if header.exists() else ''
            now = stamp_of(record, state(src), fragments(record, arch, flavour, src), extra)
            if image.exists() and stamp.exists() and stamp.read_text() == now:
                return image
            stamp.unlink(missing_ok=True)
            configure(arch, flavour, tree)
            command, env = make(record, folder, src, *(parts or [record['target']]))
            if extra:
                # beside the objects: a path that differs from tree to tree would keep ccache from sharing them
                first = folder / 'first.h'
                if not first.exists() or first.read_text() != extra:
                    first.write_text(extra)
                command.append(f'KCFLAGS=-include {first.name}')
            # x86's piggy.S takes the compressed kernel in with .incbin, which ccache does not look into: of two kernels that are
            # compressed to the same length the second had the first one's code. A macro that nobody reads tells them apart.
            command.append(f'AFLAGS_piggy.o=-DSTAMP={now}')
            run(f'build {tree} {arch} {flavour}{" (parts)" if parts else ""}', command, log=folder / 'log', env=env)
            if not parts:
                stamp.write_text(now)
    except OSError as error:
        die(f'{shown(folder)}: {error.strerror}')
    return image


def source_arch(record):
    """The folder of arch/; ARCH=x86_64 is a name for x86."""
    return {'x86_64': 'x86'}.get(record['kernel_arch'], record['kernel_arch'])


def suite_of(tree, program):
    """SUITE/PROGRAM as (suite, program): the suite is what has a Makefile, kvm of kvm/arm64/…"""
    words = program.split('/')
    for count in range(len(words) - 1, 0, -1):
        suite = '/'.join(words[:count])
        if (source(tree) / 'tools/testing/selftests' / suite / 'Makefile').exists():
            return suite, '/'.join(words[count:])
    return die(f'linux/ has no selftest suite for {program}: is the series applied?')


def selftests(arch, tree, names, programs=()):
    """Builds selftests statically for the guest; {name: folder with its programs}.

    Suites that the record lists are built whole, or what it names of them; of others (large, or with
    libraries that a cross compiler lacks) only the programs, as SUITE/PROGRAM.
    """
    record, src, folder = load_record(arch), source(tree), root(tree) / 'build' / f'{arch}-selftests'
    built = {name: folder / name for name in names}

    def goals_of(name):
        if name in record.get('programs', {}):
            return [str(built[name] / program) for program in record['programs'][name]
                    if (src / f'tools/testing/selftests/{name}/{program}.c').exists()]
        if name in record['selftests']:
            return ['all']
        return sorted(str(folder / program) for program in programs if suite_of(tree, program)[0] == name)

    goals = {name: goals_of(name) for name in names}
    with Lock(folder):
        # what programs and installed headers are made of
        sources = state(src, 'tools/testing/selftests', 'tools/include', 'include/uapi', f'arch/{source_arch(record)}/include/uapi')
        stamps = {name: stamp_of(record, name, goals[name], sources) for name in names}
        wanted = [name for name in names if not (built[name] / '.stamp').exists() or (built[name] / '.stamp').read_text() != stamps[name]]
        if not wanted:
            return built
        command, env = make(record, folder / 'headers', src, 'headers_install')
        run(f'build {tree} {arch} headers', command, log=folder / 'headers.log', env=env)
        for name in wanted:
            built[name].mkdir(parents=True, exist_ok=True)
            (built[name] / '.stamp').unlink(missing_ok=True)
            command, env = make(record, folder / 'headers', src / 'tools/testing/selftests' / name, *goals[name])
            command = [word for word in command if not str(word).startswith('O=')]
            command += [f'OUTPUT={built[name]}', f'KHDR_INCLUDES=-isystem {folder}/headers/usr/include',
                        'EXTRA_CFLAGS=-static', 'LDFLAGS=-static -pthread']
            if name == 'kvm':    # its guests run the program's own text, where it was linked; headers are generated below abs_objdir
                (built[name] / 'tools').mkdir(exist_ok=True)
                command += [f'abs_objdir={built[name]}', 'LDFLAGS=-static -pthread -no-pie']
            run(f'build {tree} {arch} selftests/{name}', command, log=folder / f'{name.replace("/", "-")}.log', env=env)
            (built[name] / '.stamp').write_text(stamps[name])
    return built


def host_is(record):
    return platform.machine() == record['machine']


def qemu_version(record):
    """(major, minor) of the QEMU that boots this architecture; dies when missing or too old."""
    name = record['qemu']
    if not shutil.which(name):
        die(f'{name} is missing: run scripts/deps (Debian package {record["qemu_package"]})')
    try:
        text = subprocess.run([name, '--version'], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        die(f'{name} --version: {error}')
    match = re.search(r'version (\d+)\.(\d+)', text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < (8, 2):
        die(f'{name} is {match[0] if match else "of an unknown version"}; 8.2 or newer is needed: run scripts/deps')
    return version


def release(tree):
    """VERSION.PATCHLEVEL.SUBLEVEL of the tree's Makefile."""
    text = (source(tree) / 'Makefile').read_text()
    return '.'.join(re.search(rf'^{word} = (\d+)$', text, re.M)[1] for word in ('VERSION', 'PATCHLEVEL', 'SUBLEVEL'))
