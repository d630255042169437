#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""stage2_model.py [seeds]: linux/'s stage-2 page-table code under a model of a strict CPU, and with
mistakes made on purpose, which the model has to see.

QEMU has no walk caches, and its TLB forgets more than it is told to. The model (stage2_model.c)
forgets nothing else. It tells, too, after how many pages of 4K, 16K and 64K whoever waits for
mmu_lock gets it, which no boot tells: the lock is contended whenever it is asked about.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARM64 = HERE.parents[1] / 'linux' / 'arch' / 'arm64'

INVALIDATE = '\tstage2_unmap_invalidate(data);\n'
CLEAN = '\tstage2_unmap_clean_pages(data);\n'
FREE = '\tstage2_unmap_free_tables(data);\n'
SPAN = 'kvm_tlb_flush_vmid_range(mmu, data->first, end - data->first'
NR = '\t\tnr = kvm_granule_size(ctx->level) >> PAGE_SHIFT;\n'
VISITED = '\n\treturn stage2_step_visited(ctx, &data->step, nr);\n'
NEXT = '\t*addr = data.step.next;\n'

# what is wrong then, and how: (what, text of pgtable.c or mmu.c, its replacement)
MUTATIONS = [
    (
        'tables are freed before the invalidation',
        INVALIDATE + CLEAN + FREE,
        FREE + INVALIDATE + CLEAN,
    ),
    ('pages are cleaned before the invalidation', INVALIDATE + CLEAN, CLEAN + INVALIDATE),
    (
        'a detached table is invalidated as if it were one page',
        '\tdata->last = ctx->addr + kvm_granule_size(ctx->level) - PAGE_SIZE;\n',
        '',
    ),
    (
        'the span ends a page early',
        SPAN,
        f'{SPAN} - (end - data->first > PAGE_SIZE ? PAGE_SIZE : 0)',
    ),
    (
        'an emptied table is not in the span',
        '\tif (!data->cleared || data->last < start)\n'
        '\t\tstage2_unmap_mark_cleared(data, ctx->addr, KVM_PGTABLE_LAST_LEVEL);\n',
        '',
    ),
    (
        'a table went, but the invalidation hints at a leaf',
        'data->tables ? TLBI_TTL_UNKNOWN : data->last_level',
        'data->last_level',
    ),
    (
        'a table is detached of which a part is outside the range',
        'IS_ALIGNED(ctx->addr, granule) && ctx->end - ctx->addr >= granule',
        'IS_ALIGNED(ctx->addr, granule)',
    ),
    (
        'a subtree is freed without the tables below',
        'if (++level < KVM_PGTABLE_LAST_LEVEL) {',
        'if (++level < 0) {',
    ),
    (
        'the walk goes on a page behind where it stopped',
        NEXT,
        NEXT.replace('next', 'next + PAGE_SIZE'),
    ),
    # how often whoever waits for mmu_lock gets it
    (
        'a notifier offers the lock after 262,144 pages, whatever their size',
        '(kvm_granule_size(KVM_PGTABLE_MIN_BLOCK_LEVEL) >> PAGE_SHIFT)',
        '262144',
    ),
    (
        'write protection counts a block as one page',
        'stage2_step_visited(ctx, ctx->arg, kvm_granule_size(ctx->level) >> PAGE_SHIFT)',
        'stage2_step_visited(ctx, ctx->arg, 1)',
    ),
    (
        'write protection counts the pages of what is not mapped',
        'stage2_step_visited(ctx, ctx->arg, 1);',
        'stage2_step_visited(ctx, ctx->arg, kvm_granule_size(ctx->level) >> PAGE_SHIFT);',
    ),
    (
        'a block that an unmap has cleaned counts as one page',
        f'{NR}{VISITED}',
        f'\t\tnr = 1;\n{VISITED}',
    ),
    (
        'an unmap offers the lock as seldom as write protection does',
        'kvm->mmu_invalidate_in_progress ?',
        'true ?',
    ),
]


def cut(text, start):
    """The text without the function that starts like this."""
    return re.sub(rf'{re.escape(start)}.*?\n}}\n', '', text, flags=re.S)


def source():
    """kvm_pgtable.h and stage 2 of pgtable.c, without includes and what is not modelled, and of
    mmu.c when to release the lock."""
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
    lock = (ARM64 / 'kvm/mmu.c').read_text()
    last = lock.index('static bool stage2_wp_should_yield(')
    code += lock[lock.index('#define STAGE2_CONTENTION_BATCH\t') : lock.index('\n}\n', last) + 3]
    return [re.sub(r'^#include .*$', '', text, flags=re.M) for text in (header, code)]


def run(header, code, seeds):
    """(exit status, output) of the model around this code; of the first page size that fails."""
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
            print(f'{what}: not in pgtable.c, or more than once')
            wrong = True
            continue
        status, said = run(header, code.replace(old, new), seeds)
        print(f'{what}: {said if status else "NOT SEEN"}')
        wrong |= not status
    return int(wrong)


if __name__ == '__main__':
    sys.exit(main())
