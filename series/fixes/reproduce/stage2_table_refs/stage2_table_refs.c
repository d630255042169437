// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds a reference to each page of memory while a VM is destroyed. (A PFN walker
 * briefly holds one at a time.) When the references are dropped, all stage-2
 * tables of the VM must be freed. For "KVM: arm64: Count stage-2 entries apart
 * from page references".
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kvm_host.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>
#include <linux/vmstat.h>

#define BASE	0x40000000UL
#define TABLES	512	/* of the last level, for 2 MiB each */
#define SIZE	(TABLES * SZ_2M)

/* Writes to one page of each 2 MiB, then exits by MMIO at 0. */
asm("	.pushsection .rodata\n"
	"	.globl	guest, guest_end\n"
	"	.balign	8\n"
	"guest:\n"
	"	adr	x0, guest\n"
	"	add	x0, x0, #4096\n"
	"	mov	x1, #512\n"
	"1:	str	x1, [x0]\n"
	"	add	x0, x0, #(2 << 20)\n"
	"	subs	x1, x1, #1\n"
	"	b.ne	1b\n"
	"	str	xzr, [x1]\n"
	"guest_end:\n"
	"	.popsection\n");
extern const char guest[], guest_end[];

static unsigned long mem, args;

/* The arguments of ioctl() must be in user memory. */
static long call(struct file *file, unsigned int cmd, void *arg, size_t size)
{
	void __user *user = (void __user *)args;
	long ret;

	if (copy_to_user(user, arg, size))
		return -EFAULT;
	ret = file->f_op->unlocked_ioctl(file, cmd, args);
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

static long run_vcpu(struct file *vm, struct file *vcpu)
{
	u64 __user *pc = (u64 __user *)(args + PAGE_SIZE / 2);
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE |
		      KVM_REG_ARM_CORE_REG(regs.pc),
		.addr = (unsigned long)pc,
	};
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = BASE, .memory_size = SIZE, .userspace_addr = mem,
	};
	struct kvm_vcpu_init init = {};

	return call(vm, KVM_SET_USER_MEMORY_REGION, &slot, sizeof(slot)) ?:
	       call(vm, KVM_ARM_PREFERRED_TARGET, &init, sizeof(init)) ?:
	       call(vcpu, KVM_ARM_VCPU_INIT, &init, sizeof(init)) ?:
	       put_user(BASE, pc) ?:
	       call(vcpu, KVM_SET_ONE_REG, &reg, sizeof(reg)) ?:
	       vcpu->f_op->unlocked_ioctl(vcpu, KVM_RUN, 0);
}

/* Takes a reference to each page in use, and records it in @held */
static void hold_pages(unsigned long *held, unsigned long start, unsigned long nr)
{
	for (unsigned long i = 0; i < nr; i++) {
		struct page *page = pfn_to_online_page(start + i);

		if (page && !PageTail(page) && folio_try_get(page_folio(page)))
			__set_bit(i, held);
		cond_resched();
	}
}

static void drop_pages(unsigned long *held, unsigned long start, unsigned long nr)
{
	unsigned long i;

	for_each_set_bit(i, held, nr) {
		put_page(pfn_to_page(start + i));
		cond_resched();
	}
}

static long run_and_destroy_vm(struct file *kvm, unsigned long *held)
{
	unsigned long start = NODE_DATA(0)->node_start_pfn, nr = NODE_DATA(0)->node_spanned_pages;
	long before = global_node_page_state(NR_SECONDARY_PAGETABLE), mapped, after, ret;
	struct file *vm, *vcpu;

	vm = file_of(kvm->f_op->unlocked_ioctl(kvm, KVM_CREATE_VM, 0));
	if (IS_ERR(vm))
		return PTR_ERR(vm);
	vcpu = file_of(vm->f_op->unlocked_ioctl(vm, KVM_CREATE_VCPU, 0));
	ret = PTR_ERR_OR_ZERO(vcpu) ?: run_vcpu(vm, vcpu);
	mapped = global_node_page_state(NR_SECONDARY_PAGETABLE);

	hold_pages(held, start, nr);
	/* Destroy the VM now, not when this task returns to user space */
	if (!IS_ERR(vcpu))
		__fput_sync(vcpu);
	__fput_sync(vm);
	drop_pages(held, start, nr);

	after = global_node_page_state(NR_SECONDARY_PAGETABLE);
	pr_info("stage-2 tables: %ld before, %ld with a VM, %ld after it\n", before, mapped, after);
	/* The statistics may be off by a few pages per CPU. */
	if (!ret && mapped - before < TABLES / 2)
		ret = -ENODATA;
	if (!ret && after - before > TABLES / 2) {
		pr_info("BUG: the tables of a destroyed VM are leaked\n");
		ret = -EBADMSG;
	}
	return ret;
}

static int __init stage2_table_refs_init(void)
{
	unsigned long nr = NODE_DATA(0)->node_spanned_pages;
	unsigned long *held = vcalloc(BITS_TO_LONGS(nr), sizeof(long));
	struct file *kvm = filp_open("/dev/kvm", O_RDWR, 0);
	long ret = IS_ERR(kvm) ? PTR_ERR(kvm) : -ENOMEM;

	if (!held || IS_ERR(kvm))
		goto out;
	/* The guest's memory, followed by a page for the arguments of ioctl() */
	mem = vm_mmap(NULL, 0, SIZE + PAGE_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, 0);
	if (IS_ERR_VALUE(mem))
		goto out;
	args = mem + SIZE;
	ret = -EFAULT;
	if (!copy_to_user((void __user *)mem, guest, guest_end - guest))
		ret = run_and_destroy_vm(kvm, held);
	vm_munmap(mem, SIZE + PAGE_SIZE);
out:
	vfree(held);
	if (!IS_ERR(kvm))
		fput(kvm);
	pr_info("%s: %ld\n", ret ? "failed" : "no table was leaked", ret);
	return ret;
}
module_init(stage2_table_refs_init);

static void __exit stage2_table_refs_exit(void)
{
}
module_exit(stage2_table_refs_exit);

MODULE_DESCRIPTION("References to the tables of a VM that is destroyed");
MODULE_LICENSE("GPL");
