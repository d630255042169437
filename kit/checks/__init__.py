#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Everything static about series/ and about the scripts; closes with `N passed, N failed, N skipped`.

check [PATTERN...]   only the checks whose name contains one of the patterns; CHECK= is the same
"""
import functools
import hashlib
import os
import re
import shutil
import sys
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kernel
sys.path.append(str(Path(__file__).resolve().parent.parent / 'tests'))
import mailed    # noqa: E402
from common import BUILD, LINUX, TOP, die, git, git_command, git_env, load_record, output, run, say
from series import (apply, base_file, base_record, base_text, format_patches, patch_files, remove, same_bytes, topics, touched,
                    version_of)

WORK = BUILD / 'check'                      # what the checks write down
TREE = BUILD / 'bisect' / 'linux'           # a whole worktree, the patches checked out one after the other
ARCH = 'x86_64'
FLAVOUR = {ARCH: 'plain', 'arm64': 'plain'}  # what `make test` boots, so it is compiled once; of others the debug kernel
# Debian's sparse 0.6.4 lacks __typeof_unqual__, for which v7.3's build would leave sparse out without a word
SPARSE = 'sparse -D__typeof_unqual__=__typeof__'
FULL = os.environ.get('FULL', '') not in ('', '0')


class Failed(Exception):
    """A check failed; the message says what, one finding a line."""


class Skipped(Exception):
    """A check has nothing to look at; the message says why."""


class Series:
    """series/ applied from scratch: the commits."""

    def __init__(self):
        self.folder = BUILD / 'check.tmp'
        try:
            self.tips = apply(self.folder)
        finally:
            remove(self.folder)
        self.last = list(self.tips.values())[-1]
        self.commits = git('rev-list', '--reverse', f'base..{self.last}').split()
        self.files = touched('base', self.last)
        self.new = touched('base', self.last, '--diff-filter=A')
        self.patches = [path for topic in topics() for path in patch_files(topic)]
        below, self.archs = 'base', {}    # topic: the architectures whose files it touches
        for topic, tip in self.tips.items():
            self.archs[topic] = {arch_of(path) for path in touched(below, tip)}
            below = tip

    def need_patches(self):
        if not self.patches:
            raise Skipped('no patches in series/')

    def present(self, *suffixes):
        """Touched files that the last commit has."""
        gone = touched('base', self.last, '--diff-filter=D')
        return [path for path in self.files if path.endswith(suffixes) and path not in gone]


series = None    # set by the check `applies`
checked_out = None


def checkout(commit):
    """The commit in TREE, with nothing else in it."""
    global checked_out
    if checked_out == commit:
        return
    if not (TREE / '.git').exists():
        shutil.rmtree(TREE, ignore_errors=True)
        git('worktree', 'prune')
        TREE.parent.mkdir(parents=True, exist_ok=True)
        part = TREE.with_name('linux.part')
        shutil.rmtree(part, ignore_errors=True)
        run('bisect: worktree', git_command('worktree', 'add', '-q', '--force', '--detach', part, 'base'), cwd=LINUX, env=git_env())
        git('worktree', 'move', part, TREE)
    git('checkout', '-q', '--force', '--detach', commit, cwd=TREE)
    git('clean', '-q', '-ffdx', cwd=TREE)
    checked_out = commit


def each(function, items):
    """function of each item, as many at a time as there are CPUs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def new_lines(base, tip):
    """Findings in tip that base has not, line numbers apart."""
    def plain(line):
        return re.sub(r':\d+(:\d+)?(?=[: ])', '', line)
    rest, found = Counter(map(plain, base)), []
    for line in tip:
        if rest[plain(line)]:
            rest[plain(line)] -= 1
        else:
            found.append(line)
    return found


def guest_archs():
    return sorted(file.stem for file in (TOP / 'guest').glob('*.toml') if file.stem != 'tests')


def arch_of(path):
    """The architecture whose build has this file."""
    for arch in guest_archs():
        if path.startswith((f'arch/{arch}/', f'tools/testing/selftests/{arch}/')):
            return arch
    return ARCH


# The checks, in the order they run: name, function

