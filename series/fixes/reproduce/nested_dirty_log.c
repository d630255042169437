// SPDX-License-Identifier: GPL-2.0-only
/*
 * An L2 guest writes memory. Then this program enables, reads or clears the dirty
 * log. The function tracer shows how often KVM invalidates a whole VMID. KVM
 * must do so each time it write-protects the shadow stage 2. For "KVM: arm64:
 * nv: Invalidate L2's TLB entries after write protection".
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
#include <sys/stat.h>
#include <unistd.h>

/* Headers before v6.16 */
#ifndef KVM_CAP_ARM_EL2
#define KVM_CAP_ARM_EL2		240
#define KVM_ARM_VCPU_HAS_EL2	7
#endif

#define CANNOT_TELL	4
#define TRACE		"/sys/kernel/tracing/instances/nested_dirty_log/"
#define BASE		0x40000000UL
#define PAGES		64
#define DIRTY		16	/* L2 writes pages 16 to 31 */

/* L1 runs at EL2. It sets up no stage 2 for L2, and starts it. L2 writes and exits. */
asm("	.pushsection .rodata\n"
	"	.globl	guest, guest_end\n"
	"	.balign	8\n"
	"guest:\n"
	"	mov	x0, #(1 << 31)\n"	/* HCR_EL2.RW */
	"	orr	x0, x0, #(1 << 34)\n"	/* HCR_EL2.E2H */
	"	msr	hcr_el2, x0\n"
	"	mov	x0, #(1 << 48)\n"	/* VMID 1 */
	"	msr	vttbr_el2, x0\n"
	"	mov	x0, #0x0830\n"		/* SCTLR_EL1 with the MMU off */
	"	movk	x0, #0x30c5, lsl #16\n"
	"	msr	s3_5_c1_c0_0, x0\n"	/* sctlr_el12 */
	"	mov	x0, #0x3c5\n"		/* EL1h, DAIF masked */
	"	msr	spsr_el2, x0\n"
	"	adr	x0, 1f\n"
	"	msr	elr_el2, x0\n"
	"	isb\n"
	"	eret\n"
	"1:	adr	x0, guest\n"
	"	add	x0, x0, #(16 << 12)\n"
	"	mov	x1, #16\n"
	"2:	str	x1, [x0]\n"
	"	add	x0, x0, #4096\n"
	"	subs	x1, x1, #1\n"
	"	b.ne	2b\n"
	"	str	xzr, [x1]\n"		/* MMIO at 0 */
	"	b	1b\n"
	"guest_end:\n"
	"	.popsection\n");
extern const char guest[], guest_end[];

static void *mem;
static struct kvm_run *run;
static int vm, vcpu;

static int must(int ret, const char *what)
{
	if (ret < 0) {
		printf("cannot tell: %s: %s\n", what, strerror(errno));
		rmdir(TRACE);
		exit(CANNOT_TELL);
	}
	return ret;
}

static void put(const char *file, const char *text)
{
	int fd = must(open(file, O_WRONLY | O_TRUNC), file), size = strlen(text);

	/* The tracer reads one word per write(). */
	while (size)
		size -= must(write(fd, text + strlen(text) - size, size), file);
	close(fd);
}

/* Counts the calls of the function in the trace */
static int traced(const char *function)
{
	char line[256], name[64];
	FILE *trace = fopen(TRACE "trace", "r");
	int nr = 0;

	must(trace ? 0 : -1, "trace");
	snprintf(name, sizeof(name), " %s <", function);
	while (fgets(line, sizeof(line), trace))
		nr += !!strstr(line, name);
	fclose(trace);
	return nr;
}

static void set_memory(unsigned int flags)
{
	struct kvm_userspace_memory_region slot = {
		.flags = flags, .guest_phys_addr = BASE, .userspace_addr = (unsigned long)mem,
		.memory_size = PAGES * 4096,
	};

	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "memory region");
}

static void set_gic(int gic, unsigned int group, unsigned long attr, unsigned long long value)
{
	struct kvm_device_attr set = {
		.group = group, .attr = attr, .addr = (unsigned long)&value,
	};

	must(ioctl(gic, KVM_SET_DEVICE_ATTR, &set), "vGIC");
}

