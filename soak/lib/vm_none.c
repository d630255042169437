// SPDX-License-Identifier: GPL-2.0-only
/* The topic that is about VMs is arm64's */
#ifndef __aarch64__

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
