# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit test --kselftest SUITE[:PROGRAM] [--linux PATH]: runs upstream's selftests in a
guest. They may come from any tree, and do not depend on topics.

The kernel is built with the suite's own `config`. Without PROGRAM, the guest runs all programs that
`make run_tests` of the suite runs.
"""

import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kit import model
from kit.build import kernel
from kit.build.selftest import BELOW, install_headers, sources_of, suite_command
from kit.build.trees import PATCHED, Tree, source, stamp_of
from kit.errors import KitError, fail
from kit.lock import Lock
from kit.model import Limits, Machine, Options, Skip, Test
from kit.paths import LINUX, shown
from kit.process import Environment, Word, output, say, step
from kit.source import user_tree
from kit.test import results, verdict
from kit.test.verdict import closing
from kit.vm import guest

# Variables of a suite's Makefile. RUN: the programs that `make run_tests` runs. MADE: files that
# the build makes. KEPT: files of the source.
RUN = ('TEST_GEN_PROGS', 'TEST_CUSTOM_PROGS', 'TEST_PROGS')
MADE = ('TEST_GEN_PROGS', 'TEST_GEN_PROGS_EXTENDED', 'TEST_GEN_FILES', 'TEST_CUSTOM_PROGS')
KEPT = ('TEST_PROGS', 'TEST_PROGS_EXTENDED', 'TEST_FILES')
INTERPRETERS = {'sh', 'ash', 'busybox'}  # those in the guest
SECONDS = 45  # kselftest's default limit per program; a suite's `settings` override it
PATIENCE = 10  # multiplies limits, because an emulated CPU is slower
SKIPS = (Skip('', 'the program gives the reason'),)


Packed = dict[str, dict[str, Path]]  # {suite: {name in it: file}}


def parser_tree() -> Path:
    """Returns the tree with the KTAP parser: linux/ or, if it does not exist, the user's tree."""
    return LINUX if (LINUX / 'Makefile').exists() else user_tree.alone().linux


def asked(text: str, tree: Tree) -> dict[str, set[str]]:
    """Returns {suite: {programs}} from words SUITE[:PROGRAM]. An empty set means all programs."""
    found: dict[str, set[str]] = {}
    for word in text.replace(',', ' ').split():
        suite, _, program = word.strip('/').partition(':')
        if not (source(tree) / BELOW / suite / 'Makefile').is_file():
            raise KitError(f'no suite {suite} in {shown(source(tree))}/{BELOW}')
        found.setdefault(suite, set()).update({program} if program else set())
    return found or fail('KSELFTEST= names no suite')


def folder_of(machine: Machine, tree: Tree) -> Path:
    """Returns the folder in which suites are built."""
    return tree.root / 'build' / f'{machine.arch}-kselftest'


class Suite:
    """A suite's folder in the tree, and its built files."""

    def __init__(self, machine: Machine, tree: Tree, name: str) -> None:
        self.machine, self.tree, self.name = machine, tree, name
        self.source, self.top = source(tree) / BELOW / name, folder_of(machine, tree)
        self.made, self.log = self.top / name, self.top / f'{name.replace("/", "-")}.log'
        self.made.mkdir(parents=True, exist_ok=True)
        self.lists = self.read_lists()

    def command(self, *goals: Word) -> tuple[list[Word], Environment]:
        return suite_command(self.machine, self.tree, self.name, self.top, *goals)

    def read_lists(self) -> dict[str, list[str]]:
        """Returns {variable: names} for the variables of the suite's Makefile that list files."""
        names = dict.fromkeys((*MADE, *KEPT))
        rule = '; '.join(f"echo 'list {name} $({name})'" for name in names)
        command, env = self.command(f'--eval=kit-lists: ; @{rule}', 'kit-lists')
        text = output(command, env=env)
        found = dict(re.findall(r'^list (\w+) ?(.*)$', text, re.M))
        return {
            name: [word.removeprefix(f'{self.made}/') for word in found.get(name, '').split()]
            for name in names
        }

    def programs(self) -> list[str]:
        """Returns the programs that are executed when the whole suite is run."""
        return list(dict.fromkeys(name for each in RUN for name in self.lists[each]))

    def goals(self, wanted: set[str]) -> list[Word]:
        """Returns the goals of make. If all wanted programs are compiled, only they are built. If
        one is a script, the whole suite is built, as the script may call any program."""
        compiled = {name for each in MADE for name in self.lists[each]}
        known = compiled | {name for each in KEPT for name in self.lists[each]}
        for name in sorted(wanted - known):
            raise KitError(
                f'selftests/{self.name} has no program {name} (it has: '
                f'{" ".join(sorted(known)) or "none"})'
            )
        if wanted and wanted <= compiled:
            return [self.made / name for name in sorted(wanted)]
        return ['-k', 'all']

    def build(self, goals: Sequence[Word]) -> None:
        """Builds the goals. If the sources have changed, deletes all built files first. A program
        that fails to build is therefore missing afterwards."""
        stamp = stamp_of(self.machine, self.name, sources_of(self.machine, self.tree))
        mark = self.made / '.stamp'
        if not mark.exists() or mark.read_text() != stamp:
            shutil.rmtree(self.made)
            self.made.mkdir()
            mark.write_text(stamp)
        command, env = self.command(*goals)
        if step(
            f'build {self.machine.arch} selftests/{self.name}',
            command,
            log=self.log,
            env=env,
            check=False,
        ):
            say(f'selftests/{self.name} was not built completely: {shown(self.log)}')

    def files(self) -> dict[str, Path]:
        """Returns {name: path} for all existing files of the suite."""
        found: dict[str, Path] = {}
        for names, folder in (MADE, self.made), (KEPT, self.source):
            for name in (each for key in names for each in self.lists[key]):
                path = folder / name
                inside = path.rglob('*') if path.is_dir() else [path]
                found |= {
                    str(file.relative_to(folder))
                    if file.is_relative_to(folder)
                    else file.name: file
                    for file in inside
                    if file.is_file()
                }
        return found

    def seconds(self) -> int:
        """Returns the time limit of a program in seconds; 0 means no limit."""
        settings = self.source / 'settings'
        text = settings.read_text() if settings.is_file() else ''
        found = re.search(r'^timeout=(\d+)$', text, re.M)
        return PATIENCE * (int(found[1]) if found else SECONDS)


