# SPDX-License-Identifier: GPL-2.0-only
"""--results FILE: writes test results as KTAP (.ktap), JUnit's XML (.xml) or KernelCI's JSON
(.json).

The standard library writes the XML, because Debian's python3-junitparser only works with Debian's
Python. The kernel's own kunit_json converts the KTAP to JSON.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from kit.errors import KitError
from kit.paths import LINUX, shown
from kit.process import say
from kit.test import verdict
from kit.test.verdict import Report, Result
from kit.vm import guest
from kit.vm.guest import Outcome


@dataclass(frozen=True)
class Ended:
    """A guest and the results of its tests."""

    kernel: str
    arch: str
    results: list[Result]


def ended_of(kernel: str, arch: str, said: Report, ended: Outcome) -> Ended:
    """Combines a verdict.Report and the guest's Outcome. A lost guest or a kernel splat adds a
    failed result."""
    found = said.results()
    if ended.status in (guest.LOST, guest.SPLAT):
        found.append(
            verdict.Result(
                'guest', 'guest', verdict.FAILED, ended.message, tuple(ended.detail.splitlines())
            )
        )
    return Ended(kernel, arch, found)


def programs(boot: Ended) -> list[tuple[str, list[Result]]]:
    """Returns [(program, [Result])] of a boot."""
    return [
        (name, list(several))
        for name, several in groupby(boot.results, key=lambda result: result.program)
    ]


def plain(text: str) -> str:
    """Returns the text without control characters, and without #, which begins a KTAP directive."""
    return re.sub(r'[^ -\x22\x24-\uffff]+', ' ', text).strip()


def group(name: str, lines: Sequence[str], good: bool, number: int) -> list[str]:
    """Returns the lines of a test with subtests. The lines of the subtests are indented; the line
    with the test's own result comes last."""
    deeper = [f'    {line}' for line in lines]
    return [*deeper, f'{"ok" if good else "not ok"} {number} {plain(name)}']


def plan(name: str, count: int) -> list[str]:
    return ['KTAP version 1', f'# Subtest: {plain(name)}', f'1..{count}']


def name_in(result: Result) -> str:
    """Returns a result's name within its program. It must differ from the program's name.
    Otherwise, a parser would mistake the result for the end of the program's results."""
    return (
        plain(result.name)
        if plain(result.name) not in ('', plain(result.program))
        else 'the program'
    )


def result_lines(number: int, result: Result, name: str) -> list[str]:
    """Returns the lines of a result, preceded by its log."""
    said = [plain(line) for line in ([result.why] if result.why else []) + list(result.log)]
    word = 'not ok' if result.word == verdict.FAILED else 'ok'
    skip = f' # SKIP {plain(result.why)}' if result.word == verdict.SKIPPED else ''
    # the colon prevents log lines from being parsed as results
    return [*(f'# : {line}' for line in said if line), f'{word} {number} {name}{skip}']


def good(results: Sequence[Result]) -> bool:
    return all(result.word != verdict.FAILED for result in results)


def ktap(boots: Sequence[Ended]) -> str:
    """Returns KTAP with three levels: boots, programs, results."""
    whole = ['KTAP version 1', f'1..{len(boots)}']
    for number, boot in enumerate(boots, 1):
        inside = programs(boot)
        lines = plan(boot.kernel, len(inside))
        for place, (name, several) in enumerate(inside, 1):
            if [result.name for result in several] == [name]:
                lines += result_lines(place, several[0], plain(name))
                continue
            below = plan(name, len(several))
            for count, result in enumerate(several, 1):
                below += result_lines(count, result, name_in(result))
            lines += group(name, below, good(several), place)
        whole += group(boot.kernel, lines, good(boot.results), number)
    return '\n'.join([*whole, ''])


def junit(boots: Sequence[Ended]) -> str:
    """Returns JUnit's XML. Each boot is a testsuite, and each program is a class of testcases."""
    top = ElementTree.Element('testsuites')
    for boot in boots:
        words = [result.word for result in boot.results]
        suite = ElementTree.SubElement(
            top,
            'testsuite',
            {
                'name': boot.kernel,
                'tests': str(len(words)),
                'failures': str(words.count(verdict.FAILED)),
                'skipped': str(words.count(verdict.SKIPPED)),
            },
        )
        for result in boot.results:
            case = ElementTree.SubElement(
                suite, 'testcase', {'classname': plain(result.program), 'name': name_in(result)}
            )
            if result.word == verdict.FAILED:
                failure = ElementTree.SubElement(case, 'failure', {'message': plain(result.why)})
                failure.text = '\n'.join(map(plain, result.log))
            elif result.word == verdict.SKIPPED:
                ElementTree.SubElement(case, 'skipped', {'message': plain(result.why)})
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding='unicode', xml_declaration=True) + '\n'


def kernelci(boots: Sequence[Ended], tree: Path = LINUX) -> str:
    parsed, _ = verdict.parse(ktap(boots).splitlines(), tree)
    import kunit_json  # verdict.parse() has added its folder to sys.path

    archs = sorted({boot.arch for boot in boots})
    text = kunit_json.get_json_result(parsed, kunit_json.Metadata(arch=' '.join(archs)))
    return f'{text}\n'


WRITERS: dict[str, Callable[[Sequence[Ended]], str]] = {
    '.ktap': ktap,
    '.xml': junit,
    '.json': kernelci,
}


def write(path: Path, boots: Sequence[Ended], tree: Path = LINUX) -> None:
    text = kernelci(boots, tree) if path.suffix == '.json' else WRITERS[path.suffix](boots)
    try:
        path.write_text(text, encoding='utf-8')
    except OSError as error:
        raise KitError(f'{path}: {error.strerror}') from error
    say(f'results: {shown(path)}')