static void start_vm(int kvm, int manual)
{
	struct kvm_enable_cap cap = {
		.cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		.args = { KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE },
	};
	struct kvm_create_device gic = { .type = KVM_DEV_TYPE_ARM_VGIC_V3 };
	unsigned long long pc = BASE;
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE |
		      KVM_REG_ARM_CORE_REG(regs.pc),
		.addr = (unsigned long)&pc,
	};
	struct kvm_vcpu_init init;

	vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "VM");
	if (manual)
		must(ioctl(vm, KVM_ENABLE_CAP, &cap), "manual dirty log");
	set_memory(0);
	memcpy(mem, guest, guest_end - guest);

	must(ioctl(vm, KVM_CREATE_DEVICE, &gic), "vGIC");
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_DIST, 0x8000000);
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_REDIST, 0x80a0000);

	vcpu = must(ioctl(vm, KVM_CREATE_VCPU, 0), "vCPU");
	must(ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init), "target");
	init.features[0] |= 1 << KVM_ARM_VCPU_HAS_EL2;
	must(ioctl(vcpu, KVM_ARM_VCPU_INIT, &init), "vCPU with EL2");
	must(ioctl(vcpu, KVM_SET_ONE_REG, &reg), "PC");
	set_gic(gic.fd, KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, 0);
	close(gic.fd);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	must(run == MAP_FAILED ? -1 : 0, "kvm_run");
}

static void end_vm(void)
{
	munmap(run, 4096);
	close(vcpu);
	close(vm);
}

static void l2_writes(void)
{
	memset(mem + DIRTY * 4096, 0, DIRTY * 4096);
	must(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
	errno = ENODATA;
	must(run->exit_reason == KVM_EXIT_MMIO && !run->mmio.phys_addr ? 0 : -1, "exit of L2");
	must(*(long *)(mem + DIRTY * 4096) == DIRTY ? 0 : -1, "the values that L2 wrote");
	put(TRACE "trace", "");
}

/* Returns 1 if L2's VMID was not invalidated after L2 wrote. L1's is invalidated by range. */
static int bad(const char *what)
{
	int l1 = traced("__kvm_tlb_flush_vmid_range"), l2 = traced("__kvm_tlb_flush_vmid");

	printf("%s: invalidations for L1: %d, for L2: %d\n", what, l1, l2);
	if (!l1)
		must((errno = ENOTSUP, -1), "range invalidation");
	if (!l2)
		printf("BUG: %s leaves L2 writable TLB entries\n", what);
	return !l2;
}

static void read_log(int clear)
{
	unsigned long dirty = 0, all = ((1UL << DIRTY) - 1) << DIRTY;
	struct kvm_dirty_log log = { .dirty_bitmap = &dirty };
	struct kvm_clear_dirty_log cleared = { .num_pages = PAGES, .dirty_bitmap = &dirty };

	must(ioctl(vm, KVM_GET_DIRTY_LOG, &log), "dirty log");
	if (clear)
		must(ioctl(vm, KVM_CLEAR_DIRTY_LOG, &cleared), "clear dirty log");
	errno = ENODATA;
	must((dirty & all) == all ? 0 : -1, "the pages that L2 wrote, in the log");
}

int main(void)
{
	int kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm"), failed = 0, manual;

	setlinebuf(stdout);
	if (ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_ARM_EL2) <= 0)
		must((errno = ENOTSUP, -1), "guests with EL2");
	must(mkdir(TRACE, 0700) && errno != EEXIST ? -1 : 0, TRACE);
	put(TRACE "set_ftrace_filter", "__kvm_tlb_flush_vmid __kvm_tlb_flush_vmid_range");
	put(TRACE "current_tracer", "function");
	mem = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (manual = 0; manual < 2; manual++) {
		start_vm(kvm, manual);
		l2_writes();
		set_memory(KVM_MEM_LOG_DIRTY_PAGES);
		failed |= bad("dirty log enabled");
		l2_writes();
		read_log(manual);
		failed |= bad(manual ? "dirty log cleared" : "dirty log read");
		end_vm();
	}

	put(TRACE "current_tracer", "nop");
	rmdir(TRACE);
	return failed;
}
