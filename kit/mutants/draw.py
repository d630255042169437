# SPDX-License-Identifier: GPL-2.0-only
"""make mutants DRAW=N [TOPIC=]: seeds one bug at a time, until N bugs have changed a kernel. For
each bug, alters or deletes a line of code, which is drawn at random from one or all topics. The
topic's boots of `make test` must detect each bug. A bug in generic code is tried on one
architecture after the other, until a boot detects it.

Run `make test` first: it verifies that these boots pass without a bug.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kit import model, topics
from kit.build import kernel
from kit.build.trees import Tree
from kit.errors import KitError
from kit.lock import Lock
from kit.model import Boot
from kit.mutants import lines
from kit.mutants.lines import Drawn
from kit.mutants.making import clean, made, run_boot, take_back, tree_of
from kit.process import say
from kit.test import plan
from kit.test.verdict import Counts, closing
from kit.vm import guest

NO_KERNEL, SAME_KERNEL, SURVIVED = 'does not compile', 'changes no code', 'survived'
NOT_COUNTED = (NO_KERNEL, SAME_KERNEL)  # such bugs are neither detected nor missed


def boots_of(topic: str, arch: str) -> list[Boot]:
    """Returns the boots that `make test` makes for the topic on the architecture."""
    tables = [(name, table) for name, table in topics.boots() if name == topic]
    return [boot for boot in plan.merged(tables) if boot.arch == arch and not boot.full]


def archs_of(each: Drawn) -> list[str]:
    """Returns the architectures on which the topic's boots may detect the bug, in the order in
    which they are tried."""
    every = (machine.arch for machine in model.machines())
    archs = [each.arch] if each.line.path.startswith('arch/') else [each.arch, *every]
    return [arch for arch in dict.fromkeys(archs) if boots_of(each.topic, arch)]


def image_of(boot: Boot, tree: Tree) -> tuple[Path, bytes]:
    """Builds the boot's kernel in the tree, and returns (path of the kernel, its contents)."""
    image = kernel.build(boot.machine, boot.flavour, tree)
    return image, image.read_bytes()


def noticed(boots: Sequence[Boot], tree: Tree, right: dict[str, bytes]) -> str:
    """Returns the outcome for the bug in the tree. `right` is {flavour: the kernel without the
    bug}."""
    outcome = SAME_KERNEL
    for boot in boots:
        try:
            image, content = image_of(boot, tree)
        except KitError:
            return NO_KERNEL
        if content == right[boot.flavour]:
            continue
        said, status, message = run_boot(boot, image, 'mutant-drawn')
        if failed := said.failed():
            return f'caught by {failed[0].program} ({boot.flavour})'
        if status != guest.OK:
            return f'caught: {message.splitlines()[0]}'
        outcome = SURVIVED
    return outcome


def try_on(each: Drawn, arch: str) -> str:
    """Returns the outcome for the bug on the architecture."""
    tree = tree_of(arch)
    with Lock(tree.root):
        kernels = right(each.topic, arch)
        try:
            made(tree, each.diff, each.name)
            return noticed(boots_of(each.topic, arch), tree, kernels)
        finally:
            take_back(tree)


def try_one(each: Drawn) -> str:
    """Returns the outcome for the bug. The first architecture that detects it decides. A bug that
    survived on one architecture counts even if it does not compile for another."""
    outcome = SAME_KERNEL
    for arch in archs_of(each):
        said = try_on(each, arch)
        if said == SAME_KERNEL or (said == NO_KERNEL and outcome.startswith(SURVIVED)):
            continue
        outcome = f'{said}, {arch}'
        if said != SURVIVED:
            break
    return outcome


@cache
def right(topic: str, arch: str) -> dict[str, bytes]:
    """Returns {flavour: the kernel without a bug} for the topic's boots."""
    tree = clean(arch)
    return {boot.flavour: image_of(boot, tree)[1] for boot in boots_of(topic, arch)}


def main(topic: str, count: int, seed: int, deleted: bool) -> int:
    say(f'mutants: DRAW={count} SEED={seed}')
    counts = Counter[str]()
    for each in lines.drawn([topic] if topic else topics.order(), seed, deleted):
        if not archs_of(each):
            continue
        outcome = try_one(each)
        print(f'  {each.name}: {outcome}', flush=True)
        if outcome.startswith(NOT_COUNTED):
            continue
        counts['failed' if outcome.startswith(SURVIVED) else 'passed'] += 1
        if counts.total() == count:
            break
    print(closing(Counts(counts)))
    return guest.FAILED if counts['failed'] else guest.OK
