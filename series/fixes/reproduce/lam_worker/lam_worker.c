// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests whether a process can enable Linear Address Masking (LAM) after it has had a user worker. A
 * user worker is a kernel thread that is part of the process. The module creates a worker for the
 * process that loads the module, and stops the worker. Then it checks the bit that makes
 * ARCH_ENABLE_TAGGED_ADDR return -EBUSY. No CPU with LAM is needed. For "x86/mm: Allow LAM in a
 * process with user workers".
 */
#include <linux/mm_types.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sched/vhost_task.h>

static bool no_work(void *unused)
{
	return false;
}

static void killed(void *unused)
{
}

static bool lam_is_locked(void)
{
	return test_bit(MM_CONTEXT_LOCK_LAM, &current->mm->context.flags);
}

static int __init lam_worker_init(void)
{
	struct vhost_task *task;
	bool is_thread;

	if (lam_is_locked()) {
		pr_info("LAM is locked already\n");
		return -EINVAL;
	}
	task = vhost_task_create(no_work, killed, NULL, "lam_worker");
	if (IS_ERR(task))
		return PTR_ERR(task);
	is_thread = !thread_group_empty(current);
	vhost_task_start(task);
	vhost_task_stop(task);
	if (!is_thread)
		return -ESRCH;

	if (lam_is_locked()) {
		pr_info("a process that had a user worker cannot enable LAM\n");
		return -EBADMSG;
	}
	pr_info("a process that had a user worker can enable LAM\n");
	return 0;
}

static void __exit lam_worker_exit(void)
{
}

module_init(lam_worker_init);
module_exit(lam_worker_exit);
MODULE_DESCRIPTION("LAM in a process with user workers");
MODULE_LICENSE("GPL");