def check_applies():
    """series/ applies to the base from scratch."""
    global series
    series = Series()


def check_round_trip():
    """Exporting what was applied gives the same bytes."""
    series.need_patches()
    version, wanted = version_of(git('show', 'base:Makefile')), base_record()[0]
    if version != wanted:
        raise Skipped(f'the base is {version}, the bytes are those of {wanted}')
    folder, names, below = WORK / 'export', {}, 'base'
    shutil.rmtree(folder, ignore_errors=True)
    for topic, tip in series.tips.items():
        (folder / topic).mkdir(parents=True)
        format_patches(below, tip, folder / topic)
        names[topic] = sorted(path.name for path in (folder / topic).iterdir())
        below = tip
    different = same_bytes(folder, names)
    if base_text(series.last) != (TOP / 'BASE').read_text():
        different.append('BASE')
    if different:
        raise Failed('\n'.join(f'{name} is not what an export gives (make export)' for name in different))


def check_plain_am():
    """`git am series/*/*.patch` works without our scripts: the order of the files is the order of the topics, no CR."""
    series.need_patches()
    for path in series.patches:
        if b'\r' in path.read_bytes():
            raise Failed(f'{path.name} has a carriage return: git am would strip it')


def check_checkpatch():
    """checkpatch --strict: 0 errors, 0 warnings, 0 checks; the sign-off is added by whoever mails, `binding` looks after new files."""
    series.need_patches()
    checkout(series.last)

    def findings(path):
        done = output(['perl', 'scripts/checkpatch.pl', '--strict', '--show-types', '--color=never', '--no-summary', '--terse',
                       '--ignore=MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF,FILE_PATH_CHANGES', path], cwd=TREE, env={'HOME': WORK}, check=False)
        if done.returncode or done.stdout.strip():
            return [line.replace(str(TOP) + '/', '') for line in done.stdout.splitlines()] or [f'{path.name}: {done.stderr.strip()}']
        return []

    bad = sum(each(findings, series.patches), [])
    if bad:
        raise Failed('\n'.join(bad))


def check_kernel_doc():
    """kernel-doc -none -Wall on touched files says nothing that it does not say of the base."""
    files = series.present('.c', '.h')
    if not files:
        raise Skipped('no C file touched')
    checkout(series.last)
    old = WORK / 'base'
    shutil.rmtree(old, ignore_errors=True)

    def findings(path):
        content, before = base_file(path), []
        if content is not None:
            (old / path).parent.mkdir(parents=True, exist_ok=True)
            (old / path).write_bytes(content)
            before = kernel_doc(path, old)
        return new_lines(before, kernel_doc(path, TREE))

    found = sum(each(findings, files), [])
    if found:
        raise Failed('\n'.join(found))


def kernel_doc(path, folder):
    done = output([sys.executable, TREE / 'scripts/kernel-doc', '-none', '-Wall', path], cwd=folder, check=False)
    return list(dict.fromkeys(line for line in (done.stdout + done.stderr).splitlines() if line.strip()))


def doc_says(commit, pages):
    """What docutils and the kernel's own checkers of references and of ABI descriptions say of these files."""
    checkout(commit)
    said = []
    # what Sphinx and the kernel's extensions add is not known to docutils
    unknown = r'Unknown (directive type|interpreted text role)|No (directive|role) entry'
    for path in pages:
        if path.endswith('.rst'):
            done = output(['rst2pseudoxml', '--report=2', '--halt=5', path], cwd=TREE, check=False)
            said += [line for line in done.stderr.splitlines() if re.match(r'\S+:\d*:? \(', line) and not re.search(unknown, line)]
    references = output(['perl', 'tools/docs/documentation-file-ref-check'], cwd=TREE, check=False)
    said += [f'{line} does not exist' for line in (references.stdout + references.stderr).splitlines() if line.split(': ')[0] in pages]
    for folder in {str(Path(path).parent) for path in pages if path.startswith('Documentation/ABI/')}:
        found = output([sys.executable, 'tools/docs/get_abi.py', '--dir', folder, 'validate'], cwd=TREE, check=False)
        said += [line for line in (found.stdout + found.stderr).splitlines() if any(path in line for path in pages)]
    return said


