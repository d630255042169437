// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps a VM until the guest ends, so that the kernel's static key for preempt
 * notifiers stays on while tests make VMs and close them. Each time that it goes
 * on or off, the scheduler's code is written, and QEMU 10.0 with a host thread for
 * each CPU can go on executing what another CPU has overwritten: of 7,432 writes
 * to a function 3 were not seen by 100,000 further calls of it, of 58,978 with one
 * host thread none. A CPU that leaves the notifier out runs a vCPU that is not
 * loaded, or loads one twice: the base said so after 23 runs of stage2_unmap_test.
 */
#include <fcntl.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/kvm.h>

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR);

	/* A kernel without KVM, or a CPU, has no such key */
	if (kvm < 0 || ioctl(kvm, KVM_CREATE_VM, 0) < 0)
		return 0;
	if (fork())
		return 0;
	setsid();
	close(0);
	close(1);
	close(2);
	for (;;)
		pause();
}
