# SPDX-License-Identifier: GPL-2.0-only
"""Measures powerpc-lockless-walk with the benchmark of collapse-ipis, on powerpc with the hash MMU.
The base kernel has collapse-ipis."""

from kit import topics

COLLAPSE = topics.benchmark('collapse-ipis')
HEAD = [title for title in COLLAPSE.HEAD if title != 'on']  # all rows are of the same machine
note, measure = COLLAPSE.note, COLLAPSE.PARTS['hash']


def describe(each):
    """Returns the cells that identify a row."""
    return [cell for title, cell in zip(COLLAPSE.HEAD, COLLAPSE.describe(each)) if title != 'on']


def cover(each):
    """Returns whether the cover letter has this row. It has IPIs of PMD collapses with 8 CPUs, and
    the instructions of a hash fault."""
    if each['metric'] == 'ipis_per_collapse':
        pmd = each['order'] == 8 and each['kind'] == 'sync'
        return pmd and each['cpus'] == 8 and each['neighbours'] != 'other_process'
    return each['metric'] == 'hash_fault_instructions'