def check_docs():
    """docutils, documentation-file-ref-check and get_abi.py say nothing new of the pages and files that are touched."""
    if not series.files:
        raise Skipped('no files touched')
    if not shutil.which('rst2pseudoxml'):
        raise Failed('rst2pseudoxml is missing (make deps)')
    said = doc_says(series.last, series.present(''))
    if said:
        said = new_lines(doc_says('base', [path for path in series.present('') if base_file(path) is not None]), said)
    if said:
        raise Failed('\n'.join(said))


def check_spelling():
    """codespell finds nothing in what the series adds, in its messages and in the repository's own texts."""
    if not shutil.which('codespell'):
        raise Failed('codespell is missing (make deps)')
    folder, added = WORK / 'spelling', git('diff', '-U0', '--diff-filter=AM', 'base', series.last)
    texts = {'added': '\n'.join(line[1:] for line in added.splitlines() if line.startswith('+')),
             **{path.name: path.read_text(errors='replace').partition('\n---\n')[0] for path in series.patches},
             **{str(name).replace('/', '!'): (TOP / name).read_text(errors='replace') for name in own_files() if name.name != 'COPYING'}}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, errors='replace')
    # EXTRAVERSION is the kernel's
    done = output(['codespell', '--check-hidden', '--ignore-words-list=extraversion', '.'], cwd=folder, env={'HOME': folder}, check=False)
    if done.returncode:
        raise Failed(done.stdout.replace('!', '/') + done.stderr)


def check_maintainers():
    """The sections of MAINTAINERS that the series writes match files and stand where they belong."""
    series.need_patches()
    if 'MAINTAINERS' not in series.files:
        raise Skipped('MAINTAINERS is not touched')
    checkout(series.last)
    base, mine = (base_file('MAINTAINERS', commit).decode() for commit in ('base', series.last))
    before = set(base.split('\n\n'))
    # of upstream's own sections the patterns are upstream's, and to test them all takes minutes
    sections = '\n\n'.join(part for part in mine.split('\n\n') if part not in before)
    found = self_test('patterns', sections) + new_lines(self_test('sections', base), self_test('sections', mine))
    git('checkout', '-q', '--', 'MAINTAINERS', cwd=TREE)
    if found:
        raise Failed('\n'.join(found))


def self_test(kind, text):
    """get_maintainer's findings in a MAINTAINERS of this text; it allows no other option, so the file is put in place."""
    (TREE / 'MAINTAINERS').write_text(f'{text.rstrip()}\n')
    done = output(['perl', 'scripts/get_maintainer.pl', f'--self-test={kind}'], cwd=TREE, check=False)
    return (done.stdout + done.stderr).splitlines()


def check_binding():
    """Every new file belongs to a section of MAINTAINERS other than THE REST."""
    if not series.new:
        raise Skipped('no new files')
    checkout(series.last)

    def bound(path):
        text = output(['perl', 'scripts/get_maintainer.pl', '--no-git', '--no-git-fallback', '--no-email', '--no-l',
                       '--sections', '-f', path], cwd=TREE)
        return {part.strip().splitlines()[0] for part in text.split('\n\n') if part.strip()} - {'THE REST'}

    bad = [f'{path} is bound in MAINTAINERS by THE REST alone' for path, titles in zip(series.new, each(bound, series.new)) if not titles]
    if bad:
        raise Failed('\n'.join(bad))


def sources(commit, arch):
    """What a build for the architecture reads of a commit: no pages, no tests, nothing of the other guests' architectures."""
    others = {f'arch/{kernel.source_arch(load_record(other))}' for other in guest_archs()} - {f'arch/{kernel.source_arch(load_record(arch))}'}
    lines = git('ls-tree', commit, '--', 'arch/', 'tools/', 'Documentation/Kconfig') + git('ls-tree', commit)
    return [line for line in lines.splitlines()
            if line.split('\t')[1] not in {'arch', 'tools', 'tools/testing', 'Documentation', 'MAINTAINERS', *others}]


def remember(*what):
    """A key for something that was checked: those that passed are remembered, a second check looks at what is new."""
    return hashlib.sha256(repr(what).encode()).hexdigest()


