// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs workloads on an IOVA domain of its own. It builds for any v7.3 kernel.
 *
 *   insmod iova_bench.ko job=burst|steady|running|irqsoff|return|wakeups|locked|full
 *
 * job=locked needs iova_locked.ko: this module with the tree's iova.c built in.
 *
 * Prints each figure to the kernel log, as "iova_bench: NAME VALUE". In a guest with
 * -icount, an instruction takes 1 ns, so times are numbers of instructions. If an
 * instruction takes 1 << N ns, shift=N converts times to numbers of instructions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/iova.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <trace/events/kmem.h>

#define LIMIT_64	((1UL << 36) - 1)	/* 48 bits of address */
#define LIMIT_32	((1UL << 20) - 1)
#define CLASSES		6
#define MAGAZINE	127
#define BURST		1024
#define IN_FLIGHT	256
#define PROBES		16
#define REQUESTS	8000
#define MAX_DEPTH	(160 * MAGAZINE)

static char *job = "";
module_param(job, charp, 0);

static unsigned int shift;
module_param(shift, uint, 0);

/* For job=return: queue IOVAs before they are freed, as in lazy mode */
static bool flush_queue;
module_param(flush_queue, bool, 0);

static unsigned long limit = LIMIT_64;
static bool limit32;
module_param(limit32, bool, 0);

/* Only for durations. To wait, the jobs use ktime_get_ns() without the shift. */
static u64 instructions(void)
{
	return ktime_get_ns() >> shift;
}

static struct iova_domain *iovad;
static unsigned long pfns[MAX_DEPTH];

#ifndef LOCKED
static u64 locked_sum, locked_longest;
#endif

/* Probes of tracepoints */

static struct task_struct *finder;
static struct kmem_cache *nodes_seen, *magazines_seen;
static atomic_long_t magazines, wakeups;

static void on_alloc(void *data, unsigned long call_site, const void *ptr,
		     struct kmem_cache *s, gfp_t gfp_flags, int node)
{
	if (finder == current && kmem_cache_size(s) == sizeof(struct iova))
		nodes_seen = s;
	if (finder == current && kmem_cache_size(s) == (MAGAZINE + 1) * sizeof(long))
		magazines_seen = s;
	if (s == magazines_seen)
		atomic_long_inc(&magazines);
}

static void on_free(void *data, unsigned long call_site, const void *ptr,
		    const struct kmem_cache *s)
{
	if (s == magazines_seen)
		atomic_long_dec(&magazines);
}

static void on_work_start(void *data, struct work_struct *work)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol(name, (unsigned long)work->func);
	if (strstarts(name, "iova_"))
		atomic_long_inc(&wakeups);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;
} work_probes[] = {
	{ "workqueue_execute_start", on_work_start },
};

static void find_work(struct tracepoint *tp, void *priv)
{
	for (int i = 0; i < ARRAY_SIZE(work_probes); i++) {
		if (!strcmp(tp->name, work_probes[i].name))
			work_probes[i].tp = tp;
	}
}

static unsigned long ranges(void)
{
	struct rb_node *node;
	unsigned long nr = 0;

	spin_lock_irq(&iovad->iova_rbtree_lock);
	for (node = rb_first(&iovad->rbroot); node; node = rb_next(node))
		nr++;
	spin_unlock_irq(&iovad->iova_rbtree_lock);

	return nr - 1;
}

/* The domain */

static int domain_init(void)
{
	unsigned long pfn;
	int ret;

	iovad = kzalloc(sizeof(*iovad), GFP_KERNEL);
	if (!iovad)
		return -ENOMEM;
	init_iova_domain(iovad, PAGE_SIZE, 1);
	ret = iova_domain_init_rcaches(iovad);
	if (ret) {
		kfree(iovad);
		return ret;
	}

	/* When the first IOVA and magazine are allocated, the probes record their slab caches. */
	finder = current;
	pfn = alloc_iova_fast(iovad, 1, LIMIT_32, true);
	free_iova_fast(iovad, pfn, 1);
	finder = NULL;

	return nodes_seen && magazines_seen ? 0 : -ENODEV;
}

static void domain_exit(void)
{
	put_iova_domain(iovad);
	kfree(iovad);
}

static void alloc_all(unsigned long nr, unsigned long size)
{
	for (unsigned long i = 0; i < nr; i++)
		pfns[i] = alloc_iova_fast(iovad, size, limit, true);
}

