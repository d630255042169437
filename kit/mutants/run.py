# SPDX-License-Identifier: GPL-2.0-only
"""make mutants: seeds each bug of series/TOPIC/mutants/ in a patched tree, builds what it changes,
boots the test that must detect it, and records the outcome.

SAMPLE=N tries only N of the bugs, and records nothing. DRAW=N instead alters or deletes randomly
drawn lines of one or all topics, and runs all of a topic's tests: see kit/mutants/draw.py.

Each test must first pass without the bug. The closing line `N passed, N failed, N skipped` counts
detected bugs as passed, undetected bugs as failed, and equivalent bugs as skipped. Exit status: 1
if this line counts any bug as failed, otherwise 0.
"""

import datetime
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from kit.bench import pages
from kit.build import kernel
from kit.build.trees import Tree
from kit.errors import KitError
from kit.lock import Lock
from kit.mutants import draw as drawing
from kit.mutants import score, uml
from kit.mutants.making import clean, made, run_boot, take_back, tree_of
from kit.mutants.mutant import Mutant, all_of_them, boot_of, of
from kit.process import Pool, say
from kit.soak import soak
from kit.test import test, verdict
from kit.test.verdict import Counts, closing
from kit.vm import guest

Tell = Callable[[str, score.Row], object]  # (topic, outcome of its mutant)
CHEAP, SECONDS = ['x86_64', 'plain'], 60  # the mutants of `make test`: see two()
CAUGHT, SURVIVED, OTHERWISE = 'caught', 'survived', 'fails in another way'


def attempt(each: Mutant, tree: Tree, name: str, enough: str = '') -> tuple[bool, str]:
    """Builds the tree's kernel, with or without the bug. Runs the test until a failure matches the
    regular expression `enough`. Returns (whether the test or the guest failed, output of both)."""
    boot = boot_of(each)
    if not boot:
        uml.build(tree)
        return uml.run(tree, each.test)
    image = kernel.build(boot.machine, boot.flavour, tree)
    said, status, message = run_boot(boot, image, name, enough)
    failed = said.failed()
    said_so = [said.expected, *(f'{verdict.title(result)}: {result.why}' for result in failed)]
    logs = [line for result in failed for line in result.log]
    return bool(failed) or status != guest.OK, '\n'.join([*said_so, *logs, message])


def judged(each: Mutant, failed: bool, text: str) -> str:
    """Returns the outcome of the bug. `failed` says whether the test or the guest failed, and
    `text` is the output of both."""
    if not failed:
        return SURVIVED
    return CAUGHT if re.search(each.fails, text, re.M) else OTHERWISE


def control(each: Mutant, tree: Tree) -> None:
    """Raises an error unless the test passes without a bug."""
    failed, text = attempt(each, tree, 'mutant-none')
    if failed:
        raise KitError(f'{each.test} fails without a bug ({each.boot}): {text[-1000:].strip()}')


def try_one(each: Mutant, tree: Tree) -> score.Row:
    """Seeds the bug, runs the test, and removes the bug."""
    start = time.monotonic()
    try:
        made(tree, each.diff, f'{each.topic}/{each.name}')
        outcome = judged(each, *attempt(each, tree, f'mutant-{each.name}', each.fails))
    finally:
        take_back(tree)
    return {
        'name': each.name,
        'test': each.test,
        'boot': each.boot,
        'outcome': outcome,
        'seconds': round(time.monotonic() - start),
        'date': datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def show(each: Mutant, row: score.Row) -> None:
    word = 'ok' if row['outcome'] == CAUGHT else 'not ok'
    print(
        f'  {word:6} {row["seconds"]:5} s  {each.topic}/{each.name}: {row["outcome"]} '
        f'({each.test}, {each.boot})',
        flush=True,
    )


def lane(arch: str, mutants: Sequence[Mutant], tell: Tell) -> Iterator[str]:
    """Tries the mutants one after the other, as they share a tree. Yields each outcome."""
    passed = set()
    with Lock(tree_of(arch).root):
        tree = clean(arch)
        for each in sorted(mutants, key=lambda each: (each.boot, each.test)):
            if (each.boot, each.test) not in passed:
                control(each, tree)
                passed.add((each.boot, each.test))
            row = try_one(each, tree)
            tell(each.topic, row)
            show(each, row)
            yield str(row['outcome'])


def chosen(topic: str, name: str, boot: str, sample: int, seed: int) -> list[Mutant]:
    found = of(topic) if topic else all_of_them()
    found = [each for each in found if re.search(name, each.name)]
    if boot:
        found = [each for each in found if each.boot and each.arch == boot]
    if not found:
        raise KitError('no such mutant: mutants are series/TOPIC/mutants/NAME.diff')
    return drawn(found, sample, seed) if sample else found


def drawn(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draws `count` mutants at random and returns them."""
    count = min(count, len(mutants))
    say(f'mutants: {count} of {len(mutants)}, SEED={seed}')
    return random.Random(seed).sample(mutants, count)


def by_arch(mutants: Iterable[Mutant]) -> list[tuple[str, list[Mutant]]]:
    arch = attrgetter('arch')
    return [(name, list(some)) for name, some in groupby(sorted(mutants, key=arch), arch)]


def tried(mutants: Sequence[Mutant], tell: Tell) -> Counts:
    """Tries each mutant, with architectures in parallel."""
    real = [each for each in mutants if not each.equivalent]
    counts: Counts = Counter(skipped=len(mutants) - len(real))
    with Pool(test.places()) as pool:
        lanes = [pool.submit(lambda some: list(lane(*some, tell)), each) for each in by_arch(real)]
        for each in lanes:
            for outcome in each.result():
                counts['passed' if outcome == CAUGHT else 'failed'] += 1
    return counts


def forget(_topic: str, _row: score.Row) -> None:
    """Records nothing: a sample only shows whether tests still detect bugs."""


def tenth() -> Counts:
    """Tries one in ten mutants, drawn at random, and records nothing. `make test FULL=1` calls
    this."""
    found = all_of_them()
    return tried(drawn(found, -(-len(found) // 10), soak.any_seed()), forget)


def two() -> Counts:
    """Tries two mutants that were detected quickly, and records nothing. `make test` calls this,
    after `make check` has built the kernel CHEAP, so ccache has almost all objects. Raises an
    error if there are no such mutants."""
    found = [
        each
        for each in all_of_them()
        if each.boot.split()[:2] == CHEAP and score.seconds_until_detected(each) <= SECONDS
    ]
    if not found:
        raise KitError(f'no mutant was detected within {SECONDS} s on {" ".join(CHEAP)}')
    return tried(drawn(found, 2, soak.any_seed()), forget)


def main(
    topic: str = '',
    mutant: str = '',
    boot: str = '',
    sample: int = 0,
    seed: int | None = None,
    draw: int = 0,
    delete: bool = False,
) -> int:
    seed = seed or soak.any_seed()
    if draw:
        return drawing.main(topic, draw, seed, delete)
    tell = forget if sample else score.record
    counts = tried(chosen(topic, mutant, boot, sample, seed), tell)
    pages.write()
    print(closing(counts))
    return guest.FAILED if counts['failed'] else guest.OK