def build_key(commit, arch):
    files = [path.read_bytes() for path in (*sorted((TOP / 'guest/config').iterdir()), TOP / 'guest' / f'{arch}.toml')]
    return remember(sources(commit, arch), files, output([f'{load_record(arch)["cross_compile"]}gcc', '--version']))


def passed_before(key):
    try:
        return key in (WORK / 'built').read_text().split()
    except OSError:
        return False


def passed_now(key):
    with open(WORK / 'built', 'a') as file:
        file.write(f'{key}\n')


def gcc_says(log):
    """gcc's and sparse's lines in a log, as paths of the kernel's tree."""
    lines = [re.sub(r'^(\.\./)+linux/', '', line.replace(f'{TREE}/', '')) for line in log.read_text(errors='replace').splitlines()]
    return [line for line in lines if re.match(r'\S+:\d+(:\d+)?: (warning|error):', line)]


def subject(commit):
    return git('log', '-1', '--format=%s', commit).strip()


def check_bisect():
    """Every patch compiles on its own, without a warning in a file that the series touches; every topic builds."""
    series.need_patches()
    below = 'base'
    for number, commit in enumerate(series.commits, 1):
        name, topic = series.patches[number - 1].name, series.patches[number - 1].parent.name
        paths = touched(below, commit)
        below = commit
        # generic code too has to build where its topic belongs
        for arch in sorted({ARCH} | series.archs[topic]):
            key = build_key(commit, arch)
            # a whole kernel once a topic: linking takes most of the time, and a header may be included everywhere
            parts = [] if FULL or key == build_key(series.tips[topic], arch) else folders_of(topic, arch, commit)
            done_key = remember(key, parts)
            if not passed_before(done_key):
                say(f'bisect: {number} of {len(series.commits)}, {arch}: {subject(commit)}')
                build_patch(name, commit, arch, parts)
                passed_now(done_key)
            suites = [suite for suite in load_record(arch)['selftests']
                      if any(path.startswith(f'tools/testing/selftests/{suite}/') for path in paths)]
            suites_key = remember(git('rev-parse', f'{commit}^{{tree}}'), suites, key)
            if suites and not passed_before(suites_key):
                checkout(commit)
                kernel.selftests(arch, 'bisect', suites)
                passed_now(suites_key)


def folders_of(topic, arch, commit):
    """Where a topic's code is: the architecture's own, and the folders of the others' C files."""
    own = f'arch/{kernel.source_arch(load_record(arch))}/'
    files = [path for patch in patch_files(topic) for path in re.findall(r'^\+\+\+ b/(.*\.c)$', patch.read_text(), re.M)]
    return [own, *sorted({f'{Path(path).parent}/' for path in files if not path.startswith(('arch/', 'tools/'))
                          and base_file(path, commit) is not None})]


def build_patch(name, commit, arch, parts):
    checkout(commit)
    flavour = FLAVOUR.get(arch, 'debug')
    try:
        kernel.build(arch, flavour, 'bisect', parts)
    except SystemExit as error:
        raise Failed(f'{name} does not build for {arch} (log above)') from error
    said = [line for line in gcc_says(kernel.out(arch, flavour, 'bisect') / 'log') if line.split(':')[0] in series.files]
    if said:
        raise Failed('\n'.join([f'{name}:', *said]))


def compiler_warnings(commit, files, arch):
    """What W=1 and sparse say of these files, as {tool: lines}, configured as the debug kernel (which has all tests)."""
    checkout(commit)
    record = load_record(arch)
    kernel.configure(arch, 'debug', 'bisect')
    folder = kernel.out(arch, 'debug', 'bisect')
    objects = [path[:-2] + '.o' for path in files]
    for path in objects:
        (folder / path).unlink(missing_ok=True)
    command, env = kernel.make(record, folder, TREE, '-k', 'W=1', 'C=1', f'CHECK={SPARSE}', *objects)
    log = WORK / f'warnings-{arch}-{"base" if commit == "base" else "series"}.log'
    status = run(f'W=1 and sparse of {len(objects)} files ({arch}, {"base" if commit == "base" else "series"})', command, log=log,
                 env=env, check=False)
    if 'C=1 specified, but' in log.read_text(errors='replace'):
        raise Failed(f'sparse is too old for this kernel: {log.relative_to(TOP)}')
    return status, gcc_says(log), log


