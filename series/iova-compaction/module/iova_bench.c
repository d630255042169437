// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workloads on an IOVA domain of their own, the same on any v7.3 kernel:
 *
 *   insmod iova_bench.ko job=burst|steady|hits|shift|running|irqsoff|return|pass|full|crowd
 *
 * Figures go to the kernel log, a line each: "iova_bench: NAME VALUE". In a guest
 * whose time is the number of instructions, so are the nanoseconds here; where
 * an instruction takes 1 << shift of them, shift=N makes it one again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/delay.h>
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

#define LIMIT		((1UL << 36) - 1)	/* 48 bits of address */
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

/* Those of job=return: what is freed is queued first, as in lazy mode */
static bool flush_queue;
module_param(flush_queue, bool, 0);

/* For how long something takes; what has to happen at some time is another thing. */
static u64 instructions(void)
{
	return ktime_get_ns() >> shift;
}

static struct iova_domain *iovad;
static unsigned long pfns[MAX_DEPTH];

/* What the kernel's tracepoints say */

static struct task_struct *finder;
static struct kmem_cache *iova_cache, *magazine_cache;
static atomic_long_t misses, magazines, passes;
static u64 pass_start, pass_took[64];

static void on_alloc(void *data, unsigned long call_site, const void *ptr,
		     struct kmem_cache *s, gfp_t gfp_flags, int node)
{
	if (finder == current && kmem_cache_size(s) == sizeof(struct iova))
		iova_cache = s;
	if (finder == current && kmem_cache_size(s) == (MAGAZINE + 1) * sizeof(long))
		magazine_cache = s;
	if (s == iova_cache)
		atomic_long_inc(&misses);
	if (s == magazine_cache)
		atomic_long_inc(&magazines);
}

static void on_free(void *data, unsigned long call_site, const void *ptr,
		    const struct kmem_cache *s)
{
	if (s == magazine_cache)
		atomic_long_dec(&magazines);
}

static bool is_pass(void *func)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol(name, (unsigned long)func);
	return strstarts(name, "iova_");
}

/* The markers are for plugin.c of passes/, where time is not instructions. */
static void on_work_start(void *data, struct work_struct *work)
{
	if (!is_pass(work->func))
		return;
	pass_start = instructions();
	asm volatile("xchg %%r14, %%r14" ::: "memory");
}

/* One at a time: where this is looked at, only one of the base's works is due, one for each size. */
static void on_work_end(void *data, struct work_struct *work, void *func)
{
	u64 end;

	asm volatile("xchg %%r13, %%r13" ::: "memory");
	end = instructions();
	if (is_pass(func))
		pass_took[atomic_long_inc_return(&passes) % ARRAY_SIZE(pass_took)] =
			end - pass_start;
}

static int cmp_took(const void *one, const void *other)
{
	u64 a = *(const u64 *)one, b = *(const u64 *)other;

	return a < b ? -1 : a > b;
}

/* The median of the passes' instructions since @passes was 0, when other CPUs did nothing meanwhile */
static u64 pass_median(void)
{
	long nr = min_t(long, atomic_long_read(&passes), ARRAY_SIZE(pass_took) - 1);

	if (!nr)
		return 0;
	sort(pass_took + 1, nr, sizeof(*pass_took), cmp_took, NULL);
	return pass_took[1 + nr / 2];
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;
} work_probes[] = {
	{ "workqueue_execute_start", on_work_start },
	{ "workqueue_execute_end", on_work_end },
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

	/* Its first IOVA and magazine tell the slab caches. */
	finder = current;
	pfn = alloc_iova_fast(iovad, 1, LIMIT, true);
	free_iova_fast(iovad, pfn, 1);
	finder = NULL;

	return iova_cache && magazine_cache ? 0 : -ENODEV;
}

static void domain_exit(void)
{
	put_iova_domain(iovad);
	kfree(iovad);
}