static void free_all(unsigned long nr, unsigned long size)
{
	for (unsigned long i = 0; i < nr; i++)
		free_iova_fast(iovad, pfns[i], size);
}

static int burst_on_cpu(void *unused)
{
	for (int i = 0; i < CLASSES; i++) {
		alloc_all(BURST, 1UL << i);
		free_all(BURST, 1UL << i);
	}
	return 0;
}

static void burst(void)
{
	int cpu;

	for_each_online_cpu(cpu)
		smp_call_on_cpu(cpu, burst_on_cpu, NULL, false);
}

/* Uncached IOVAs at higher addresses than all others. Next to each, an IOVA stays allocated. */
static struct iova *above[3 * PROBES];

static void above_alloc(void)
{
	for (int i = 0; i < ARRAY_SIZE(above); i++) {
		above[i] = alloc_iova(iovad, 64, limit, true);
		alloc_iova(iovad, 1, limit, false);
	}
}

static int cmp_u64(const void *one, const void *other)
{
	u64 a = *(const u64 *)one, b = *(const u64 *)other;

	return a < b ? -1 : a > b;
}

/*
 * Frees an IOVA and allocates a larger one. Returns the median, so single samples that include work
 * of other CPUs do not matter.
 */
static u64 uncached_alloc(int first)
{
	u64 took[PROBES];

	for (int i = 0; i < PROBES; i++) {
		struct iova *iova;
		u64 start;

		__free_iova(iovad, above[first + i]);
		start = instructions();
		iova = alloc_iova(iovad, 128, limit, true);
		took[i] = instructions() - start;
		__free_iova(iovad, iova);
	}
	sort(took, PROBES, sizeof(took[0]), cmp_u64, NULL);

	return took[PROBES / 2];
}

static void wait_until(u64 start, unsigned long ms)
{
	u64 now = ktime_get_ns(), end = start + ms * NSEC_PER_MSEC;

	if (now < end)
		msleep(div_u64(end - now, NSEC_PER_MSEC));
	while (ktime_get_ns() < end)
		usleep_range(100, 200);
}

/* Memory of cached IOVAs. A node has 64 bytes in the base and in the patched kernel. */
static void report_idle(const char *pressure, unsigned long others)
{
	pr_info("idle_bytes_%s %lu\n", pressure, (ranges() - others) * 64 +
		atomic_long_read(&magazines) * (MAGAZINE + 1) * sizeof(long));
}

static void drop_caches(void)
{
	struct file *file = filp_open("/proc/sys/vm/drop_caches", O_WRONLY, 0);
	loff_t pos = 0;

	if (IS_ERR(file)) {
		pr_err("no drop_caches: %pe\n", file);
		return;
	}
	kernel_write(file, "2\n", 2, &pos);
	filp_close(file, NULL);
}

static void job_burst(void)
{
	/* the ranges in above[] and those next to them, which are not cached */
	unsigned long others = 2 * ARRAY_SIZE(above);

	if (limit32)
		limit = LIMIT_32;
	above_alloc();
	pr_info("miss_before_%d %llu\n", limit32 ? 32 : 64, uncached_alloc(0));
	others -= PROBES;
	burst();
	msleep(1000);
	pr_info("idle_ranges_%d %lu\n", limit32 ? 32 : 64, ranges() - others);
	pr_info("miss_after_%d %llu\n", limit32 ? 32 : 64, uncached_alloc(PROBES));
	others -= PROBES;
	if (limit32)
		return;
	report_idle("none", others);
	drop_caches();
	report_idle("all", others);
}

static DEFINE_PER_CPU(struct work_struct, works);

static void on_all_cpus(work_func_t func)
{
	int cpu;

	for_each_online_cpu(cpu) {
		INIT_WORK(per_cpu_ptr(&works, cpu), func);
		schedule_work_on(cpu, per_cpu_ptr(&works, cpu));
	}
	for_each_online_cpu(cpu)
		flush_work(per_cpu_ptr(&works, cpu));
}

/* Bursts on all CPUs at once */

struct fq {
	unsigned long pfn[IN_FLIGHT], size[IN_FLIGHT];
	unsigned int nr;
};

static struct {
	unsigned long pfns[IN_FLIGHT];
	struct fq fq;
} *of_cpu;