def lacks(path: Path) -> str:
    """Returns the interpreter that a script needs and the guest lacks. It is empty if the guest has
    the interpreter."""
    with open(path, 'rb') as file:
        first = file.readline(200)
    if not first.startswith(b'#!'):
        return ''
    words = first[2:].decode(errors='replace').split()
    name = Path(words[0]).name if words else 'sh'
    if name == 'env' and len(words) > 1:
        name = Path(next((word for word in words[1:] if not word.startswith('-')), '')).name
    return '' if name in INTERPRETERS else name


def command_of(suite: Suite, name: str) -> str:
    seconds = suite.seconds()
    limit = f'timeout {seconds} ' if seconds else ''
    return f'(cd /tmp/kselftest/{suite.name} && {limit}./{name})'


def tests_of(
    suite: Suite, wanted: set[str], files: dict[str, Path]
) -> tuple[list[Test], dict[str, str]]:
    """Returns (tests, {program: reason why it cannot run}) for the wanted programs of the suite."""
    tests: list[Test] = []
    names, cannot = sorted(wanted) or suite.programs(), {}
    if not names:
        cannot[suite.name] = f'its Makefile has no programs for {suite.machine.kernel_arch}'
    for name in names:
        whole = f'{suite.name}:{name}'
        if name not in files:
            cannot[whole] = 'it was not built'
        elif lack := lacks(files[name]):
            cannot[whole] = f'the guest has no {lack}'
        else:
            tests.append(
                Test(
                    name=whole,
                    command=command_of(suite, name),
                    tap=None,
                    skips=SKIPS,
                    timeout=suite.seconds(),
                )
            )
    return tests, cannot


def pack(path: Path, suites: Packed) -> Path:
    """Writes an archive for the guest. `suites` is {name: {name within the suite: file}}."""
    part = path.with_suffix('.part')
    with tarfile.open(part, 'w') as archive:
        for suite, files in suites.items():
            for name, file in sorted(files.items()):
                archive.add(file, f'{suite}/{name}', recursive=False)
    part.rename(path)
    return path


def prepared(
    machine: Machine, tree: Tree, wanted: dict[str, set[str]]
) -> tuple[list[Test], dict[str, str], Path]:
    """Builds the wanted programs, and returns (tests, {program: reason why it cannot run},
    archive)."""
    top = folder_of(machine, tree)
    tests: list[Test] = []
    cannot: dict[str, str] = {}
    packed: Packed = {}
    with Lock(top):
        install_headers(machine, tree, top)
        for name, programs in wanted.items():
            suite = Suite(machine, tree, name)
            suite.build(suite.goals(programs))
            files = packed[name] = suite.files()
            more, lost = tests_of(suite, programs, files)
            tests, cannot = [*tests, *more], {**cannot, **lost}
        return tests, cannot, pack(top / 'kselftest.tar', packed)


def main(
    kselftest: str,
    arch: str = 'x86_64',
    flavour: str = 'plain',
    linux: str = '',
    cpus: int = 0,
    iommu: str = '',
    tell: Callable[[results.Ended], object] | None = None,
) -> int:
    """Runs the kselftest and returns the exit status. `tell` is called with the results."""
    machine, tree = model.machine(arch), user_tree.use_alone(linux) if linux else PATCHED
    wanted = asked(kselftest, tree)
    tests, cannot, archive = prepared(machine, tree, wanted)
    for name, why in cannot.items():
        print(f'cannot run {name}: {why}')
    if not tests:
        raise KitError('nothing to run')
    image = kernel.build(machine, f'{flavour}@{",".join(sorted(wanted))}', tree)
    # longer than any program's limit, so that the guest is not lost first
    seconds = [test.timeout for test in tests]
    limits = Limits(silence=max(seconds) + 60 if all(seconds) else 3600, total=7200)
    options = Options(cpus=cpus, iommu=iommu, append=guest.PATIENT, limits=limits)
    said = verdict.Report(tests, parser_tree())
    job = verdict.job_of(
        tests, 'mkdir /tmp/kselftest && tar -xf /job/kselftest.tar -C /tmp/kselftest'
    )
    label = f'{arch} {flavour}'
    say(f'{label}: {len(tests)} test program(s)')
    ended = guest.run_guest(
        machine, image, job, [archive], options, name=f'kselftest-{arch}', on_line=said.line
    )
    counts = said.verdict()
    if ended.status in (guest.LOST, guest.SPLAT):
        print(f'FAILED {label}: {ended.message}\n{ended.detail}')
        counts['failed'] += 1
    print(f'{label} ({ended.accelerator}): {ended.seconds:.0f} s in all; {shown(ended.folder)}')
    if tell:
        tell(results.ended_of(label, arch, said, ended))
    print(closing(counts))
    return ended.status or (guest.FAILED if counts['failed'] else guest.OK)
