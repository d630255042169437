// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs the workloads of all topics at once and disturbs them. At the end, they
 * must leave nothing behind. Prints KTAP.
 *
 *   soak MINUTES SEED [BDF BDF BDF BDF]
 *
 * The devices are bound to vfio-pci. The first two are for VFIO containers, the
 * third for iommufd, and the last for the kernel's own DMA.
 */
#define _GNU_SOURCE
#include <err.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "soak.h"
#include "lib/vm.h"

#define KMEMLEAK "/sys/kernel/debug/kmemleak"
#define END_S 200	/* time in which all actors must end, with KASAN under emulation */
#define CORE "/tmp/soak.core"
#define CORE_MAX (16UL << 20)
#define SETTLE_S 30	/* time in which the kernel must free the resources of ended processes */

struct actor {
	const char *name;
	void (*run)(const char *bdf, int slot);
	int slot;	/* the first slot of its victims, and the number of its random sequence */
	bool maps;	/* needs a device */
	const char *bdf;
	pid_t pid;
};

static struct actor actors[] = {
	{ "type1", type1_director, 0, true },
	{ "type1", type1_director, MAPPERS, true },
	{ "iommufd", iommufd_director, 2 * MAPPERS, true },
	{ "pages", pages_director, 3 * MAPPERS },
	{ "vms", vms_director, MAX_VICTIMS - VMS },
	{ "dma", dma_director, MAX_VICTIMS, true },
	{ "trouble", trouble, MAX_VICTIMS + 1 },
	{ "hotplug", hotplug, MAX_VICTIMS + 2 },
};

#define NR_ACTORS (sizeof(actors) / sizeof(*actors))

static const char *const count_names[NR_COUNTS] = {
	[TYPE1] = "type1", [IOMMUFD] = "iommufd", [DMA] = "dma",
	[FORK] = "fork", [EXEC] = "exec", [COLLAPSE] = "collapse", [SPLIT] = "split",
	[WALK] = "walk", [VM] = "vm", [HOTPLUG] = "hotplug", [KILL] = "kill", [DUMP] = "dump",
	[STOP] = "stop", [FREEZE] = "freeze", [MIGRATE] = "migrate", [LIMIT] = "limit",
};

static struct {
	char name[64];
	const char *word, *skip;
} results[64];
static int nr_results;
static unsigned long tables_before;	/* page tables of other VMs, such as keep_vm's */

struct shared *shared;
static __thread uint64_t state;

bool over(void)
{
	return __atomic_load_n(&shared->end, __ATOMIC_RELAXED);
}

void add(unsigned long *sum, unsigned long more)
{
	__atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
}

void counted(enum count what)
{
	add(&shared->count[what], 1);
}

/* splitmix64 */
static uint64_t next(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

void seed_random(uint64_t stream)
{
	state = shared->seed;
	state = next() + stream;
	state = next();
}

uint64_t rnd(uint64_t below)
{
	return next() % below;
}

void rest(unsigned int most_ms)
{
	usleep(rnd(most_ms * 1000UL) + 1);
}

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

void spawn(int slot, bool maps, void (*work)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		join_cgroup();
		work(arg);
		exit(0);
	}
	pthread_mutex_lock(&shared->lock);
	shared->victims[slot] = (struct victim){ pid, maps };
	pthread_mutex_unlock(&shared->lock);
}

static bool meant(int status)
{
	if (WIFEXITED(status))
		return !WEXITSTATUS(status);
	return WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGQUIT;
}

bool reaped(int slot)
{
	pid_t pid = shared->victims[slot].pid;
	siginfo_t info = {};
	int status;

	/*
	 * WNOWAIT: trouble.c may still send a signal to this PID, so no other process may get the
	 * PID yet.
	 */
	if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT))
		err(1, "waitid");
	if (!info.si_pid)
		return false;
	pthread_mutex_lock(&shared->lock);
	shared->victims[slot].pid = 0;
	pthread_mutex_unlock(&shared->lock);
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && WCOREDUMP(status))
		counted(DUMP);
	if (!meant(status)) {
		printf("# process %d of slot %d ended with status %#x\n", pid, slot, status);
		add(&shared->failed, 1);
	}
	return true;
}

void end_all(int first, int nr)
{
	for (int slot = first; slot < first + nr; slot++) {
		if (kill(shared->victims[slot].pid, SIGKILL))
			err(1, "kill");
		counted(KILL);
	}
}

static void result(bool good, const char *name)
{
	snprintf(results[nr_results].name, sizeof(results->name), "%s", name);
	results[nr_results++].word = good ? "ok" : "not ok";
}

