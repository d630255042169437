// SPDX-License-Identifier: GPL-2.0-only
/* For architectures without a program for VMs */
#if !defined(__aarch64__) && !defined(__x86_64__)

#include "vm.h"

const char vm_code[] = "";
const size_t vm_code_size = 0;

bool vm_set_registers(int vm, int vcpu, uint64_t from, uint64_t to)
{
	(void)vm;
	(void)vcpu;
	(void)from;
	(void)to;
	return false;
}

#endif