def kernel_files():
    """The C files of the kernel itself that are touched."""
    return [path for path in series.present('.c') if not path.startswith(('tools/', 'samples/', 'scripts/', 'Documentation/'))]


def check_warnings():
    """gcc W=1 and sparse say nothing new of any touched file."""
    files = kernel_files()
    if not files:
        raise Skipped('no C file of the kernel touched')
    found, before = [], {}
    archs = {arch: [path for path in files if arch_of(path) == arch] for arch in sorted(set(map(arch_of, files)))}
    for arch, mine in archs.items():    # all of the base first: one checkout
        if old := [path for path in mine if base_file(path) is not None]:
            before[arch] = compiler_warnings('base', old, arch)[1]
    for arch, mine in archs.items():
        status, after, log = compiler_warnings(series.last, mine, arch)
        new = [line for line in new_lines(before.get(arch, []), after) if line.split(':')[0] in series.files]
        if status and not new:
            raise Failed(f'the touched files do not compile with W=1: {log.relative_to(TOP)}')
        found += new
    if found:
        raise Failed('\n'.join(found))


def small_configs():
    """scripts/compile.toml: the configurations whose topic is in series/order."""
    try:
        configs = tomllib.loads((TOP / 'scripts/compile.toml').read_text())['config']
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise Failed(f'scripts/compile.toml: {error}') from error
    known = {'name', 'arch', 'kernel_arch', 'compiler', 'symbols', 'without', 'also', 'topic', 'full'}
    for config in configs:
        if unknown := config.keys() - known:
            raise Failed(f'scripts/compile.toml: {" ".join(unknown)}: no such key (known: {" ".join(sorted(known))})')
        config['symbols'] = {name: value or 'y' for name, _, value in (word.partition('=') for word in config['symbols'].split())}
    return [config for config in configs if config.get('topic', topics()[0]) in topics() and (FULL or not config.get('full'))]


def compile_touched(config, commit, files):
    """(exit status, findings, log) of these files of the commit in a configuration."""
    checkout(commit)
    name, record = config['name'], {**load_record(config['arch']), **config}
    # one folder for all configurations of a compiler: the kernel's own tools are built once
    folder = kernel.out(record['kernel_arch'], f'small{"-" + config["compiler"] if "compiler" in config else ""}', 'bisect')
    folder.mkdir(parents=True, exist_ok=True)
    merged, log = folder / 'merged.config', folder / f'{name}-{"base" if commit == "base" else "series"}.log'
    merged.write_text(''.join(f'CONFIG_{symbol}={value}\n' for symbol, value in config['symbols'].items()))
    compiler = ['CC=' + 'ccache ' * bool(shutil.which('ccache')) + config['compiler']] if 'compiler' in config else []
    command, env = kernel.make(record, folder, TREE, *compiler, 'allnoconfig')
    run(None, command, log=folder / 'config.log', env={**env, 'KCONFIG_ALLCONFIG': merged})
    final = dict(re.findall(r'^CONFIG_(\w+)=(.+)$', (folder / '.config').read_text(), re.M))
    lost = [f'{symbol}={value}' for symbol, value in config['symbols'].items() if final.get(symbol, 'n') != value]
    if lost and commit == series.last:    # the base has not the series' own
        raise Failed(f'{name}: not in .config: {" ".join(lost)}')
    objects = [f'{path[:-2]}.o' for path in [*files, *config.get('also', [])]]
    for path in objects:    # only what is compiled says something
        (folder / path).unlink(missing_ok=True)
    command, env = kernel.make(record, folder, TREE, *compiler, '-k', *objects)
    status = run(f'compile {name}: {len(objects)} files of {"the base" if commit == "base" else subject(commit)}',
                 command, log=log, env=env, check=False)
    unmet = [line for line in (folder / 'config.log').read_text(errors='replace').splitlines() if 'unmet direct dependencies' in line]
    return status, [*unmet, *gcc_says(log), *unresolved(folder, objects, record)], log


