#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""mark_model.py: the mark of lockless walks, with the barriers that linux/'s code has, in every
order that they leave; and without each of them, which the model has to see.

No guest shows a missing barrier: QEMU's CPUs reorder as the host's do, if at all. The model is
mark_model.pml, Spin runs it.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINUX = HERE.parents[1] / 'linux'
WALK, GATHER = 'include/linux/lockless_pgtable_walk.h', 'mm/mmu_gather.c'
COMMENT = re.compile(r'/\*.*?\*/', re.S)

# what the model takes for granted, and where the code has it: {name: (what, file, pattern)}
PARTS = {
    'MB': (
        'a full barrier between the mark and the first load of a walk',
        WALK,
        r'set_this_cpu_lockless_walk_state\(LOCKLESS_PGTABLE_WALK_SEEN\);\s*smp_mb\(\);',
    ),
    'UMB': (
        'a full barrier before the updater reads the marks',
        GATHER,
        r'smp_mb\(\);\s*on_each_cpu_cond\(tlb_remove_table_cpu_may_walk',
    ),
    'ACQ': (
        'a barrier after it has read them',
        GATHER,
        r'on_each_cpu_cond\(tlb_remove_table_cpu_may_walk[^;]*;\s*'
        r'#ifdef CONFIG_ARCH_HAS_LOCKLESS_PGTABLE_TRACKING\s*smp_mb\(\);',
    ),
    'REL': (
        'the release with which the interrupt takes a mark away',
        GATHER,
        r'smp_store_release\(cpu_lockless_walk_state\([^;]*, 0\);',
    ),
    'SET': (
        'the mark that a walk sets again after the interrupt',
        WALK,
        r'this_cpu_lockless_walk_state\(\)[^;]*\{\s*set_this_cpu_lockless_walk_state',
    ),
    'ORD': (
        'a barrier of its own for an NMI that walks before that of the walk',
        WALK,
        r'!\(this_cpu_lockless_walk_state\(\) & LOCKLESS_PGTABLE_WALK_SEEN_MB\)[^}]*'
        r'smp_mb\(\);\s*set_this_cpu_lockless_walk_state\(LOCKLESS_PGTABLE_WALK_SEEN_MB\);',
    ),
}


def has(file, pattern):
    return re.search(pattern, COMMENT.sub('', (LINUX / file).read_text())) is not None


def run(without=()):
    """Does the model find a walk of which the updater knows nothing?"""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ['spin', '-a', *(f'-D{name}=0' for name in without), HERE / 'mark_model.pml'],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        subprocess.run(['gcc', '-O1', '-w', '-o', 'pan', 'pan.c'], cwd=folder, check=True)
        done = subprocess.run(['./pan'], cwd=folder, capture_output=True, text=True, check=True)
    return 'errors: 0' not in done.stdout


def main():
    missing = [name for name, (_, file, pattern) in PARTS.items() if not has(file, pattern)]
    for name in missing:
        what, file, _ = PARTS[name]
        print(f'{file} has not: {what}')
    wrong = run(missing)
    print(f'a page table is used after it was freed: {"FOUND" if wrong else "not found"}')
    for name, (what, _, _) in PARTS.items():
        seen = run([name])
        print(f'without {what}: {"found" if seen else "NOT SEEN"}')
        wrong |= not seen
    return int(wrong)


if __name__ == '__main__':
    sys.exit(main())
