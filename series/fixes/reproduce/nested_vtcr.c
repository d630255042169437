// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a guest hypervisor that enters L2 with a stage 2 that cannot be walked.
 * The host must not warn, and L1 must get the fault. For "KVM: arm64: nv: Let
 * L1 handle errors in its stage 2".
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Headers before v6.16 */
#ifndef KVM_CAP_ARM_EL2
#define KVM_CAP_ARM_EL2		240
#define KVM_ARM_VCPU_HAS_EL2	7
#endif

#define CANNOT_TELL	4
#define BASE		0x40000000UL
#define PAGES		4

/* L1 runs at EL2 and starts L2, whose first instruction faults. L1's vectors are at 0x800. */
asm("	.pushsection .rodata\n"
	"	.globl	guest, guest_end\n"
	"	.balign	8\n"
	"guest:\n"
	"	mov	x0, #(1 << 31)\n"	/* HCR_EL2.RW */
	"	orr	x0, x0, #(1 << 34)\n"	/* HCR_EL2.E2H */
	"	orr	x0, x0, #1\n"		/* HCR_EL2.VM */
	"	msr	hcr_el2, x0\n"
	"	mov	x0, #(1 << 48)\n"	/* VMID 1. The table is at 0, outside memory */
	"	msr	vttbr_el2, x0\n"
	"	msr	vtcr_el2, x2\n"		/* set by walk() */
	"	mov	x0, #0x0830\n"		/* SCTLR_EL1 with the MMU off */
	"	movk	x0, #0x30c5, lsl #16\n"
	"	msr	s3_5_c1_c0_0, x0\n"	/* sctlr_el12 */
	"	mov	x0, #0x3c5\n"		/* EL1h, DAIF masked */
	"	msr	spsr_el2, x0\n"
	"	adr	x0, guest + 0x800\n"
	"	msr	vbar_el2, x0\n"
	"	adr	x0, guest\n"
	"	msr	elr_el2, x0\n"
	"	isb\n"
	"	eret\n"
	"	. = guest + 0x800 + 0x400\n"	/* exception of L2 */
	"	mrs	x1, esr_el2\n"
	"	mov	x0, #0x1000\n"
	"	str	x1, [x0]\n"
	"guest_end:\n"
	"	.popsection\n");
extern const char guest[], guest_end[];

/* For 4K pages and 48 bits of PA. The fault of L2 must have `status` in ESR_EL2.IFSC. */
#define VTCR(level, ipa_bits)	(5 << 16 | (2 - (level)) << 6 | (64 - (ipa_bits)))
static const struct {
	const char *name;
	unsigned long long vtcr;
	unsigned int status;
} cases[] = {
	{ "48 bits of IPA from level 2", VTCR(2, 48), 0x04 },
	{ "64 bits of IPA", VTCR(0, 64), 0x04 },
	{ "24 bits of IPA", VTCR(2, 24), 0x04 },
	{ "a table outside memory", VTCR(0, 48), 0x14 },
};

static int must(int ret, const char *what)
{
	if (ret < 0) {
		printf("cannot tell: %s: %s\n", what, strerror(errno));
		exit(CANNOT_TELL);
	}
	return ret;
}

static unsigned int warnings(void)
{
	unsigned int value = 0;
	FILE *file = fopen("/sys/kernel/warn_count", "r");

	must(file && fscanf(file, "%u", &value) == 1 ? 0 : -1, "warn_count");
	fclose(file);
	return value;
}

static void set_gic(int gic, unsigned int group, unsigned long attr, unsigned long long value)
{
	struct kvm_device_attr set = {
		.group = group, .attr = attr, .addr = (unsigned long)&value,
	};

	must(ioctl(gic, KVM_SET_DEVICE_ATTR, &set), "vGIC");
}

static void set_reg(int vcpu, unsigned long offset, unsigned long long value)
{
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | offset,
		.addr = (unsigned long)&value,
	};

	must(ioctl(vcpu, KVM_SET_ONE_REG, &reg), "a register");
}

static int walk(const char *name, unsigned long long vtcr, unsigned int status)
{
	int kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm"), vm, vcpu, ret;
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = BASE, .memory_size = PAGES * 4096,
	};
	struct kvm_create_device gic = { .type = KVM_DEV_TYPE_ARM_VGIC_V3 };
	unsigned long long esr = 0;
	struct kvm_vcpu_init init;
	unsigned int before;
	struct kvm_run *run;
	void *mem;

	errno = ENOTSUP;
	must(ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_ARM_EL2) > 0 ? 0 : -1, "guests with EL2");

	vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "VM");
	mem = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(mem, guest, guest_end - guest);
	slot.userspace_addr = (unsigned long)mem;
	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "memory region");

	must(ioctl(vm, KVM_CREATE_DEVICE, &gic), "vGIC");
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_DIST, 0x8000000);
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_REDIST, 0x80a0000);
	vcpu = must(ioctl(vm, KVM_CREATE_VCPU, 0), "vCPU");
	must(ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init), "target");
	init.features[0] |= 1 << KVM_ARM_VCPU_HAS_EL2;
	must(ioctl(vcpu, KVM_ARM_VCPU_INIT, &init), "vCPU with EL2");
	set_reg(vcpu, KVM_REG_ARM_CORE_REG(regs.pc), BASE);
	set_reg(vcpu, KVM_REG_ARM_CORE_REG(regs.regs[2]), vtcr);
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, 0);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	must(run == MAP_FAILED ? -1 : 0, "kvm_run");

	before = warnings();
	ret = ioctl(vcpu, KVM_RUN, 0);
	if (warnings() != before) {
		printf("BUG: %s: the host warned, and KVM_RUN returned %d\n", name, ret);
		return 1;
	}
	if (ret) {
		printf("BUG: %s: KVM_RUN failed: %s\n", name, strerror(errno));
		return 1;
	}
	errno = ENODATA;
	must(run->exit_reason == KVM_EXIT_MMIO && run->mmio.phys_addr == 0x1000 ? 0 : -1,
	     "the fault of L2");
	memcpy(&esr, run->mmio.data, 8);
	printf("%s: L1 got the fault of L2, ESR_EL2 %#llx\n", name, esr);
	if ((esr & 0x3f) == status)
		return 0;
	printf("BUG: %s: status %#x was expected\n", name, status);
	return 1;
}

int main(void)
{
	int ret = 0, status;

	setvbuf(stdout, NULL, _IONBF, 0);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pid_t child = must(fork(), "fork");

		if (!child)
			exit(walk(cases[i].name, cases[i].vtcr, cases[i].status));
		must(waitpid(child, &status, 0), "wait");
		status = WIFEXITED(status) ? WEXITSTATUS(status) : CANNOT_TELL;
		if (status && ret != 1)
			ret = status;
	}
	return ret;
}
