# SPDX-License-Identifier: GPL-2.0-only
"""guest/*.toml and series/TOPIC/topic.toml as frozen dataclasses with a field for each key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from kit.errors import KitError
from kit.paths import GUEST, SERIES, shown
from kit.typed import NOT_IN_FILE, Table, given, load, read_toml

Words = tuple[str, ...]


# guest/ARCH.toml


@dataclass(frozen=True)
class Iommu:
    """Options that an IOMMU adds to a guest."""

    qemu: Words = ()
    append: str = ''


@dataclass(frozen=True)
class Machine:
    """The guest of an architecture; guest/x86_64.toml explains the keys."""

    arch: str = field(metadata=NOT_IN_FILE)  # the file's name
    kernel_arch: str  # make's ARCH=
    host: str  # uname -m
    debian_arch: str
    cross_compile: str
    cross_packages: Words
    target: str  # the target of make that builds the image
    image: str
    qemu: str
    qemu_package: str
    append: str  # the kernel's command line
    options: Words
    cpu_tcg: str
    cpu_kvm: str
    memory: str
    devices: Words  # behind the IOMMU; a guest without an IOMMU has none
    options_kvm: Words = ()  # used with KVM, in place of `options`
    append_icount: str = ''
    debian_suite: str = ''  # Debian's release with packages of this architecture; empty: the host's
    foreign_symbols: Words = ()  # symbols in suites' `config` that are for other architectures
    full: bool = False  # install, build and check it only with FULL=1 or ARCH=
    iommu: str = 'none'
    iommus: Mapping[str, Iommu] = field(default_factory=dict)

    @property
    def gcc(self) -> str:
        return f'{self.cross_compile}gcc'

    @property
    def source_arch(self) -> str:
        """Returns the name of the architecture's folder below arch/. ARCH=x86_64 and ARCH=i386 are
        aliases of x86."""
        return {'x86_64': 'x86', 'i386': 'x86'}.get(self.kernel_arch, self.kernel_arch)

    def known_iommus(self) -> dict[str, Iommu]:
        return {'none': Iommu(), **self.iommus}

    def iommu_named(self, name: str) -> Iommu:
        """Returns the IOMMU of this name, or the machine's default for an empty name."""
        known = self.known_iommus()
        if (name or self.iommu) not in known:
            raise KitError(f'no IOMMU {name or self.iommu} (known: {" ".join(known)})')
        return known[name or self.iommu]


def archs() -> list[str]:
    """Returns the architectures that have a guest."""
    return sorted(path.stem for path in GUEST.glob('*.toml'))


@cache
def machine(arch: str) -> Machine:
    """Returns the machine that guest/ARCH.toml describes."""
    if arch not in archs():
        raise KitError(f'no architecture {arch} (known: {" ".join(archs())})')
    path = GUEST / f'{arch}.toml'
    return load(Machine, read_toml(path), str(shown(path)), arch=arch)


def machines() -> list[Machine]:
    return [machine(arch) for arch in archs()]


def usual_archs(full: bool = False) -> list[str]:
    """Returns the architectures that are built and checked by default. If `full` is set, also
    returns those with `full = true`."""
    return [each.arch for each in machines() if full or not each.full]


# boots and tests


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds. The defaults are long enough for TCG."""

    boot: int = 180  # until init runs
    silence: int = 300  # without output on results or console, while the job runs
    total: int = 1800  # of the job
    shutdown: int = 60  # from the exit status to the exit of QEMU


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a boot. They add to, or replace, the settings in guest/ARCH.toml."""

    cpus: int = 0  # 0: two CPUs, or one with icount
    memory: str = ''  # empty: the machine's
    append: str = ''  # more words for the kernel's command line
    icount: bool = False  # guest time = instructions executed; TCG, one host thread
    prealloc: bool = False  # allocate the guest's memory before it starts
    nodes: int = 1  # NUMA nodes
    iommu: str = ''  # one of the machine's [iommus]; empty: its default
    devices: Words | None = None  # None: those of the machine, if the guest has an IOMMU
    qemu: Words = ()  # more words for QEMU's command line
    splats: Words = ()  # regular expressions of console lines that the boot's tests provoke
    limits: Limits = field(default=Limits(), metadata=NOT_IN_FILE)


