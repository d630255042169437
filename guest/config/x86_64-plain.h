/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included first in every file that is compiled for the kernels whose speed is compared. TCG chains
 * translations only within a page of the guest. So the speed of a function depends on the other
 * code in its page. A patch shifted functions that it did not touch: this made page faults 6 %
 * slower, with the same number of instructions. If each object's code is on its own pages, nothing
 * shifts.
 */
#if defined(__KERNEL__) && !defined(BUILD_VDSO) && !defined(BUILD_VDSO32)
asm(".pushsection .text\n\t.balign 4096\n\t.popsection");
#endif
