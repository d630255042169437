// SPDX-License-Identifier: GPL-2.0-only
/*
 * iova_bench.c with its own copy of iova.c. The copy counts the instructions that are executed
 * while iova_rbtree_lock is held. Interrupts are disabled during that time. One vCPU runs at a
 * time, so the count may include instructions of other vCPUs that wait for the lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/spinlock.h>
#include <linux/iova.h>
#include <asm/msr.h>

#define LOCKED

static u64 locked_sum, locked_longest, locked_since;

#define is_rbtree_lock(lock)	__builtin_strstr(#lock, "iova_rbtree_lock")

static inline void locked_begin(void)
{
	locked_since = rdtsc();
}

static inline void locked_end(void)
{
	u64 took = rdtsc() - locked_since;

	locked_sum += took;
	locked_longest = took > locked_longest ? took : locked_longest;
}

#undef spin_lock_irqsave
#define spin_lock_irqsave(lock, flags)					\
	do {								\
		raw_spin_lock_irqsave(spinlock_check(lock), flags);	\
		if (is_rbtree_lock(lock))				\
			locked_begin();					\
	} while (0)

#define spin_unlock_irqrestore(lock, flags)				\
	do {								\
		if (is_rbtree_lock(lock))				\
			locked_end();					\
		(spin_unlock_irqrestore)(lock, flags);			\
	} while (0)

#undef EXPORT_SYMBOL_GPL
#define EXPORT_SYMBOL_GPL(symbol)

/* The kernel's iova.c already uses its hotplug state. This other state is unused on x86. */
#define CPUHP_IOMMU_IOVA_DEAD	CPUHP_S390_PFAULT_DEAD

#include "iova.c"

#undef spin_lock_irqsave
#define spin_lock_irqsave(lock, flags)	raw_spin_lock_irqsave(spinlock_check(lock), flags)
#undef spin_unlock_irqrestore

#include "iova_bench.c"
