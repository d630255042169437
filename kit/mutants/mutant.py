# SPDX-License-Identifier: GPL-2.0-only
"""series/TOPIC/mutants/NAME.diff: one seeded bug, as a diff with one line of context. The diff
applies to the whole series. Above it, the file has lines in the form of a mail's header:

    Breaks: the effect of the bug, in one sentence
    Test: the test that must fail, as named in a topic.toml
    Boot: ARCH FLAVOUR, and words that select one of the boots with this test: iommu=NAME, cpus=N,
        append=WORD or qemu=WORD. WORD is a word of the boot's `append` or `qemu`, as in
        append=kvm-arm.mode=nvhe or qemu=cortex-a76. `Boot: um` runs a KUnit suite in user-mode
        Linux, which is much faster.
    Fails: a regular expression that must match a result, its output, or a line of the console
    Equivalent: the reason why no test can detect the bug. Test and Boot are then omitted.
"""

import email.parser
import re
from dataclasses import dataclass
from pathlib import Path

from kit import model, topics
from kit.errors import KitError
from kit.model import Boot
from kit.mutants import uml
from kit.paths import SERIES, shown
from kit.test import plan

KEYS = ('Breaks', 'Test', 'Boot', 'Fails', 'Equivalent')
BOOT = rf'{uml.NAME}|\w+ [\w+]+( (iommu|cpus)=\w+| (append|qemu)=\S+)*'


@dataclass(frozen=True)
class Mutant:
    topic: str
    name: str
    breaks: str
    test: str
    boot: str
    fails: str
    equivalent: str
    diff: str

    @property
    def arch(self) -> str:
        return self.boot.split()[0]

    @property
    def flavour(self) -> str:
        return self.boot.split()[1]

    @property
    def machine(self) -> dict[str, str]:
        """Returns the options that the boot must have, as {option: value}. They are the words of
        `Boot:` after ARCH and FLAVOUR."""
        return dict(word.split('=', 1) for word in self.boot.split() if '=' in word)


def read(topic: str, path: Path) -> Mutant:
    def wrong(why: str) -> KitError:
        return KitError(f'{shown(path)}: {why}')

    message = email.parser.Parser().parsestr(path.read_text())
    if unknown := set(message) - set(KEYS):
        raise wrong(f'{min(unknown)}: no such key (known: {" ".join(KEYS)})')
    values = {key.lower(): ' '.join(message.get(key, '').split()) for key in KEYS}
    found = Mutant(topic=topic, name=path.stem, diff=str(message.get_payload()), **values)
    if not found.breaks:
        raise wrong('Breaks: is missing')
    if '\n@@ ' not in found.diff:
        raise wrong('there is no diff after an empty line')
    if bool(found.equivalent) == bool(found.test and found.boot):
        raise wrong('expected either Test: and Boot:, or Equivalent:')
    if found.boot and not re.fullmatch(BOOT, found.boot):
        raise wrong(
            f'Boot: {found.boot}: expected "ARCH FLAVOUR [iommu=NAME] [cpus=N] [append=WORD] '
            f'[qemu=WORD]" or "{uml.NAME}"'
        )
    try:
        re.compile(found.fails)
    except re.error as error:
        raise wrong(f'Fails: {error}') from error
    return found


def of(topic: str) -> list[Mutant]:
    """Returns the topic's mutants, sorted by name."""
    return [read(topic, path) for path in sorted((SERIES / topic / 'mutants').glob('*.diff'))]


def all_of_them() -> list[Mutant]:
    return [mutant for topic in topics.order() for mutant in of(topic)]


def has(boot: Boot, wanted: dict[str, str]) -> bool:
    """Returns whether the boot's machine has the wanted options."""
    own = {
        'iommu': [boot.options.iommu or boot.machine.iommu],
        'cpus': [str(boot.options.cpus or (1 if boot.options.icount else 2))],
        'append': boot.options.append.split(),
        'qemu': boot.options.qemu,
    }
    return all(value in own[key] for key, value in wanted.items())


def boot_of(mutant: Mutant) -> Boot | None:
    """Returns a boot that runs only the mutant's test. Boots that do not need FULL=1 are preferred.
    None means user-mode Linux, which can run every KUnit suite of `make test`."""
    if mutant.arch == uml.NAME:
        suites = {test.kunit for _, boot in topics.boots() for test in boot.test}
        if mutant.test not in suites - {''}:
            raise KitError(
                f'series/{mutant.topic}/mutants/{mutant.name}.diff: no KUnit suite {mutant.test}'
            )
        return None
    model.machine(mutant.arch)
    found = plan.chosen(mutant.arch, mutant.flavour, f'^{re.escape(mutant.test)}$', full=True)
    found = [boot for boot in found if not boot.on_base and has(boot, mutant.machine)]
    if not found:
        raise KitError(
            f'series/{mutant.topic}/mutants/{mutant.name}.diff: no boot "{mutant.boot}" has the '
            f'test {mutant.test}'
        )
    return min(found, key=lambda boot: boot.full)