static void skipped(const char *name, const char *reason)
{
	results[nr_results].skip = reason;
	result(true, name);
}

static void print_results(void)
{
	printf("TAP version 13\n1..%d\n", nr_results);
	for (int i = 0; i < nr_results; i++)
		printf("%s %d %s%s%s\n", results[i].word, i + 1, results[i].name,
		       results[i].skip ? " # SKIP " : "", results[i].skip ?: "");
}

/* In kB. 0 with devices, because the kernel's count then includes the tables of IOMMUs. */
static unsigned long stage2_tables(bool devices)
{
	return has_vms() && !devices ? value_in("/proc/meminfo", "SecPageTables:") : 0;
}

static bool can_act(struct actor *actor)
{
	if (actor->run == hotplug)
		return has_hotplug();
	if (actor->run == vms_director)
		return has_vms();
	return !actor->maps || actor->bdf;
}

static void start(struct actor *actor)
{
	actor->pid = fork();
	if (actor->pid < 0)
		err(1, "fork");
	if (!actor->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		actor->run(actor->bdf, actor->slot);
		exit(0);
	}
}

/*
 * Reaps all processes that have ended, including orphans of victims. Returns false if no process is
 * left.
 */
static bool reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < NR_ACTORS; i++) {
			if (actors[i].pid != pid)
				continue;
			actors[i].pid = 0;
			if (over() && WIFEXITED(status) && !WEXITSTATUS(status))
				continue;
			printf("# %s ended with status %#x\n", actors[i].name, status);
			add(&shared->failed, 1);
		}
	}
	return !pid;
}

static void print_counts(double seconds)
{
	printf("# after %.0f s:", seconds);
	for (int i = 0; i < NR_COUNTS; i++)
		printf(" %s %lu", count_names[i], shared->count[i]);
	printf("\n");
}

