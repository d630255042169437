// SPDX-License-Identifier: GPL-2.0-only
/*
 * For "iommu/iova: Do not hide IOVAs while the depot shrinks". Frees all IOVAs of a small domain
 * into its caches. A hardware breakpoint on the depot's lock stops the depot's work as soon as the
 * work has released the lock. Then another CPU allocates all IOVAs again, and no allocation may
 * fail.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/hw_breakpoint.h>
#include <linux/iova.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#define MAGAZINE	127
#define POLLERS		2

static struct iova_domain iovad;
static unsigned long total, in_tree, got;
static bool armed, go;
static atomic_t stopped = ATOMIC_INIT(-1), allocators = ATOMIC_INIT(0);
static DECLARE_COMPLETION(done);

/* The first cache is for single pages. It begins with the lock of its depot. */
static spinlock_t *depot_lock(void)
{
	return (spinlock_t *)iovad.rcaches;
}

/* Runs after each write to the depot's lock */
static void on_write(struct perf_event *event, struct perf_sample_data *data,
		     struct pt_regs *regs)
{
	bool tree_locked = spin_is_locked(&iovad.iova_rbtree_lock);

	if (!READ_ONCE(armed) || !(current->flags & PF_WQ_WORKER) || spin_is_locked(depot_lock()))
		return;
	if (atomic_cmpxchg(&stopped, -1, raw_smp_processor_id()) != -1)
		return;
	/* Do not stop the work while it holds the rbtree's lock: allocations wait for that lock. */
	while (!tree_locked && !READ_ONCE(go))
		cpu_relax();
}

static unsigned long count(void)
{
	unsigned long flags, nr = 0;
	struct rb_node *node;

	spin_lock_irqsave(&iovad.iova_rbtree_lock, flags);
	for (node = rb_first(&iovad.rbroot); node; node = rb_next(node))
		nr++;
	spin_unlock_irqrestore(&iovad.iova_rbtree_lock, flags);
	return nr - 1;	/* without the anchor */
}

/*
 * Runs on each of two CPUs, and allocates on the CPU that is not stopped. It does not sleep, as the
 * stopped CPU may have to handle the timers of an idle CPU.
 */
static int poll(void *unused)
{
	while (atomic_read(&stopped) < 0)
		cond_resched();
	if (atomic_read(&stopped) != raw_smp_processor_id() && !atomic_fetch_inc(&allocators)) {
		in_tree = count();
		while (alloc_iova_fast(&iovad, 1, total, true))
			got++;
		WRITE_ONCE(go, true);
		complete(&done);
	}
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static int run(void)
{
	struct task_struct *pollers[POLLERS];
	struct perf_event * __percpu *watch;
	struct perf_event_attr attr;
	unsigned long i;
	int cpu = -1;

	if (num_online_cpus() < POLLERS) {
		pr_info("cannot tell: one CPU\n");
		return -ENODEV;
	}
	/* Two magazines stay on the CPU that frees IOVAs, and one per CPU stays in the depot. */
	total = (num_online_cpus() + 4) * MAGAZINE;
	for (i = 0; alloc_iova_fast(&iovad, 1, total, true); i++)
		;
	if (i != total) {
		pr_info("cannot tell: %lu of %lu IOVAs\n", i, total);
		return -ENOMEM;
	}

	hw_breakpoint_init(&attr);
	attr.bp_addr = (unsigned long)depot_lock();
	attr.bp_len = HW_BREAKPOINT_LEN_4;
	attr.bp_type = HW_BREAKPOINT_W;
	watch = register_wide_hw_breakpoint(&attr, on_write, NULL);
	if (IS_ERR_PCPU(watch)) {
		pr_info("cannot tell: no hardware breakpoint\n");
		return PTR_ERR_PCPU(watch);
	}
	for (i = 0; i < POLLERS; i++) {
		cpu = cpumask_next(cpu, cpu_online_mask);
		pollers[i] = kthread_create_on_cpu(poll, NULL, cpu, "iova_depot/%u");
		if (IS_ERR(pollers[i])) {
			while (i--)
				kthread_stop(pollers[i]);
			unregister_wide_hw_breakpoint(watch);
			return -ENOMEM;
		}
	}

	/* Free all IOVAs on this CPU. The work may be queued on it, and must not run meanwhile. */
	preempt_disable();
	for (i = 1; i <= total; i++)
		free_iova_fast(&iovad, i, 1);
	WRITE_ONCE(armed, true);
	preempt_enable();

	for (i = 0; i < POLLERS; i++)
		wake_up_process(pollers[i]);
	wait_for_completion(&done);
	for (i = 0; i < POLLERS; i++)
		kthread_stop(pollers[i]);
	unregister_wide_hw_breakpoint(watch);

	pr_info("%lu IOVAs, %lu of them in the rbtree, %lu allocated, %lu failed\n", total, in_tree,
		got, total - got);
	if (got < total)
		return -EBADMSG;
	if (in_tree == total) {
		pr_info("cannot tell: the work freed no magazine\n");
		return -ENODATA;
	}
	return 0;
}

static int __init iova_depot_init(void)
{
	int ret = iova_cache_get();

	if (ret)
		return ret;
	init_iova_domain(&iovad, PAGE_SIZE, 1);
	ret = iova_domain_init_rcaches(&iovad);
	if (!ret)
		ret = run();
	put_iova_domain(&iovad);
	iova_cache_put();
	return ret;
}
module_init(iova_depot_init);

static void __exit iova_depot_exit(void)
{
}
module_exit(iova_depot_exit);

MODULE_DESCRIPTION("Allocations while the depot's work frees a magazine");
MODULE_LICENSE("GPL");