@dataclass(frozen=True)
class Skip:
    """Results that may be skipped."""

    test: str  # a regular expression that matches their names
    reason: str


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test in a boot. In a topic.toml, it has exactly one of `program`, `kunit` and `reproducer`.
    A test that kit/test/kselftest.py makes has a `command` instead."""

    program: str = ''  # SUITE/PROGRAM
    kunit: str = ''  # a suite
    reproducer: str = ''  # reproduce/NAME.c, or the module NAME/
    name: str = ''
    arguments: str = ''
    environment: str = ''
    tap: bool | None = True  # False: only the exit status counts; None: decided by the output
    timeout: int = 360  # seconds of silence
    skips: tuple[Skip, ...] = ()
    base: str = ''  # a regular expression that matches the bug's output on the base (FULL=1)
    topic: str = field(default='', metadata=NOT_IN_FILE)
    file: str = field(default='', metadata=NOT_IN_FILE)  # a reproducer's name in the guest
    command: str = field(default='', metadata=NOT_IN_FILE)


@dataclass(frozen=True, kw_only=True)
class BootTable(Options):
    """[[boot]] of a topic.toml."""

    arch: str
    flavour: str
    full: bool = False  # boot only with FULL=1
    alone: bool = False  # no other guest runs at the same time
    variants: tuple[Table, ...] = ({},)  # one boot with each of these options added
    programs: Words = ()  # tests whose only result is the exit status
    test: tuple[Test, ...] = ()

    def options(self, variant: Table) -> Options:
        own = {name: getattr(self, name) for name in Options.__dataclass_fields__}
        return Options(**{**own, **variant})


@dataclass(frozen=True, kw_only=True)
class Boot:
    """One boot of a guest for these tests."""

    machine: Machine
    flavour: str
    options: Options
    tests: tuple[Test, ...]
    full: bool = False
    alone: bool = False
    on_base: bool = False  # boot the base kernel, on which the tests must fail

    @property
    def arch(self) -> str:
        return self.machine.arch


# series/TOPIC/topic.toml


@dataclass(frozen=True)
class FrontRow:
    """Selects the row of bench.json that has these fields, and gives the text for it."""

    text: str  # with {base} and {patched}
    fields: Table

    @classmethod
    def from_table(cls, table: Table, where: str) -> 'FrontRow':
        text = table.get('text')
        if not isinstance(text, str):
            raise KitError(f'{where}: text is missing')
        return cls(text, {key: value for key, value in table.items() if key != 'text'})


@dataclass(frozen=True)
class Front:
    """The topic's row of the front page: kit/bench/front.py."""

    problem: str = ''
    rows: tuple[FrontRow, ...] = ()
    worst: FrontRow | None = None
    state: str = ''


@dataclass(frozen=True, kw_only=True)
class Compile:
    """A small configuration in which the topic's files are compiled."""

    name: str
    arch: str
    symbols: str
    kernel_arch: str = ''  # empty: the machine's
    cross_compile: str = ''
    compiler: str = ''
    without: Words = ()  # touched files that this configuration does not compile
    also: Words = ()  # further files to compile
    full: bool = False
    topic: str = field(default='', metadata=NOT_IN_FILE)


@dataclass(frozen=True, kw_only=True)
class Posting:
    """A set of patches that are mailed together: series/TOPIC/NAME/."""

    name: str
    tree: str  # the maintainers' tree
    branch: str
    needs: Words = ()  # earlier postings of the topic
    waits: Words = ()  # topics and patch subjects that must be upstream first
    state: str  # ready, RFC, or what it waits for
    ask: Mapping[str, str] = field(default_factory=dict)  # {people: question}
    cc: Words = ()  # people whom neither get_maintainer nor a patch names


@dataclass(frozen=True, kw_only=True)
class Topic:
    name: str = field(metadata=NOT_IN_FILE)
    after: Words = ()
    front: Front = Front()
    single: bool = False
    needs: Mapping[str, Words] = field(default_factory=dict)
    posting: tuple[Posting, ...] = ()
    suites: Mapping[str, Words] = field(default_factory=dict)
    programs: Mapping[str, Words] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    uml: str = ''  # symbols for its KUnit suites in user-mode Linux (mutants)
    boot: tuple[BootTable, ...] = ()
    compile: tuple[Compile, ...] = ()


def check_test(test: Test, where: str) -> None:
    kinds = [test.program, test.kunit, test.reproducer]
    if sum(map(bool, kinds)) != 1:
        raise KitError(f'{where}: a test has exactly one of program, kunit, reproducer')
    for text in (test.base, *(skip.test for skip in test.skips)):
        try:
            re.compile(text)
        except re.error as error:
            raise KitError(f'{where}: {text}: {error}') from error


def boot_of(table: Table, where: str) -> BootTable:
    """Checks a [[boot]] of a topic.toml; returns it as a BootTable."""
    found = load(BootTable, table, where)
    if 'variants' in table:
        variants = tuple(given(Options, each, f'{where}: variants') for each in found.variants)
        found = load(BootTable, {**table, 'variants': []}, where)
        found = type(found)(**{**vars(found), 'variants': variants})
    for test in found.test:
        check_test(test, where)
    return found


@cache
def topic(name: str) -> Topic:
    """Returns a topic's topic.toml. A topic without this file has no boots."""
    path = SERIES / name / 'topic.toml'
    if not path.exists():
        return Topic(name=name)
    table, where = read_toml(path), str(shown(path))
    found = load(Topic, {**table, 'boot': [], 'compile': []}, where, name=name)
    boots = tuple(
        boot_of(each, f'{where}: boot[{number}]')
        for number, each in enumerate(table.get('boot', []))
    )
    compiled = tuple(
        load(Compile, each, f'{where}: compile[{number}]', topic=name)
        for number, each in enumerate(table.get('compile', []))
    )
    return Topic(**{**vars(found), 'boot': boots, 'compile': compiled})
