// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps a VM open until the guest powers off. The kernel's static key for preempt
 * notifiers then stays enabled while tests create and close VMs.
 *
 * When the key is switched, the kernel patches the scheduler's code. QEMU 10.0
 * with one host thread per CPU can continue to execute code that another CPU has
 * overwritten. In a test, a function was patched 7,432 times: 3 of the changes
 * were still not visible after 100,000 further calls. With one host thread, all
 * 58,978 changes were visible. If a CPU skips the notifier, it runs a vCPU that
 * is not loaded, or it loads a vCPU twice. The base reported this after 23 runs
 * of stage2_unmap_test.
 */
#include <fcntl.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/kvm.h>

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR);

	/* Without KVM in the kernel or in the CPU, nothing switches the key */
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
