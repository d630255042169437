# SPDX-License-Identifier: GPL-2.0-only
"""make mutants DRAW=N [TOPIC=]: seeds one bug at a time, until N bugs have changed a kernel. For
each bug, alters or deletes a line of code, which is drawn at random from one or all topics. The
topic's boots of `make test` must detect each bug.

Run `make test` first: it verifies that these boots pass without a bug.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kit import topics
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

NO_KERNEL, SAME_KERNEL = 'does not compile', 'changes no code'  # such bugs do not count


def boots_of(topic: str, arch: str) -> list[Boot]:
    """Returns the boots that `make test` makes for the topic on the architecture."""
    tables = [(name, table) for name, table in topics.boots() if name == topic]
    return [boot for boot in plan.merged(tables) if boot.arch == arch and not boot.full]


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
        outcome = 'survived'
    return outcome


def try_one(each: Drawn, boots: Sequence[Boot], kernels: dict[str, bytes]) -> str:
    tree = tree_of(each.arch)
    try:
        made(tree, each.diff, each.name)
        return noticed(boots, tree, kernels)
    finally:
        take_back(tree)


@cache
def right(topic: str, arch: str) -> dict[str, bytes]:
    """Returns {flavour: the kernel without a bug} for the topic's boots."""
    tree = clean(arch)
    return {boot.flavour: image_of(boot, tree)[1] for boot in boots_of(topic, arch)}


def main(topic: str, count: int, seed: int, deleted: bool) -> int:
    say(f'mutants: DRAW={count} SEED={seed}')
    counts = Counter[str]()
    for each in lines.drawn([topic] if topic else topics.order(), seed, deleted):
        boots = boots_of(each.topic, each.arch)
        if not boots:
            continue
        with Lock(tree_of(each.arch).root):
            outcome = try_one(each, boots, right(each.topic, each.arch))
        print(f'  {each.name}: {outcome}', flush=True)
        if outcome in (NO_KERNEL, SAME_KERNEL):
            continue
        counts['failed' if outcome == 'survived' else 'passed'] += 1
        if counts.total() == count:
            break
    print(closing(Counts(counts)))
    return guest.FAILED if counts['failed'] else guest.OK
