// SPDX-License-Identifier: GPL-2.0-only
#ifdef __x86_64__

#include <sys/ioctl.h>

#include <linux/kvm.h>

#include "vm.h"

/*
 * Protected mode with flat segments, without paging. ebx: from, ecx: to, edx:
 * bytes between stores, esi: address of the store after a round
 */
const char vm_code[] =
	"\x89\xd8"	/* 0:	mov	%ebx, %eax */
	"\x89\x00"	/* 1:	mov	%eax, (%eax) */
	"\x01\xd0"	/*	add	%edx, %eax */
	"\x39\xc8"	/*	cmp	%ecx, %eax */
	"\x72\xf8"	/*	jb	1b */
	"\x89\x06"	/*	mov	%eax, (%esi) */
	"\xeb\xf2";	/*	jmp	0b */

const size_t vm_code_size = sizeof(vm_code) - 1;

static struct kvm_segment flat(uint8_t type)
{
	return (struct kvm_segment){
		.limit = ~0U,
		.selector = 8,
		.type = type,
		.present = 1,
		.db = 1,
		.s = 1,
		.g = 1,
	};
}

bool vm_set_registers(int vm, int vcpu, uint64_t from, uint64_t to)
{
	struct kvm_regs regs = {
		.rip = VM_CODE,
		.rflags = 2,
		.rbx = from,
		.rcx = to,
		.rdx = VM_STRIDE,
		.rsi = VM_MMIO,
	};
	struct kvm_sregs sregs;

	(void)vm;
	if (ioctl(vcpu, KVM_GET_SREGS, &sregs))
		return false;
	sregs.cs = flat(11);
	sregs.ds = sregs.es = sregs.ss = flat(3);
	sregs.cr0 |= 1;
	return !ioctl(vcpu, KVM_SET_SREGS, &sregs) && !ioctl(vcpu, KVM_SET_REGS, &regs);
}

#endif