static void alloc_all(unsigned long nr, unsigned long size)
{
	for (unsigned long i = 0; i < nr; i++)
		pfns[i] = alloc_iova_fast(iovad, size, LIMIT, true);
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

/* Uncached IOVAs above everything else, each with a neighbour that stays */
static struct iova *above[3 * PROBES];

static void above_alloc(void)
{
	for (int i = 0; i < ARRAY_SIZE(above); i++) {
		above[i] = alloc_iova(iovad, 64, LIMIT, true);
		alloc_iova(iovad, 1, LIMIT, false);
	}
}

/* Free one of them and ask for a larger one. */
static u64 uncached_alloc(int first)
{
	u64 sum = 0;

	for (int i = first; i < first + PROBES; i++) {
		struct iova *iova;
		u64 start;

		__free_iova(iovad, above[i]);
		start = instructions();
		iova = alloc_iova(iovad, 128, LIMIT, true);
		sum += instructions() - start;
		__free_iova(iovad, iova);
	}

	return sum / PROBES;
}

static void wait_until(u64 start, unsigned long ms)
{
	u64 now = ktime_get_ns(), end = start + ms * NSEC_PER_MSEC;

	if (now < end)
		msleep(div_u64(end - now, NSEC_PER_MSEC));
	while (ktime_get_ns() < end)
		usleep_range(100, 200);
}

static void job_burst(void)
{
	static const unsigned int at[] = { 0, 2, 5, 10, 15, 20, 30, 60, 120, 240, 300 };
	/* of above[] and their neighbours; what is left of them is not the caches' */
	unsigned long others = 2 * ARRAY_SIZE(above);
	u64 start;

	above_alloc();
	pr_info("uncached_alloc_ns_before %llu\n", uncached_alloc(0));
	others -= PROBES;
	burst();
	start = ktime_get_ns();

	for (int i = 0; i < ARRAY_SIZE(at); i++) {
		wait_until(start, at[i] * MSEC_PER_SEC);
		pr_info("at %u %lu %ld\n", at[i], ranges() - others,
			atomic_long_read(&magazines));
		if (at[i] == 10 || at[i] == 60) {
			pr_info("uncached_alloc_ns_%u %llu\n", at[i],
				uncached_alloc(at[i] == 10 ? PROBES : 2 * PROBES));
			others -= PROBES;
		}
		if (at[i] == 240)
			atomic_long_set(&passes, 0);
	}
	pr_info("idle_wakeups_per_min %ld\n", atomic_long_read(&passes));
	pr_info("cpus %u\n", num_online_cpus());
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

/* As queue_iova() does it: a CPU frees what it has queued when its queue is full. */
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
			mine[j] = alloc_iova_fast(iovad, 1UL << i, LIMIT, true);
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

/* Instructions of all CPUs, from when the last one has come until the last one is done */
static u64 burst_of_all(void)
{
	unsigned int cpu;

	atomic_set(&to_come, num_online_cpus());
	atomic_set(&to_go, num_online_cpus());
	on_all_cpus(burst_with_others);
	/* As the queues' timer does, 10 ms later and on one CPU */
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
 * Whether one magazine more or less is there takes 10 % of a burst, and which CPU gets a lock
 * first decides that. So the short ones, where little else does, are repeated.
 */
static void job_return(void)
{
	static const unsigned int idle_ms[] = { 500, 1000, 2000, 5000, 10000, 15000, 20000, 30000,
						60000, 120000, 300000 };

	of_cpu = vcalloc(nr_cpu_ids, sizeof(*of_cpu));
	if (!of_cpu)
		return;
	burst_of_all();

	for (int i = 0; i < ARRAY_SIZE(idle_ms); i++) {
		for (int times = idle_ms[i] > 5000 ? 1 : 11; times; times--)
			return_after(idle_ms[i]);
	}
	vfree(of_cpu);
}

/* All CPUs use all sizes, a little at a time: what a pass costs that finds nothing to give back */

static void a_few_of_each(struct work_struct *work)
{
	for (int i = 0; i < CLASSES; i++)
		free_iova_fast(iovad, alloc_iova_fast(iovad, 1UL << i, LIMIT, true), 1UL << i);
}

static void job_pass(void)
{
	u64 start = ktime_get_ns();

	for (int i = 0; i < 120; i++) {
		on_all_cpus(a_few_of_each);
		if (i == 20)
			atomic_long_set(&passes, 0);
		wait_until(start, 500 * i + 250);
	}
	pr_info("passes_in_50s %ld\n", atomic_long_read(&passes));
	pr_info("pass_instructions %llu\n", pass_median());
}

/* For plugin.c of irqsoff/ */
static void marker(void)
{
	asm volatile("xchg %%r15, %%r15" ::: "memory");
}

static void many_of_each(struct work_struct *work)
{
	u64 start = ktime_get_ns();

	while (ktime_get_ns() - start < 15 * NSEC_PER_SEC) {
		a_few_of_each(NULL);
		usleep_range(1000, 1100);
	}
}

/* What a burst has cached drains, of all sizes, while all CPUs go on to use a little */
static void job_crowd(void)
{
	of_cpu = vcalloc(nr_cpu_ids, sizeof(*of_cpu));
	if (!of_cpu)
		return;
	burst_of_all();
	marker();
	burst();
	alloc_all(MAX_DEPTH, 1);
	free_all(MAX_DEPTH, 1);
	on_all_cpus(many_of_each);
	marker();
	vfree(of_cpu);
}

static void job_steady(void)
{
	const unsigned long rounds = 4000, pairs = 1000;
	u64 start;

	start = instructions();
	for (unsigned long i = 0; i < rounds; i++) {
		for (unsigned long j = 0; j < pairs; j++)
			free_iova_fast(iovad, alloc_iova_fast(iovad, 1, LIMIT, true), 1);
		cond_resched();
	}
	pr_info("steady_alloc_free_instructions_x1000 %llu\n",
		(instructions() - start) * 1000 / (rounds * pairs));
}

static unsigned long depth;

static int alloc_depth(void *unused)
{
	alloc_all(depth, 1);
	return 0;
}

static int free_depth(void *unused)
{
	free_all(depth, 1);
	return 0;
}

/* For 30 seconds, of which the first five do not count, as many as @nr at a time */
static void steady_hits(const char *name, unsigned long nr, int free_cpu)
{
	unsigned long allocs = 0, first = 0, before = 0;
	u64 start = ktime_get_ns(), now;

	depth = nr;
	do {
		now = ktime_get_ns() - start;
		if (now > 5 * (u64)NSEC_PER_SEC && !before) {
			before = atomic_long_read(&misses) + 1;
			first = allocs;
		}
		smp_call_on_cpu(0, alloc_depth, NULL, false);
		smp_call_on_cpu(free_cpu, free_depth, NULL, false);
		allocs += nr;
		usleep_range(10000, 10100);
	} while (now < 30 * (u64)NSEC_PER_SEC);

	allocs -= first;
	before = atomic_long_read(&misses) + 1 - before;
	pr_info("hit_rate_%s_x1000 %lu\n", name, 100000 - before * 100000 / allocs);
}

static void job_hits(void)
{
	burst();
	steady_hits("1", 1, 0);
	steady_hits("32", 32, 0);
	steady_hits("300", 300, 0);
	if (num_online_cpus() > 1)
		steady_hits("32_two_cpus", 32, 1);
}

/* A full address space: what one CPU frees is what all want, and all flush the caches to find it. */

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

/* Requests of mixed sizes, also larger than what is cached, 256 at a time */
static struct { unsigned long pfn, size; } live[256];
static struct rnd_state rnd;

static void replace(int at, unsigned long size)
{
	if (live[at].size)
		free_iova_fast(iovad, live[at].pfn, live[at].size);
	live[at].size = size;
	if (size)
		live[at].pfn = alloc_iova_fast(iovad, size, LIMIT, true);
}

static void mixed_traffic(const char *workload, const char *when)
{
	static const unsigned long sizes[] = { 1, 1, 1, 8, 40, 64, 96, 128 };
	long missed = atomic_long_read(&misses);
	u64 start = instructions();

	for (int i = 0; i < REQUESTS; i++) {
		replace(i % ARRAY_SIZE(live), sizes[prandom_u32_state(&rnd) % ARRAY_SIZE(sizes)]);
		cond_resched();
	}
	pr_info("shift_ns_%s_%s %llu\n", workload, when, (instructions() - start) / REQUESTS);
	pr_info("shift_misses_%s_%s %ld\n", workload, when, atomic_long_read(&misses) - missed);
}

static void no_traffic(void)
{
	for (int at = 0; at < ARRAY_SIZE(live); at++)
		replace(at, 0);
}

static void job_shift(void)
{
	/* A workload that begins after the burst, and what it gets from a fresh domain */
	prandom_seed_state(&rnd, 21);
	mixed_traffic("new", "fresh");
	no_traffic();
	burst();
	msleep(2000);
	prandom_seed_state(&rnd, 21);
	mixed_traffic("new", "2s");
	no_traffic();
	burst();
	msleep(60000);
	prandom_seed_state(&rnd, 21);
	mixed_traffic("new", "60s");
	no_traffic();
}

static void job_running(void)
{
	static const unsigned int at[] = { 2, 5, 10, 15, 20, 30, 60 };
	u64 start;

	/* One that had ranges before the burst: above all that it leaves */
	prandom_seed_state(&rnd, 21);
	mixed_traffic("running", "first");
	mixed_traffic("running", "fresh");
	burst();
	start = ktime_get_ns();
	for (int i = 0; i < ARRAY_SIZE(at); i++) {
		char name[8];

		wait_until(start, at[i] * MSEC_PER_SEC);
		snprintf(name, sizeof(name), "%us", at[i]);
		mixed_traffic("running", name);
	}
	no_traffic();
}

/* How late a hard interrupt is that is due every 20 us */

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

	/* A second of it: the timer looks only every 20 us. */
	latest = 0;
	start = ktime_get_ns();
	while (ktime_get_ns() - start < NSEC_PER_SEC) {
		alloc_all(MAX_DEPTH, 1);
		free_all(MAX_DEPTH, 1);
		cond_resched();
	}
	report_late("traffic");
	/* What is cached drains: here of one size, and below of all of them. */
	msleep(20000);
	report_late("drain");
	uncached_alloc(0);
	report_late("uncached");
	burst();
	alloc_all(MAX_DEPTH, 1);
	free_all(MAX_DEPTH, 1);
	report_late("traffic2");
	/* More than there is: everything is flushed, and to no avail. */
	alloc_iova_fast(iovad, LIMIT, LIMIT - 1, true);
	report_late("flush");
	burst();
	msleep(20000);
	report_late("drain_all");
	hrtimer_cancel(&late_timer);
}

static const struct {
	const char *name;
	void (*run)(void);
} jobs[] = {
	{ "burst", job_burst },
	{ "steady", job_steady },
	{ "hits", job_hits },
	{ "shift", job_shift },
	{ "running", job_running },
	{ "irqsoff", job_irqsoff },
	{ "return", job_return },
	{ "pass", job_pass },
	{ "full", job_full },
	{ "crowd", job_crowd },
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
	/* not where instructions are counted */
	probed = strcmp(job, "steady") && strcmp(job, "return") && strcmp(job, "crowd");
	if (probed) {
		register_trace_kmem_cache_alloc(on_alloc, NULL);
		register_trace_kmem_cache_free(on_free, NULL);
		for (int i = 0; i < ARRAY_SIZE(work_probes); i++)
			tracepoint_probe_register(work_probes[i].tp, work_probes[i].probe, NULL);
	} else {
		iova_cache = magazine_cache = ERR_PTR(-ENOENT);
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
