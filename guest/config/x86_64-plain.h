/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included first in every file that is compiled for the kernels whose speed is compared. TCG chains its translations within
 * a page of the guest only, so what else a page of code holds counts: a patch that shifts functions it does not touch made
 * page faults 6 % slower, with the same number of instructions. With each object's code on pages of its own nothing shifts.
 */
#if defined(__KERNEL__) && !defined(BUILD_VDSO) && !defined(BUILD_VDSO32)
asm(".pushsection .text\n\t.balign 4096\n\t.popsection");
#endif
