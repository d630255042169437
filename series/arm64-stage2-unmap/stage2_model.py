#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""stage2_model.py [seeds]: runs the stage-2 page-table code of linux/ on a model of a CPU, then
with seeded bugs, which the model must detect.

QEMU has no walk caches, and its TLB drops more entries than an invalidation requires. The model
(stage2_model.c) drops only the required ones. It also checks, with pages of 4K, 16K and 64K, after
how many pages a walk yields mmu_lock. In the model, the lock is always contended, which no boot
guarantees.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARM64 = HERE.parents[1] / 'linux' / 'arch' / 'arm64'

DETACHED = (
    '\tstage2_unmap_defer_flush(step, ctx->addr, granule / PAGE_SIZE, KVM_PGTABLE_LAST_LEVEL);\n'
)
STASH = 'WRITE_ONCE(ptep[i], pte & ~KVM_PTE_VALID);'
RANGE = 'addr + first * granule, last - first + 1, level);'
TABLE = '\tkvm_call_hyp(__kvm_tlb_flush_vmid_ipa, mmu, ctx->addr, TLBI_TTL_UNKNOWN);\n'
CLEAN = (
    '\t\tmm_ops->dcache_clean_inval_poc(kvm_pte_follow(ptep[i], mm_ops), granule);\n'
    '\t\tkvm_clear_pte(&ptep[i]);\n'
)
NR = 'max3(nr, step->cleaned, 32)'
ONE = 'return stage2_step_done(step, kvm_granule_end(addr, ctx->level), 1);'

# seeded bugs: (description, text of pgtable.c or mmu.c, its replacement)
MUTATIONS = [
    ('a detached table is not invalidated', DETACHED, ''),
    (
        'a detached table is invalidated as if it were a block',
        DETACHED,
        DETACHED.replace('granule / PAGE_SIZE, KVM_PGTABLE_LAST_LEVEL', '1, ctx->level'),
    ),
    (
        'the cleared entries are not invalidated after the walk',
        '\tstage2_unmap_flush(&step);\n',
        '',
    ),
    ('the last entry of a contiguous range is not invalidated', RANGE, RANGE.replace(' + 1,', ',')),
    (
        'only the last of several contiguous ranges is invalidated',
        '\tif (step->flush_start == step->flush_end)\n',
        '',
    ),
    (
        'a range of several entries is invalidated as if it were one entry',
        'if (size == kvm_granule_size(step->flush_level))',
        'if (size)',
    ),
    (
        'a page is cleaned before its invalidation',
        STASH,
        STASH.replace('pte & ~KVM_PTE_VALID', 'pte'),
    ),
    ('the entry of a cleaned page keeps its address', CLEAN, CLEAN.splitlines(True)[0]),
    ('an emptied table is freed without an invalidation', TABLE, ''),
    (
        'an emptied table is invalidated as if it were a page',
        TABLE,
        TABLE.replace('TLBI_TTL_UNKNOWN', 'KVM_PGTABLE_LAST_LEVEL'),
    ),
    (
        'a table without a post-order visit is not freed',
        '\t    (visit == KVM_PGTABLE_WALK_TABLE_PRE && ret))',
        '\t    false)',
    ),
    (
        'a table that is partly outside the range is detached',
        '!IS_ALIGNED(ctx->addr, granule) || ctx->end - ctx->addr < granule)',
        '!IS_ALIGNED(ctx->addr, granule))',
    ),
    (
        'a subtree is freed without its lower tables',
        'level < KVM_PGTABLE_LAST_LEVEL && i < PTRS_PER_PTE; i++)',
        'level < 0 && i < PTRS_PER_PTE; i++)',
    ),
    (
        'some entries of the PGD stay when everything is detached',
        'i < PTRS_PER_PTE && mm_ops->page_count(table) > 1',
        'i < 4 && mm_ops->page_count(table) > 1',
    ),
    (
        'the walk resumes one page too late',
        '\tstep->next = next;\n',
        '\tstep->next = next + PAGE_SIZE;\n',
    ),
    (
        'a contiguous range continues beyond the end',
        'end = min(kvm_granule_end(addr, ctx->level), ctx->end);',
        'end = kvm_granule_end(addr, ctx->level);',
    ),
    # how often the walk yields mmu_lock
    (
        'a contended lock is kept for 262,144 entries',
        '#define STAGE2_CONTENTION_BATCH\t\t512',
        '#define STAGE2_CONTENTION_BATCH\t\t262144',
    ),
    ('a single entry counts as little as one of a contiguous range', NR, 'max(nr, step->cleaned)'),
    ('a block that was cleaned counts as one page', NR, 'max(nr, 32)'),
    ('cleaned pages are counted again with the next entry', '\tstep->cleaned = 0;\n', ''),
    (
        'a hole counts as all its pages',
        ONE,
        ONE.replace('1);', 'step->cleans ? kvm_granule_size(ctx->level) / PAGE_SIZE : 1);'),
    ),
]