/* The kernel stacks of all remaining processes of this program */
static void print_stacks(void)
{
	char path[64], text[4096], *line;
	glob_t found;

	if (glob("/proc/[0-9]*/task/*", 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		snprintf(path, sizeof(path), "%.32s/comm", found.gl_pathv[i]);
		if (read_text(path, text, sizeof(text)) <= 0 || strcmp(text, "soak\n"))
			continue;
		printf("# %s %s", found.gl_pathv[i], text);
		snprintf(path, sizeof(path), "%.32s/stack", found.gl_pathv[i]);
		if (read_text(path, text, sizeof(text)) <= 0)
			continue;
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			printf("#   %s\n", line);
	}
	globfree(&found);
}

/* Waits until all actors end. Returns false if some had to be killed. */
static bool everybody_ended(void)
{
	double late = now() + END_S;

	__atomic_store_n(&shared->end, true, __ATOMIC_RELAXED);
	while (reap()) {
		if (now() > late) {
			print_stacks();
			/* PR_SET_PDEATHSIG then kills their victims */
			for (size_t i = 0; i < NR_ACTORS; i++) {
				if (!actors[i].pid)
					continue;
				printf("# %s does not end\n", actors[i].name);
				kill(actors[i].pid, SIGKILL);
			}
			sleep(5);
			reap();
			return false;
		}
		usleep(50000);
	}
	return true;
}

static unsigned long leaks(void)
{
	char line[512];
	unsigned long sum = 0;
	FILE *file;

	/*
	 * kmemleak ignores objects that are younger than five seconds. It reports an older object
	 * if two scans have found no reference to it.
	 */
	sleep(6);
	if (!write_text(KMEMLEAK, "scan") || !write_text(KMEMLEAK, "scan"))
		err(1, "scan");
	file = fopen(KMEMLEAK, "r");
	if (!file)
		err(1, KMEMLEAK);
	while (fgets(line, sizeof(line), file))
		sum += !strncmp(line, "unreferenced object", 19);
	fclose(file);
	return sum;
}

static void check_counts(bool devices)
{
	char name[64];

	shared->count[KILL] += oom_kills();
	for (int i = 0; i < NR_COUNTS; i++) {
		const char *reason = NULL;

		if (!devices && (i == TYPE1 || i == IOMMUFD || i == DMA || i == EXEC))
			reason = "no device on vfio-pci";
		else if (!shared->cgroups && (i == FREEZE || i == MIGRATE || i == LIMIT))
			reason = "no memory controller";
		else if (i == VM && !has_vms())
			reason = "no VMs";
		else if (i == HOTPLUG && !has_hotplug())
			reason = "no CPU that can go offline";
		else
			printf("# count %s %lu\n", count_names[i], shared->count[i]);
		snprintf(name, sizeof(name), "%s happened", count_names[i]);
		if (reason)
			skipped(name, reason);
		else
			result(shared->count[i], name);
	}
}

static void check_left(bool devices, bool ended)
{
	long count = 0;
	unsigned long huge = 0, tables = 0;
	double late = now() + SETTLE_S;
	bool empty;

	result(ended, "every process has ended");
	printf("# %lu processes ended with an error or an unexpected signal\n", shared->failed);
	result(!shared->failed, "no process failed");
	do {
		empty = remove_cgroups();
		count = pinned_pages();
		huge = huge_pages_in_use();
		tables = stage2_tables(devices) - tables_before;
	} while ((!empty || count || huge || tables) && now() < late && !usleep(500000));
	if (shared->cgroups)
		result(empty, "no process is left in a cgroup");
	else
		skipped("no process is left in a cgroup", "no memory controller");
	printf("# %ld pages are pinned, %lu huge pages in use\n", count, huge);
	result(!count, "no page is pinned");
	if (value_in("/proc/meminfo", "HugePages_Total:"))
		result(!huge, "every huge page of hugetlbfs is free");
	else
		skipped("every huge page of hugetlbfs is free", "no hugetlbfs");
	printf("# %lu processes ended without locked memory, %lu with locked memory\n",
	       shared->balanced, shared->unbalanced);
	if (devices)
		result(shared->balanced && !shared->unbalanced, "no memory is locked");
	else
		skipped("no memory is locked", "no device on vfio-pci");
	if (has_vms() && !devices) {
		printf("# %lu kB of page tables belong to VMs\n", tables);
		result(!tables, "no page table of a VM is left");
	} else {
		skipped("no page table of a VM is left",
			has_vms() ? "the count includes those of IOMMUs" : "no VMs");
	}
	result(!shared->foreign, "every page had the data that was written to it");
	result(all_online(), "every CPU is online");
}

static void check_kernel(void)
{
	unsigned long found;

#ifdef __powerpc__
	skipped("lockdep is enabled", "a bug of the base disables it: guest/splats.allowed");
#else
	if (access("/proc/lockdep_stats", F_OK))
		skipped("lockdep is enabled", "not in this kernel");
	else
		result(value_in("/proc/lockdep_stats", "debug_locks:") == 1, "lockdep is enabled");
#endif
	if (access(KMEMLEAK, F_OK)) {
		skipped("kmemleak finds nothing", "not in this kernel");
		return;
	}
	found = leaks();
	printf("# leaks %lu\n", found);
	result(!found, "kmemleak finds nothing");
}

static void share(uint64_t seed)
{
	pthread_mutexattr_t attr;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	shared->seed = seed;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &attr);
}

static void prepare(uint64_t seed, int argc, char **argv)
{
	struct rlimit core = { CORE_MAX, CORE_MAX };

	setvbuf(stdout, NULL, _IOLBF, 0);
	share(seed);
	tables_before = stage2_tables(argc);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* Scan only at the end: a scan during a run reports objects whose references move */
	write_text(KMEMLEAK, "scan=off");
	write_text("/proc/sys/vm/nr_hugepages", "64");
	if (!write_text("/proc/sys/kernel/core_pattern", CORE) || setrlimit(RLIMIT_CORE, &core))
		err(1, "core dumps");
	shared->cgroups = make_cgroups();
	if (argc && argc != 4)
		errx(2, "four devices are needed, or none");
	for (size_t i = 0; argc && i < NR_ACTORS; i++)
		if (actors[i].maps)
			actors[i].bdf = *argv++;
}

int main(int argc, char **argv)
{
	double begin = now(), said = begin;
	bool devices = argc > 3, ended;

	if (argc < 3)
		errx(2, "usage: soak MINUTES SEED [BDF...]");
	prepare(strtoull(argv[2], NULL, 10), argc - 3, argv + 3);
	printf("# seed %" PRIu64 "\n", shared->seed);
	for (size_t i = 0; i < NR_ACTORS; i++)
		if (can_act(&actors[i]))
			start(&actors[i]);
	while (now() < begin + 60 * atoi(argv[1])) {
		reap();
		usleep(200000);
		if (now() < said + 60)
			continue;
		said = now();
		print_counts(said - begin);
	}
	ended = everybody_ended();
	print_counts(now() - begin);
	check_counts(devices);
	check_left(devices, ended);
	check_kernel();
	print_results();
	return 0;
}
