// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/kvm.h>

#include "vm.h"

bool has_vms(void)
{
	return vm_code_size && !access("/dev/kvm", R_OK | W_OK);
}

int vm_open(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm, error;

	if (kvm < 0)
		return -1;
	/* mm_take_all_locks() returns -EINTR for a signal or a freeze */
	do
		vm = ioctl(kvm, KVM_CREATE_VM, 0);
	while (vm < 0 && errno == EINTR);
	error = errno;
	close(kvm);
	errno = error;
	return vm;
}

int vm_add_vcpu(int vm, int number, uint64_t from, uint64_t to)
{
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, number), error;

	if (vcpu < 0 || vm_set_registers(vm, vcpu, from, to))
		return vcpu;
	error = errno;
	close(vcpu);
	errno = error;
	return -1;
}

int vm_set_slot(int vm, uint32_t slot, uint32_t flags, uint64_t gpa, uint64_t size, void *at)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.flags = flags,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (uintptr_t)at,
	};

	return ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region);
}
