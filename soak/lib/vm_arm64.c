// SPDX-License-Identifier: GPL-2.0-only
#ifdef __aarch64__

#include <sys/ioctl.h>

#include <linux/kvm.h>

#include "vm.h"

/* x0: from, x1: to, x2: bytes between stores, x3: address of the store after a round */
const char vm_code[] =
	"\xe4\x03\x00\xaa"	/* 0:	mov	x4, x0 */
	"\x84\x00\x00\xf9"	/* 1:	str	x4, [x4] */
	"\x84\x00\x02\x8b"	/*	add	x4, x4, x2 */
	"\x9f\x00\x01\xeb"	/*	cmp	x4, x1 */
	"\xa3\xff\xff\x54"	/*	b.lo	1b */
	"\x64\x00\x00\xf9"	/*	str	x4, [x3] */
	"\xfa\xff\xff\x17";	/*	b	0b */

const size_t vm_code_size = sizeof(vm_code) - 1;

static bool set_register(int vcpu, uint64_t index, uint64_t value)
{
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | index,
		.addr = (uintptr_t)&value,
	};

	return !ioctl(vcpu, KVM_SET_ONE_REG, &reg);
}

bool vm_set_registers(int vm, int vcpu, uint64_t from, uint64_t to)
{
	uint64_t values[] = { from, to, VM_STRIDE, VM_MMIO };
	struct kvm_vcpu_init init;

	if (ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init) || ioctl(vcpu, KVM_ARM_VCPU_INIT, &init))
		return false;
	for (int i = 0; i < 4; i++)
		if (!set_register(vcpu, KVM_REG_ARM_CORE_REG(regs.regs[i]), values[i]))
			return false;
	return set_register(vcpu, KVM_REG_ARM_CORE_REG(regs.pc), VM_CODE);
}

#endif
