// SPDX-License-Identifier: GPL-2.0-only
/*
 * Simulates the faults of a coprocessor (ocxl), which are handled on a CPU that has never run the
 * process. That CPU walks the page table with interrupts disabled, as hash_page_mm() does, while
 * khugepaged collapses the memory. hash__pmdp_collapse_flush() must wait for the walk before it
 * flushes the HPTEs, as the walk may still insert one. For "powerpc/64s/hash: Wait for coprocessor
 * faults on collapse".
 *
 * Needs the hash MMU, KPROBES and at least two CPUs. Loading returns 0 if the flush waits, -EBADMSG
 * if it does not, and other errors if the module cannot tell.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <asm/mmu_context.h>
#include <asm/pte-walk.h>

/* If hash_page_mm() of this kernel marks its CPU as walking, the module must do so, too. */
#if __has_include(<linux/lockless_pgtable_walk.h>)
#include <linux/lockless_pgtable_walk.h>
#else
static void lockless_pgtable_walk_begin(void) { }
#endif

#define COLLAPSES	6
#define PATIENCE	(120 * HZ)	/* then give up */

static struct mm_struct *mm;
static unsigned long start;		/* of the memory to be collapsed */
static unsigned long walking;		/* the address of a walk that has found a PTE */
static int walks, flushes, early;
static DECLARE_COMPLETION(walked);

/* khugepaged is about to flush the HPTEs of a page table */
static int flush(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned long addr = regs->gpr[5];

	if ((void *)regs->gpr[3] != mm || addr - start >= COLLAPSES * PMD_SIZE)
		return 0;
	flushes++;
	if (READ_ONCE(walking) == addr) {
		early++;
		WRITE_ONCE(walking, 0);
	}
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "flush_hash_table_pmd_range",
	.pre_handler = flush,
};

/*
 * Stays in the walk until the HPTEs are about to be flushed or an IPI is pending. If the collapse
 * has not begun, a pending tick also ends the walk. Returns false if there are no small pages.
 */
static bool walk(unsigned long addr, bool *found)
{
	unsigned long flags;
	bool small, thp;
	pte_t *ptep;

	local_irq_save(flags);
	lockless_pgtable_walk_begin();
	ptep = find_linux_pte(mm->pgd, addr, &thp, NULL);
	small = ptep && !thp;
	if (small) {
		*found = true;
		WRITE_ONCE(walking, addr);
		while (READ_ONCE(walking)) {
			u8 happened = READ_ONCE(local_paca->irq_happened);

			if (happened & (PACA_IRQ_EE | PACA_IRQ_DBELL))
				break;
			if (happened & PACA_IRQ_DEC && find_linux_pte(mm->pgd, addr, &thp, NULL))
				break;
		}
		WRITE_ONCE(walking, 0);
	}
	local_irq_restore(flags);
	return small;
}

static int coprocessor(void *unused)
{
	for (int i = 0; i < COLLAPSES; i++) {
		bool found = false;

		while (walk(start + i * PMD_SIZE, &found) && !kthread_should_stop())
			cond_resched();
		walks += found;
	}
	complete(&walked);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 10);
	return 0;
}

static struct task_struct *find_khugepaged(void)
{
	struct task_struct *task, *found = NULL;

	rcu_read_lock();
	for_each_process(task)
		if (!strcmp(task->comm, "khugepaged"))
			found = get_task_struct(task);
	rcu_read_unlock();
	return found;
}

static void set_flags(unsigned long set, unsigned long clear)
{
	mmap_write_lock(mm);
	vm_flags_mod(find_vma(mm, start), set, clear);
	mmap_write_unlock(mm);
}

/*
 * Populates the memory with small pages, then populates one huge page. The huge page registers the
 * process with khugepaged.
 */
static int populate(void)
{
	unsigned long end = start + COLLAPSES * PMD_SIZE;

	set_flags(VM_NOHUGEPAGE, 0);
	for (unsigned long addr = start; addr < end; addr += PAGE_SIZE)
		if (put_user(1, (int __user *)addr))
			return -EFAULT;
	set_flags(VM_HUGEPAGE, VM_NOHUGEPAGE);
	return put_user(1, (int __user *)end);
}

static int __init hash_collapse_copro_init(void)
{
	unsigned long map, size = (COLLAPSES + 2) * PMD_SIZE;
	struct task_struct *khugepaged, *walker;
	unsigned int cpu;
	int ret;

	mm = current->mm;
	khugepaged = find_khugepaged();
	if (radix_enabled() || !khugepaged) {
		pr_info("needs the hash MMU and khugepaged\n");
		return -ENODEV;
	}
	/* neither the process nor khugepaged may run on the walker's CPU */
	set_cpus_allowed_ptr(current, cpumask_of(raw_smp_processor_id()));
	set_cpus_allowed_ptr(khugepaged, cpumask_of(raw_smp_processor_id()));
	cpu = cpumask_first_andnot(cpu_online_mask, mm_cpumask(mm));
	map = vm_mmap(NULL, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	start = ALIGN(map, PMD_SIZE);
	if (cpu >= nr_cpu_ids || IS_ERR_VALUE(map)) {
		pr_info("no CPU that has never run the process, or no memory\n");
		ret = -EAGAIN;
		goto out;
	}
	ret = register_kprobe(&probe);
	if (ret)
		goto out;
	mm_context_add_copro(mm);
	walker = kthread_create_on_cpu(coprocessor, NULL, cpu, "coprocessor/%u");
	ret = PTR_ERR_OR_ZERO(walker);
	if (!ret) {
		get_task_struct(walker);
		ret = populate();
		wake_up_process(walker);
		if (!ret)
			wait_for_completion_timeout(&walked, PATIENCE);
		kthread_stop_put(walker);
	}
	mm_context_remove_copro(mm);
	unregister_kprobe(&probe);
	pr_info("%d walks on CPU %u, %d collapses, %d of them flushed HPTEs during the walk\n",
		walks, cpu, flushes, early);
	if (early)
		ret = -EBADMSG;
	else if (!ret && (walks < COLLAPSES || flushes < COLLAPSES))
		ret = -EAGAIN;
out:
	if (!IS_ERR_VALUE(map))
		vm_munmap(map, size);
	set_cpus_allowed_ptr(khugepaged, cpu_possible_mask);
	put_task_struct(khugepaged);
	return ret;
}

static void __exit hash_collapse_copro_exit(void)
{
}

module_init(hash_collapse_copro_init);
module_exit(hash_collapse_copro_exit);
MODULE_DESCRIPTION("A collapse has to wait for faults of coprocessors");
MODULE_LICENSE("GPL");
