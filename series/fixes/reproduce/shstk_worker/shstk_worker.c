// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests whether a kernel thread that is part of a process gets a shadow stack. No CPU with shadow
 * stacks is needed: the module sets the flag for a shadow stack in the process that loads it. Then
 * the module creates such a thread, which never runs user code. For "x86/shstk: Do not give user
 * workers a shadow stack".
 */
#include <linux/elf.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/regset.h>
#include <linux/sched/signal.h>
#include <linux/sched/vhost_task.h>
#include <asm/prctl.h>

static bool no_work(void *unused)
{
	return false;
}

static void killed(void *unused)
{
}

/* Would the task's core dump have a note with a shadow stack pointer? */
static bool has_ssp(struct task_struct *task)
{
	const struct user_regset_view *view = task_user_regset_view(task);
	unsigned int i;

	for (i = 0; i < view->n; i++) {
		const struct user_regset *regset = &view->regsets[i];

		if (regset->core_note_type == NT_X86_SHSTK)
			return regset->active(task, regset) > 0;
	}
	return false;
}

static int check(struct task_struct *worker)
{
	struct thread_shstk *shstk = &worker->thread.shstk;
	int error = 0;

	if (shstk->size) {
		pr_info("the worker has a shadow stack of %llu kB\n", shstk->size >> 10);
		/* on a CPU with shadow stacks, the worker's exit would do this */
		vm_munmap(shstk->base, shstk->size);
		error = -EBADMSG;
	}
	if (has_ssp(worker)) {
		pr_info("the worker has a shadow stack pointer for ptrace and core dumps\n");
		error = -EBADMSG;
	}
	if (!error)
		pr_info("the worker has no shadow stack\n");
	return error;
}

static int __init shstk_worker_init(void)
{
	unsigned long features = current->thread.features;
	struct task_struct *thread, *worker = NULL;
	struct vhost_task *task;
	int error;

	current->thread.features |= ARCH_SHSTK_SHSTK;
	if (!has_ssp(current)) {
		current->thread.features = features;
		return -EINVAL;
	}
	task = vhost_task_create(no_work, killed, NULL, "shstk_worker");
	current->thread.features = features;
	if (IS_ERR(task))
		return PTR_ERR(task);

	vhost_task_start(task);
	rcu_read_lock();
	for_each_thread(current, thread)
		if (thread->flags & PF_USER_WORKER)
			worker = thread;
	rcu_read_unlock();
	/* the worker exists until vhost_task_stop() below */
	error = worker ? check(worker) : -ESRCH;
	vhost_task_stop(task);
	return error;
}

static void __exit shstk_worker_exit(void)
{
}

module_init(shstk_worker_init);
module_exit(shstk_worker_exit);
MODULE_DESCRIPTION("Shadow stacks of user workers");
MODULE_LICENSE("GPL");
