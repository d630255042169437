# SPDX-License-Identifier: GPL-2.0-only
"""Plans the boots of `make test`. If boots differ only in their tests, they are merged, even if
they belong to different topics.

With FULL=1, a test with the key `base` in topic.toml also runs on the base kernel, where it must
fail: see on_base().
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kit import model, topics
from kit.build import reproducer
from kit.model import Boot, BootTable, Options, Skip, Test
from kit.typed import Table

ELSEWHERE = Skip('', 'the machine differs from topic.toml')
Asked = Iterable[tuple[str, BootTable]]  # (topic, its boot)


def whole(topic: str, test: Test) -> Test:
    """Returns the test with its name filled in. For a reproducer, also fills in the topic and the
    name of its file in the guest."""
    name = test.name or Path(test.program or test.kunit or test.reproducer).name
    if not test.reproducer:
        return replace(test, name=name)
    return replace(
        test, name=name, topic=topic, tap=False, file=reproducer.file_name(topic, test.reproducer)
    )


def tests_of(topic: str, boot: BootTable) -> tuple[Test, ...]:
    """Returns the boot's tests, including its `programs`. A program reports only an exit status."""
    plain = tuple(Test(program=program, tap=False) for program in boot.programs)
    return tuple(whole(topic, test) for test in boot.test + plain)


def on_machine(options: Options, changes: Table) -> Options:
    """Returns the boot's options with the changes of the user. If the new number of CPUs cannot be
    divided among the NUMA nodes, the guest has one node."""
    changed = replace(options, **changes)
    return replace(changed, nodes=1) if changed.cpus % changed.nodes else changed


def merged(asked: Asked, changes: Table | None = None) -> list[Boot]:
    """Merges boots that differ only in their tests. `changes` are {field of Options: value} from
    the user, for example from CPUS=. If there are changes, any test is allowed to report that it
    was skipped."""
    found: dict[object, Boot] = {}
    for topic, table in asked:
        tests = tests_of(topic, table)
        if changes:
            tests = tuple(replace(test, skips=(ELSEWHERE,)) for test in tests)
        for variant in table.variants:
            options = table.options(variant)
            boot = Boot(
                machine=model.machine(table.arch),
                flavour=table.flavour,
                tests=(),
                options=on_machine(options, changes) if changes else options,
                full=table.full,
                alone=table.alone,
            )
            key = boot.arch, boot.flavour, boot.full, boot.alone, boot.options
            known = found.setdefault(key, boot)
            new = tuple(test for test in dict.fromkeys(tests) if test not in known.tests)
            found[key] = replace(known, tests=known.tests + new)
    return list(found.values())


def on_base(asked: Asked) -> list[Boot]:
    """Returns the boots of the base kernel, with the tests that must fail there. These boots are
    not merged, as a failing test may crash the kernel. They run only with FULL=1, because the
    base kernel is built for them alone."""
    found = []
    for topic, boot in asked:
        if tests := tuple(test for test in boot.test if test.base):
            alone = replace(boot, programs=(), test=tests, full=True)
            found += [replace(each, on_base=True) for each in merged([(topic, alone)])]
    return found


def chosen(
    arch: str = '',
    flavour: str = '',
    pattern: str = '',
    full: bool = False,
    changes: Table | None = None,
) -> list[Boot]:
    """Returns the selected boots, with the selected tests. For `changes`, see merged()."""
    boots = merged(topics.boots(), changes) + ([] if changes else on_base(topics.boots()))
    boots = [
        replace(boot, tests=tuple(test for test in boot.tests if re.search(pattern, test.name)))
        for boot in boots
    ]
    return [
        boot
        for boot in boots
        if boot.tests
        and arch in ('', boot.arch)
        and flavour in ('', boot.flavour)
        and (full or not boot.full)
    ]