static atomic_t to_come, to_go;
static u64 began, ended;

static void fq_flush(struct fq *fq)
{
	for (unsigned int i = 0; i < fq->nr; i++)
		free_iova_fast(iovad, fq->pfn[i], fq->size[i]);
	fq->nr = 0;
}

/* Like queue_iova(): when the queue of a CPU is full, the CPU frees all IOVAs in it. */
static void free_later(struct fq *fq, unsigned long pfn, unsigned long size)
{
	if (fq->nr == IN_FLIGHT - 1)
		fq_flush(fq);
	fq->pfn[fq->nr] = pfn;
	fq->size[fq->nr++] = size;
}

static void burst_with_others(struct work_struct *work)
{
	unsigned int cpu = smp_processor_id();
	unsigned long *mine = of_cpu[cpu].pfns;

	if (atomic_dec_and_test(&to_come))
		began = instructions();
	while (atomic_read(&to_come))
		cpu_relax();

	for (int i = 0; i < CLASSES; i++) {
		for (int j = 0; j < IN_FLIGHT; j++)
			mine[j] = alloc_iova_fast(iovad, 1UL << i, limit, true);
		for (int j = 0; j < IN_FLIGHT; j++) {
			if (flush_queue)
				free_later(&of_cpu[cpu].fq, mine[j], 1UL << i);
			else
				free_iova_fast(iovad, mine[j], 1UL << i);
		}
	}

	if (atomic_dec_and_test(&to_go))
		ended = instructions();
}

/* Instructions of all CPUs, from when all of them have arrived until all are done */
static u64 burst_of_all(void)
{
	unsigned int cpu;

	atomic_set(&to_come, num_online_cpus());
	atomic_set(&to_go, num_online_cpus());
	on_all_cpus(burst_with_others);
	/* One CPU flushes all queues, as the timer of the flush queues does after 10 ms */
	msleep(20);
	preempt_disable();
	for_each_online_cpu(cpu)
		fq_flush(&of_cpu[cpu].fq);
	preempt_enable();

	return ended - began;
}

static void return_after(unsigned int idle_ms)
{
	unsigned long peak, kept;
	u64 start, warm, took;

	burst_of_all();
	warm = burst_of_all();
	start = ktime_get_ns();
	peak = ranges();
	wait_until(start, idle_ms);
	kept = ranges();
	took = burst_of_all();
	pr_info("%s %u %llu %llu %lu %lu %lu\n", flush_queue ? "return_fq" : "return",
		idle_ms, took, warm, peak, kept, ranges());
}

/*
 * A single magazine changes the result of a burst by 10 %. The number of magazines depends on the
 * order in which CPUs get a lock, so the bursts are repeated.
 */
static void job_return(void)
{
	static const unsigned int idle_ms[] = { 500, 5000, 10000, 30000, 300000 };

	of_cpu = vcalloc(nr_cpu_ids, sizeof(*of_cpu));
	if (!of_cpu)
		return;
	burst_of_all();

	for (int i = 0; i < ARRAY_SIZE(idle_ms); i++) {
		for (int times = 3; times; times--)
			return_after(idle_ms[i]);
	}
	vfree(of_cpu);
}

static void job_steady(void)
{
	const unsigned long rounds = 4000, pairs = 1000;
	u64 start;

	start = instructions();
	for (unsigned long i = 0; i < rounds; i++) {
		for (unsigned long j = 0; j < pairs; j++)
			free_iova_fast(iovad, alloc_iova_fast(iovad, 1, limit, true), 1);
		cond_resched();
	}
	pr_info("steady_alloc_free_instructions_x1000 %llu\n",
		(instructions() - start) * 1000 / (rounds * pairs));
}

static unsigned long depth;

static int free_depth(void *unused)
{
	free_all(depth, 1);
	return 0;
}

/* In a full address space, all CPUs flush the caches to get the IOVAs that one CPU has freed. */

#define FULL_EACH	8
#define FULL_PFNS	2048
#define FULL_ROUNDS	1000

static atomic_t failures;

static void full_with_others(struct work_struct *work)
{
	unsigned long *mine = of_cpu[smp_processor_id()].pfns;

	atomic_dec(&to_come);
	while (atomic_read(&to_come))
		cpu_relax();

	for (int i = 0; i < FULL_EACH; i++) {
		mine[i] = alloc_iova_fast(iovad, 1, FULL_PFNS, true);
		if (!mine[i])
			atomic_inc(&failures);
	}
}