def unresolved(folder, objects, record):
    """What linking would find: a module's call that nobody exports, 64-bit divisions of 32-bit kernels."""
    found = []
    for path in objects:
        if not (folder / path).exists():
            continue
        names = output([f'{record["cross_compile"]}nm', '-u', '--format=just-symbols', folder / path], check=False).stdout.split()
        found += [f'{path}: {name}' for name in names if re.fullmatch(r'__u?(div|mod|divmod)[dt]i[34]', name)]
        command = (folder / path).with_name(f'.{Path(path).name}.cmd').read_text()
        # of a module of several objects the others may have it
        if ' -DMODULE ' in command and re.search(r'KBUILD_BASENAME=(\S+) .*KBUILD_MODNAME=\1 ', command):
            # some are made by macros, one by modpost
            found += [f'{path}: {name} is not exported' for name in names
                      if name not in exported(checked_out) and not re.match('__this_module$|__SC[TK]__|param_ops_', name)]
    return found


@functools.cache
def exported(_):
    """Every name that the checked-out tree exports somewhere."""
    return set(re.findall(r'EXPORT\w*SYMBOL\w*\((\w+)', git('grep', '-hF', 'EXPORT_', '--', '*.[chS]', cwd=TREE)))


def commits_for(config):
    """Those that are compiled in a configuration: the last, with FULL=1 each one from its topic on."""
    if not FULL or config.get('full'):
        return [series.last]
    below = dict(zip(topics(), ['base', *series.tips.values()]))
    return git('rev-list', '--reverse', f'{below[config.get("topic", topics()[0])]}..{series.last}').split()


def check_compile():
    """The touched files compile in small configurations (scripts/compile.toml), and nothing new is said; FULL=1: after each patch, with clang too."""
    found = []
    for config in small_configs():
        ours = [path for path in kernel_files() if not path.startswith(tuple(config.get('without', ())))
                and (not path.startswith('arch/') or arch_of(path) == config['arch'])]
        compiler = config.get('compiler', f'{load_record(config["arch"])["cross_compile"]}gcc')
        if not shutil.which(compiler):
            raise Failed(f'{compiler} is missing (make deps{" FULL=1" if config.get("full") else ""})')
        for commit in commits_for(config):
            files = git('ls-tree', '-r', '--name-only', commit, '--', *ours).splitlines() if ours else []
            key = remember('compile', sources(commit, config['arch']), config, files, output([compiler, '--version']))
            if passed_before(key) or not files:
                continue
            status, said, log = compile_touched(config, commit, files)
            if said:
                before = compile_touched(config, 'base', [path for path in files if base_file(path) is not None])[1]
                said = new_lines(before, said)
            if status and not said:
                said = [f'make ends with {status}: {log.relative_to(TOP)}']
            if said:
                found += [f'{config["name"]}, {subject(commit)}:', *said]
            else:
                passed_now(key)
    if found:
        raise Failed('\n'.join(found))


def own_files():
    """The repository's own files, patches apart."""
    names = output(['git', 'ls-files', '-co', '--exclude-standard'], cwd=TOP, check=False)
    if names.returncode:    # an unpacked archive
        names = output(['find', '.', '-path', './linux', '-prune', '-o', '-path', './build', '-prune', '-o', '-type', 'f', '-print'],
                       cwd=TOP, check=False)
    names = [Path(name) for name in names.stdout.split('\n') if name and not name.endswith(('.patch', '.png', '.svg'))]
    return [name for name in names if (TOP / name).is_file() and '__pycache__' not in name.parts]


def first_line(name):
    with open(TOP / name, errors='replace') as file:
        return file.readline()


def check_python():
    """The Python programs compile, and pyflakes finds nothing."""
    files = [name for name in own_files() if name.suffix == '.py' or 'python3' in first_line(name)]
    for name in files:
        try:
            compile((TOP / name).read_text(), str(name), 'exec')
        except SyntaxError as error:
            raise Failed(f'{name}:{error.lineno}: {error.msg}') from error
    if not shutil.which('pyflakes3'):
        raise Failed('pyflakes3 is missing (make deps)')
    done = output(['pyflakes3', *files], cwd=TOP, check=False)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)