def cut(text, start):
    """Returns the text without one function, whose definition begins with `start`."""
    return re.sub(rf'{re.escape(start)}.*?\n}}\n', '', text, flags=re.S)


def source():
    """Returns [kvm_pgtable.h, code]. The code is the stage-2 part of pgtable.c, followed by the
    function of mmu.c that decides whether to yield the lock. #include lines, and functions that are
    not modelled, are removed from both texts."""
    header = cut(
        (ARM64 / 'include/asm/kvm_pgtable.h').read_text(), 'static inline u64 kvm_get_parange'
    )
    code = (ARM64 / 'kvm/hyp/pgtable.c').read_text()
    first, second = code.index('struct hyp_map_data {'), code.index('struct stage2_map_data {')
    code = code[:first] + code[second:]
    for start in (
        'u64 kvm_get_vtcr(',
        'int __kvm_pgtable_stage2_init(',
        'size_t kvm_pgtable_stage2_pgd_size(',
    ):
        code = cut(code, start)
    mmu = (ARM64 / 'kvm/mmu.c').read_text()
    first = mmu.index('#define STAGE2_CONTENTION_BATCH\t')
    code += mmu[first : mmu.index('\n}\n', first) + 3]
    return [re.sub(r'^#include .*$', '', text, flags=re.M) for text in (header, code)]


def run(header, code, seeds):
    """(exit status, output) of the model with this code, for the first page size that fails."""
    with tempfile.TemporaryDirectory() as folder:
        whole, program = Path(folder) / 'whole.c', Path(folder) / 'program'
        whole.write_text(
            '\n'.join(
                [
                    (HERE / 'stage2_model.h').read_text(),
                    header,
                    code,
                    (HERE / 'stage2_model.c').read_text(),
                ]
            )
        )
        for shift in (16, 14, 12):
            subprocess.run(
                ['gcc', '-std=gnu11', '-O2', '-w', f'-DPAGE_SHIFT={shift}', '-o', program, whole],
                check=True,
            )
            done = subprocess.run(
                [program, str(seeds)], capture_output=True, text=True, timeout=600, check=False
            )
            if done.returncode:
                break
        return done.returncode, (done.stdout + done.stderr).strip()


def main():
    seeds = sys.argv[1] if len(sys.argv) > 1 else '20'
    header, code = source()
    status, said = run(header, code, seeds)
    print(said)
    wrong = status != 0
    for what, old, new in MUTATIONS:
        if code.count(old) != 1:
            print(f'{what}: the text to replace is not in the code, or more than once')
            wrong = True
            continue
        status, said = run(header, code.replace(old, new), seeds)
        print(f'{what}: {said or f"signal {-status}" if status else "NOT DETECTED"}')
        wrong |= not status
    return int(wrong)


if __name__ == '__main__':
    sys.exit(main())