static void job_full(void)
{
	of_cpu = vcalloc(nr_cpu_ids, sizeof(*of_cpu));
	if (!of_cpu)
		return;
	for (int i = 0; i < FULL_PFNS; i++)
		pfns[i] = alloc_iova_fast(iovad, 1, FULL_PFNS, true);

	depth = num_online_cpus() * FULL_EACH;
	for (int round = 0; round < FULL_ROUNDS; round++) {
		unsigned long nr = 0;
		int cpu;

		smp_call_on_cpu(cpumask_last(cpu_online_mask), free_depth, NULL, false);
		atomic_set(&to_come, num_online_cpus());
		on_all_cpus(full_with_others);
		for_each_online_cpu(cpu) {
			for (int i = 0; i < FULL_EACH; i++)
				pfns[nr++] = of_cpu[cpu].pfns[i] ?:
					     alloc_iova_fast(iovad, 1, FULL_PFNS, true);
		}
	}
	pr_info("spurious_failures %d\n", atomic_read(&failures));
	vfree(of_cpu);
}

/* Requests of mixed sizes, some too large for the caches. At any time, 256 IOVAs are in use. */
static struct { unsigned long pfn, size; } live[256];
static struct rnd_state rnd;

static void replace(int at, unsigned long size)
{
	if (live[at].size)
		free_iova_fast(iovad, live[at].pfn, live[at].size);
	live[at].size = size;
	if (size)
		live[at].pfn = alloc_iova_fast(iovad, size, limit, true);
}

static void mixed_traffic(const char *when, unsigned int every_s)
{
	static const unsigned long sizes[] = { 1, 1, 1, 8, 40, 64, 96, 128 };
	u64 start = instructions();

	for (int i = 0; i < REQUESTS; i++) {
		replace(i % ARRAY_SIZE(live), sizes[prandom_u32_state(&rnd) % ARRAY_SIZE(sizes)]);
		cond_resched();
	}
	pr_info("traffic_%u_%s %llu\n", every_s, when, instructions() - start);
}

static void no_traffic(void)
{
	for (int at = 0; at < ARRAY_SIZE(live); at++)
		replace(at, 0);
}

/* Traffic that begins before the bursts, so its ranges are above those of the bursts */
static void running(unsigned int every_s)
{
	static const unsigned int at[] = { 1, 2, 5, 10 };
	u64 start;

	prandom_seed_state(&rnd, 21);
	mixed_traffic("first", every_s);
	mixed_traffic("before", every_s);
	burst();
	start = ktime_get_ns();
	for (int i = 0; i < ARRAY_SIZE(at); i++) {
		char name[8];

		wait_until(start, at[i] * MSEC_PER_SEC);
		if (every_s && at[i] % every_s == 0)
			burst();
		snprintf(name, sizeof(name), "%us", at[i]);
		mixed_traffic(name, every_s);
	}
	no_traffic();
}

static void job_running(void)
{
	running(0);
	running(5);
}

/* Counts work items after a burst: for two minutes without maps, then for two minutes with maps */
static void job_wakeups(void)
{
	u64 start;

	burst();
	start = ktime_get_ns();
	wait_until(start, 60 * MSEC_PER_SEC);
	atomic_long_set(&wakeups, 0);
	wait_until(start, 180 * MSEC_PER_SEC);
	pr_info("wakeups_idle_x2 %ld\n", atomic_long_read(&wakeups));
	atomic_long_set(&wakeups, 0);
	for (int i = 0; i < 24; i++) {
		free_iova_fast(iovad, alloc_iova_fast(iovad, 1, limit, true), 1);
		wait_until(start, (185 + 5 * i) * MSEC_PER_SEC);
	}
	pr_info("wakeups_map_x2 %ld\n", atomic_long_read(&wakeups));
}

/* The largest delay of a hard interrupt that is due every 20 us */

static struct hrtimer late_timer;
static s64 latest;

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	latest = max(latest, ktime_to_ns(ktime_sub(ktime_get(), hrtimer_get_expires(timer))));
	hrtimer_forward_now(timer, us_to_ktime(20));
	return HRTIMER_RESTART;
}

static void report_late(const char *name)
{
	pr_info("irqsoff_ns_%s %lld\n", name, latest);
	latest = 0;
}