def check_shell():
    """shellcheck finds nothing in the shell programs."""
    files = [name for name in own_files() if re.match(r'#!.*\b(sh|ash|bash)\b', first_line(name))]
    if not shutil.which('shellcheck'):
        raise Failed('shellcheck is missing (make deps)')
    done = output(['shellcheck', *files], cwd=TOP, check=False)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)


def check_contents():
    """Own files name no machine's path and no package mirror; programs carry their licence."""
    bad = []
    for name in own_files():
        text = (TOP / name).read_text(errors='replace')
        program = name.parts[0] in ('scripts', 'guest', '.ci', 'tests', 'Makefile')
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r'(^|[\s"\'=(:])/(work|home|root)/', line):
                bad.append(f'{name}:{number}: a path of one machine')
            if re.search(r'(?<![\w-])(deb|archive|ftp|mirror)s?[.][a-z.]*(org|net|com)\b', line) or \
                    program and name.name != 'splats.allowed' and re.search(r'https?:/[/]', line):
                bad.append(f'{name}:{number}: a host')
        if program and text and 'SPDX-License-Identifier: ''GPL-2.0-only' not in text[:400]:
            bad.append(f'{name}: no SPDX-License-Identifier: ''GPL-2.0-only')
    if bad:
        raise Failed('\n'.join(bad))


def check_tables():
    """README's tables are those of bench/."""
    done = output([sys.executable, TOP / 'scripts' / 'table', '--check', TOP / 'README.md'], check=False)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)


def check_mail():
    """Each topic mailed to a server on loopback arrives whole, threaded, signed off, and applies to the same trees."""
    series.need_patches()
    if found := mailed.check(series.tips):
        raise Failed('\n'.join(found))


def check_own_tests():
    """The scripts' own tests of bad input, on a toy kernel."""
    tests = TOP / 'tests' / 'verbs.py'
    done = output([sys.executable, tests], check=False)
    if done.returncode:
        raise Failed((done.stdout + done.stderr)[-3000:])


CHECKS = [('python', check_python), ('shell', check_shell), ('contents', check_contents), ('tables', check_tables),
          ('own-tests', check_own_tests), ('applies', check_applies), ('round-trip', check_round_trip),
          ('plain-am', check_plain_am), ('checkpatch', check_checkpatch), ('kernel-doc', check_kernel_doc), ('docs', check_docs),
          ('spelling', check_spelling), ('maintainers', check_maintainers), ('binding', check_binding), ('mail', check_mail),
          ('compile', check_compile),
          ('bisect', check_bisect), ('warnings', check_warnings)]


def main():
    patterns = sys.argv[1:] or os.environ.get('CHECK', '').split()
    chosen = [(name, function) for name, function in CHECKS
              if not patterns or any(pattern in name for pattern in patterns)]
    if not chosen:
        die(f'no check of that name (there are: {" ".join(name for name, _ in CHECKS)})')
    if not (LINUX / '.git').exists():
        die('no linux/ here: make check')
    WORK.mkdir(parents=True, exist_ok=True)
    counts, failed = Counter(), []
    for name, function in chosen:
        start, word, text = time.monotonic(), 'passed', ''
        try:
            if series is None and function not in (check_python, check_shell, check_contents, check_tables, check_own_tests, check_applies):
                try:
                    check_applies()
                except SystemExit as error:
                    raise Failed('series/ does not apply') from error
            function()
        except Failed as error:
            word, text = 'failed', str(error)
        except Skipped as error:
            word, text = 'skipped', str(error)
        except SystemExit:    # a die() below said why
            word, text = 'failed', 'see above'
        counts[word] += 1
        if word == 'failed':
            failed.append(name)
        print(f'{word:7} {time.monotonic() - start:6.1f} s  {name}: {function.__doc__.strip().splitlines()[0]}', flush=True)
        for line in text.splitlines()[:60]:
            print(f'    {line}', flush=True)
    if failed:
        print(f'failed: {" ".join(failed)}')
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
