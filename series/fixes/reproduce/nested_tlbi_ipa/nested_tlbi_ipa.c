// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a guest hypervisor that executes TLBI IPAS2E1IS with an IPA beyond the
 * PA size. The host must not warn. For "KVM: arm64: nv: Ignore TLBI IPAS2E1IS
 * beyond the PA size".
 *
 * The IPA in the instruction has 48 bits, so the host's PA size must be smaller.
 * QEMU has no CPU model with such a PA size and nested virtualization, so this
 * module replaces kvm_get_pa_bits() with a function that returns 40.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/kvm_host.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/panic.h>

#define BASE	0x40000000UL
#define SIZE	0x4000UL
#define GICD	0x8000000
#define GICR	0x80a0000
#define DONE	0x1000UL	/* L1 stores here when the TLBI is done */

/* L1 runs at EL2 and starts L2 without a stage 2. L2 only calls L1. L1's vectors are at 0x800. */
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
	"	adr	x0, guest + 0x800\n"
	"	msr	vbar_el2, x0\n"
	"	adr	x0, 1f\n"
	"	msr	elr_el2, x0\n"
	"	isb\n"
	"	eret\n"
	"1:	hvc	#0\n"
	"	. = guest + 0x800 + 0x200\n"	/* exception of L1: the test fails */
	"	mov	x0, #0x2000\n"
	"	str	xzr, [x0]\n"
	"	. = guest + 0x800 + 0x400\n"	/* exception of L2 */
	"	mov	x0, #(1 << 35)\n"	/* bit 47 of the IPA */
	"	dsb	ishst\n"
	"	sys	#4, c8, c0, #1, x0\n"	/* tlbi ipas2e1is, x0 */
	"	dsb	ish\n"
	"	mov	x0, #0x1000\n"
	"	str	xzr, [x0]\n"
	"guest_end:\n"
	"	.popsection\n");
extern const char guest[], guest_end[];

static noinline u32 small_pa_bits(struct kvm *kvm)
{
	return 40;
}

static void notrace replace(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			    struct ftrace_regs *fregs)
{
	ftrace_regs_set_instruction_pointer(fregs, (unsigned long)small_pa_bits);
}

static struct ftrace_ops ops = {
	.func = replace,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

static unsigned long mem;

/* ioctl() needs its arguments in user memory. They are in the last page of the guest's memory. */
static long call(struct file *file, unsigned int cmd, void *arg, size_t size)
{
	void __user *user = (void __user *)(mem + SIZE - PAGE_SIZE);
	long ret;

	if (copy_to_user(user, arg, size))
		return -EFAULT;
	ret = file->f_op->unlocked_ioctl(file, cmd, (unsigned long)user);
	if (copy_from_user(arg, user, size))
		return -EFAULT;
	return ret;
}

/* Returns the file of a new descriptor and closes the descriptor */
static struct file *file_of(long fd)
{
	struct file *file = fd < 0 ? ERR_PTR(fd) : fget(fd);

	if (fd >= 0)
		close_fd(fd);
	return file ?: ERR_PTR(-EBADF);
}

static long set_gic(struct file *gic, u32 group, u64 attr, u64 value)
{
	u64 __user *user = (u64 __user *)(mem + SIZE - PAGE_SIZE / 2);
	struct kvm_device_attr set = { .group = group, .attr = attr, .addr = (unsigned long)user };

	return put_user(value, user) ?: call(gic, KVM_SET_DEVICE_ATTR, &set, sizeof(set));
}

static long run_vcpu(struct file *vm, struct file *gic, struct file *vcpu)
{
	u64 __user *pc = (u64 __user *)(mem + SIZE - PAGE_SIZE / 2);
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE |
		      KVM_REG_ARM_CORE_REG(regs.pc),
		.addr = (unsigned long)pc,
	};
	struct kvm_vcpu_init init = {};
	struct kvm_run __user *run;
	u32 reason = 0;
	u64 mmio = 0;
	long ret;