static void job_irqsoff(void)
{
	u64 start;

	above_alloc();
	hrtimer_setup(&late_timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&late_timer, us_to_ktime(20), HRTIMER_MODE_REL_PINNED_HARD);

	/* This runs for a second, because the timer takes a sample only every 20 us. */
	latest = 0;
	start = ktime_get_ns();
	while (ktime_get_ns() - start < NSEC_PER_SEC) {
		alloc_all(MAX_DEPTH, 1);
		free_all(MAX_DEPTH, 1);
		cond_resched();
	}
	report_late("traffic");
	uncached_alloc(0);
	report_late("uncached");
	/* Larger than the free space: all caches are flushed, and the allocation fails. */
	alloc_iova_fast(iovad, limit, limit - 1, true);
	report_late("flush");
	burst();
	latest = 0;
	drop_caches();
	report_late("shrink");
	limit = LIMIT_32;
	burst();
	report_late("burst_32-bit");
	alloc_iova_fast(iovad, limit, limit - 1, true);
	report_late("flush_32-bit");
	burst();
	latest = 0;
	drop_caches();
	report_late("shrink_32-bit");
	hrtimer_cancel(&late_timer);
}

/* Instructions that all CPUs execute with the rbtree's lock held, and the longest hold */

static void report_locked(const char *workload)
{
	pr_info("locked_sum_%s %llu\n", workload, locked_sum >> shift);
	pr_info("locked_longest_%s %llu\n", workload, locked_longest >> shift);
	locked_sum = locked_longest = 0;
}

static void job_locked(void)
{
	of_cpu = vcalloc(nr_cpu_ids, sizeof(*of_cpu));
	if (!of_cpu)
		return;
	locked_sum = locked_longest = 0;
	burst_of_all();
	report_locked("first_burst");
	burst_of_all();
	locked_sum = locked_longest = 0;
	msleep(30000);
	report_locked("idle_30_s");
	burst_of_all();
	report_locked("burst_again");
	drop_caches();
	report_locked("shrink");
	burst_of_all();
	report_locked("burst_after_shrinking");
	vfree(of_cpu);
}

static const struct {
	const char *name;
	void (*run)(void);
} jobs[] = {
	{ "burst", job_burst },
	{ "steady", job_steady },
	{ "running", job_running },
	{ "irqsoff", job_irqsoff },
	{ "return", job_return },
	{ "wakeups", job_wakeups },
	{ "locked", job_locked },
	{ "full", job_full },
};

static int __init bench_init(void)
{
	bool probed;
	int ret;

	for_each_kernel_tracepoint(find_work, NULL);
	for (int i = 0; i < ARRAY_SIZE(work_probes); i++) {
		if (!work_probes[i].tp)
			return -ENODEV;
	}

	ret = iova_cache_get();
	if (ret)
		return ret;
	/* probes would add to the instructions that these jobs count */
	probed = strcmp(job, "steady") && strcmp(job, "return") && strcmp(job, "locked");
	if (probed) {
		register_trace_kmem_cache_alloc(on_alloc, NULL);
		register_trace_kmem_cache_free(on_free, NULL);
		for (int i = 0; i < ARRAY_SIZE(work_probes); i++)
			tracepoint_probe_register(work_probes[i].tp, work_probes[i].probe, NULL);
	} else {
		nodes_seen = magazines_seen = ERR_PTR(-ENOENT);
	}

	ret = domain_init();
	if (ret) {
		pr_err("no domain: %d\n", ret);
	} else {
		for (int i = 0; i < ARRAY_SIZE(jobs); i++) {
			if (!strcmp(job, jobs[i].name))
				jobs[i].run();
		}
		domain_exit();
	}

	if (probed) {
		for (int i = 0; i < ARRAY_SIZE(work_probes); i++)
			tracepoint_probe_unregister(work_probes[i].tp, work_probes[i].probe, NULL);
		unregister_trace_kmem_cache_free(on_free, NULL);
		unregister_trace_kmem_cache_alloc(on_alloc, NULL);
		tracepoint_synchronize_unregister();
	}
	iova_cache_put();

	return ret;
}

static void __exit bench_exit(void)
{
}

module_init(bench_init);
module_exit(bench_exit);
MODULE_DESCRIPTION("Workloads on an IOVA domain");
MODULE_LICENSE("GPL");
