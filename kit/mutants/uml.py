# SPDX-License-Identifier: GPL-2.0-only
"""Runs KUnit suites in user-mode Linux (UML). The kernel's kunit.py builds and starts UML. Trying a
bug takes half a minute in UML, but several minutes with a debug kernel in a guest.

UML is configured with the symbols that are listed under `uml` in each topic.toml, and with the
symbols of a debug kernel.
"""

import re
import shutil
import sys
from pathlib import Path

from kit import topics
from kit.build.trees import OF_THE_USER, Tree
from kit.errors import KitError
from kit.host import host_cpus
from kit.paths import TOP, shown
from kit.process import Word, result, step
from kit.vm import console

NAME = 'um'  # make's ARCH=
SYMBOLS = 'KUNIT SMP KASAN DEBUG_KERNEL PROVE_LOCKING DEBUG_ATOMIC_SLEEP DEBUG_LIST'
KERNEL = 'seccomp=on', 'mem=1G'  # several CPUs need seccomp
# generic_pt's suites compare the system's count of page-table pages before and after a case. The
# count is updated late, so only the cases of iommu-lookup run, and a run is repeated if it fails
# only for this reason.
GENERIC_PT, ITS_CASES, LATE = '_iommu_test', '.test_ranges*', 'priv->orig_nr_secondary_pagetable'
RUNS = 10
SECONDS = 120  # limit for a suite; the slowest takes about ten seconds


def kunitconfig() -> str:
    """Returns the lines of a .config with the symbols of all topics."""
    wanted = topics.symbols(SYMBOLS)
    for topic in topics.all_of_them():
        wanted |= topics.symbols(topic.uml)
    return ''.join(f'CONFIG_{name}={value}\n' for name, value in wanted.items())


def folder(tree: Tree) -> Path:
    return tree.root / 'build' / NAME


def kunit(tree: Tree, verb: str, *words: Word) -> list[Word]:
    """Returns a command of kunit.py. `words` are the options of `verb`, and the suite."""
    command: list[Word] = [
        sys.executable,
        'tools/testing/kunit/kunit.py',
        verb,
        f'--build_dir={folder(tree)}',
        f'--kunitconfig={folder(tree) / "kunitconfig"}',
    ]
    if shutil.which('ccache'):
        command.append('--make_options=CC=ccache gcc')
    return [*command, *words]


def build(tree: Tree) -> None:
    """Builds the user-mode Linux of the tree."""
    folder(tree).mkdir(parents=True, exist_ok=True)
    (folder(tree) / 'kunitconfig').write_text(kunitconfig())
    env = {**dict.fromkeys(OF_THE_USER), 'CCACHE_BASEDIR': TOP, 'CCACHE_DEPEND': '1'}
    command = ['nice', *kunit(tree, 'build', f'--jobs={host_cpus()}')]
    step(f'build {tree}', command, cwd=tree.linux, log=folder(tree) / 'log', env=env)


def run(tree: Tree, suite: str) -> tuple[bool, str]:
    """Runs the suite. Returns (bool, output): the first value is true if a test or the kernel
    failed. Raises an error if the suite did not run."""
    generic_pt = suite.endswith(GENERIC_PT)
    words = [f'--kernel_args={each}' for each in ('ncpus=1' if generic_pt else 'ncpus=4', *KERNEL)]
    cases = suite + ITS_CASES if generic_pt else suite
    command = kunit(tree, 'exec', f'--timeout={SECONDS}', *words, cases)
    for _ in range(RUNS):
        done = result(command, cwd=tree.linux)
        log = folder(tree) / 'test.log'
        text = log.read_text(errors='replace') if log.exists() else ''
        if set(re.findall(r'Expected (\S+)', text)) != {LATE}:
            break
    if '\n1..0' in text or f'# Subtest: {suite}' not in text and not done.returncode:
        raise KitError(f'{suite} did not run: {shown(log)}')
    return done.returncode != 0 or bool(console.splats(text, console.splat_rules(NAME))), text