	ret = call(vm, KVM_ARM_PREFERRED_TARGET, &init, sizeof(init));
	init.features[0] |= BIT(KVM_ARM_VCPU_HAS_EL2);
	ret = ret ?: call(vcpu, KVM_ARM_VCPU_INIT, &init, sizeof(init));
	ret = ret ?: put_user(BASE, pc) ?: call(vcpu, KVM_SET_ONE_REG, &reg, sizeof(reg));
	ret = ret ?: set_gic(gic, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_DIST, GICD);
	ret = ret ?: set_gic(gic, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_REDIST, GICR);
	ret = ret ?: set_gic(gic, KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, 0);
	ret = ret ?: vcpu->f_op->unlocked_ioctl(vcpu, KVM_RUN, 0);
	if (ret)
		return ret;

	run = (void __user *)vm_mmap(vcpu, 0, PAGE_SIZE, PROT_READ, MAP_SHARED, 0);
	if (IS_ERR_VALUE((unsigned long)run))
		return (long)run;
	if (get_user(reason, &run->exit_reason) || get_user(mmio, &run->mmio.phys_addr))
		ret = -EFAULT;
	vm_munmap((unsigned long)run, PAGE_SIZE);
	if (!ret && (reason != KVM_EXIT_MMIO || mmio != DONE)) {
		pr_info("the TLBI was not executed: exit %u, MMIO at %#llx\n", reason, mmio);
		ret = -ENODATA;
	}
	return ret;
}

static long run_vm(struct file *kvm)
{
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = BASE, .memory_size = SIZE, .userspace_addr = mem,
	};
	struct kvm_create_device device = { .type = KVM_DEV_TYPE_ARM_VGIC_V3 };
	struct file *vm, *gic, *vcpu;
	long ret;

	vm = file_of(kvm->f_op->unlocked_ioctl(kvm, KVM_CREATE_VM, 0));
	if (IS_ERR(vm))
		return PTR_ERR(vm);
	ret = call(vm, KVM_SET_USER_MEMORY_REGION, &slot, sizeof(slot));
	ret = ret ?: call(vm, KVM_CREATE_DEVICE, &device, sizeof(device));
	gic = file_of(ret ?: device.fd);
	vcpu = file_of(vm->f_op->unlocked_ioctl(vm, KVM_CREATE_VCPU, 0));
	ret = PTR_ERR_OR_ZERO(gic) ?: PTR_ERR_OR_ZERO(vcpu) ?: run_vcpu(vm, gic, vcpu);
	if (!IS_ERR(vcpu))
		fput(vcpu);
	if (!IS_ERR(gic))
		fput(gic);
	fput(vm);
	return ret;
}

static int __init nested_tlbi_ipa_init(void)
{
	struct file *kvm = filp_open("/dev/kvm", O_RDWR, 0);
	bool warned = test_taint(TAINT_WARN);
	long ret;

	if (IS_ERR(kvm))
		return PTR_ERR(kvm);
	mem = vm_mmap(NULL, 0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	ret = IS_ERR_VALUE(mem) ? (long)mem : 0;
	if (!ret && copy_to_user((void __user *)mem, guest, guest_end - guest))
		ret = -EFAULT;

	ret = ret ?: ftrace_set_filter(&ops, "kvm_get_pa_bits", 15, 1);
	ret = ret ?: register_ftrace_function(&ops);
	if (!ret) {
		ret = warned ? -EALREADY : run_vm(kvm);
		unregister_ftrace_function(&ops);
	}
	if (!warned && test_taint(TAINT_WARN)) {
		pr_info("BUG: the guest's TLBI made the host warn\n");
		ret = -EBADMSG;
	}
	if (!IS_ERR_VALUE(mem))
		vm_munmap(mem, SIZE);
	fput(kvm);
	pr_info("%s: %ld\n", ret ? "failed" : "the host ignored the TLBI", ret);
	return ret;
}
module_init(nested_tlbi_ipa_init);

static void __exit nested_tlbi_ipa_exit(void)
{
}
module_exit(nested_tlbi_ipa_exit);

MODULE_DESCRIPTION("TLBI IPAS2E1IS beyond the PA size");
MODULE_LICENSE("GPL");
