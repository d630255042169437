// SPDX-License-Identifier: GPL-2.0-only
/*
 * Repeats calls. Each time, injects a fault into one operation: an allocation, or a
 * copy from or to user space. Begins with the first operation of the call, then
 * continues with the second, and so on. Whether or not the call then fails, it must
 * leave nothing behind, and it must succeed when it is repeated. Prints KTAP.
 *
 *   [SCENE=word] faults [BDF...]
 *
 * SCENE selects scenes with this word in their name. The devices are bound to
 * vfio-pci, each in its own group. The first two are for containers, the third for
 * iommufd. Only operations of the calling thread fail.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"
#include "lib/fail_nth.h"
#include "lib/text.h"

#define DEBUGFS "/sys/kernel/debug/"
#define SETTLE_MS 10000		/* time in which the kernel must free resources */
#define MANY 5000		/* a call with more faults counts as endless */

/* Resources in use by the process and the system */
struct left {
	unsigned long locked;	/* kB, VmLck and VmPin */
	unsigned long threads;
	long pinned;		/* pages */
	unsigned long huge;	/* pages of hugetlbfs */
	unsigned long tables;	/* kB */
};

struct outcome {
	unsigned long injected, failed;	/* numbers of faults, and of calls that failed due to one */
	bool bad, ended;
	char skip[64];
};

const struct scene *playing;
char **devices;
int nr_devices;

static struct outcome *outcome;	/* shared by parent and child */
static unsigned int nth;

static const struct scene *const all[] = {
	type1_scenes, iommufd_scenes, pages_scenes, vms_scenes,
};

static struct left look(void)
{
	/* Read this first: it makes the kernel add up its per-CPU counts */
	long pinned = pinned_pages();

	return (struct left){
		.locked = value_in("/proc/self/status", "VmLck:") +
			  value_in("/proc/self/status", "VmPin:"),
		.threads = value_in("/proc/self/status", "Threads:"),
		.pinned = pinned,
		.huge = huge_pages_in_use(),
		.tables = value_in("/proc/meminfo", "SecPageTables:"),
	};
}

static bool same(const struct left *one, const struct left *other, bool tables)
{
	return one->locked == other->locked && one->threads == other->threads &&
	       one->pinned == other->pinned && one->huge == other->huge &&
	       (!tables || one->tables == other->tables);
}

/* Reports an error of the current scene, whose result is then a failure */
static void __attribute__((format(printf, 1, 2))) complain(const char *format, ...)
{
	va_list args;

	printf("# %s, fault %u: ", playing->name, nth);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	outcome->bad = true;
}

/* Reports the differences, which may be negative */
static void complain_of(const char *when, const struct left *is, const struct left *was)
{
	complain("%s are left: %ld kB locked, %ld threads, %ld pinned, %ld huge, %ld kB of tables",
		 when, is->locked - was->locked, is->threads - was->threads,
		 is->pinned - was->pinned, is->huge - was->huge, is->tables - was->tables);
}

/*
 * After a failed call, the same resources must be in use as before the call. With
 * may_be_done, the call may have done its work (an unmap) before it failed. In
 * this case, the same resources as before prepare() are allowed, too. Page tables
 * are ignored, because an open container or VM keeps some.
 */
static void check_failed(const struct left *held, const struct left *nothing)
{
	struct left is = look();

	for (int ms = 0; ms < SETTLE_MS; ms += 20) {
		if (playing->with_thread)
			is.threads = held->threads;
		if (same(&is, held, false) ||
		    (playing->may_be_done && same(&is, nothing, false)))
			return;
		usleep(20000);
		is = look();
	}
	complain_of("after the failed call", &is, held);
}

static void check_end(const struct left *before)
{
	struct left is = look();

	for (int ms = 0; !same(&is, before, true); ms += 20) {
		if (ms >= SETTLE_MS) {
			complain_of("in the end", &is, before);
			return;
		}
		usleep(20000);
		is = look();
	}
}

static void check_data(void)
{
	const char *wrong = playing->wrong ? playing->wrong() : NULL;

	if (wrong)
		complain("%s", wrong);
}

/*
 * Makes the call with the fault that has this number, or without a fault if the number is 0.
 * Returns whether the fault happened.
 */
static bool round_with(unsigned int number)
{
	struct left before = look(), held;
	bool happened;
	int error;

	nth = number;
	playing->prepare();
	held = look();
	arm(number);
	error = playing->call();
	happened = disarm() && number;
	outcome->injected += happened;
	if (error) {
		outcome->failed++;
		if (!happened)
			complain("the call fails although no fault happened: %s", strerror(error));
		check_failed(&held, &before);
		check_data();
		error = playing->call();
		if (error)
			complain("the call fails afterwards, too: %s", strerror(error));
	}
	check_data();
	playing->undo();
	check_end(&before);
	return happened;
}

static void play(void)
{
	unsigned int number = 1;
	const char *vain;

	/* Each process must open its own file */
	open_fail_nth();
	if (playing->begin)
		playing->begin();
	/* Call once without a fault, because some objects are allocated only in the first call */
	round_with(0);
	while (!outcome->bad && round_with(number)) {
		number += 1 + (playing->sparse ? number / playing->sparse : 0);
		if (number > MANY)
			complain("the call still has more faults");
	}
	vain = playing->vain ? playing->vain() : NULL;
	if (vain)
		complain("%s", vain);
	outcome->ended = true;
}

/* Runs the scene in a process of its own, as it changes the process's memory */
static bool result(int number)
{
	struct left before = look(), after;
	const char *missing = playing->missing ? playing->missing() : NULL;
	int status;
	pid_t pid;

	if (missing) {
		printf("ok %d %s # SKIP %s\n", number, playing->name, missing);
		return false;
	}
	memset(outcome, 0, sizeof(*outcome));
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		play();
		exit(0);
	}
	waitpid(pid, &status, 0);
	nth = 0;
	after = look();
	for (int ms = 0; !same(&after, &before, true) && ms < SETTLE_MS; ms += 20) {
		usleep(20000);
		after = look();
	}
	if (!same(&after, &before, true))
		complain_of("when its process has ended", &after, &before);
	if (!outcome->ended)
		complain("the process ended with status %#x", status);
	if (!outcome->injected)
		complain("no fault was injected");
	printf("# %s: %lu faults, %lu calls failed\n", playing->name, outcome->injected,
	       outcome->failed);
	printf("%s %d %s\n", outcome->bad ? "not ok" : "ok", number, playing->name);
	return true;
}

static void set(const char *kind, const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), DEBUGFS "%s/%s", kind, file);
	if (!write_text(path, value))
		err(1, "%s", path);
}

/* Allows every allocation to fail, and turns off the messages about it */
static void set_up(void)
{
	static const char *const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };

	for (int i = 0; i < 3; i++) {
		set(kinds[i], "probability", "0");
		set(kinds[i], "verbose", "0");
	}
	/* Only kernels with IOMMUFD_TEST have this file */
	write_text(DEBUGFS "fail_iommufd/verbose", "0");
	set("failslab", "ignore-gfp-wait", "N");
	set("fail_page_alloc", "ignore-gfp-wait", "N");
	set("fail_page_alloc", "ignore-gfp-highmem", "N");
	set("fail_page_alloc", "min-order", "0");
	/*
	 * A scan during a run reports objects whose references move. The program soak, which runs
	 * next, scans at its end.
	 */
	write_text(DEBUGFS "kmemleak", "scan=off");
	write_text("/proc/sys/vm/nr_hugepages", "64");
}

int main(int argc, char **argv)
{
	unsigned long injections = 0;
	const char *word;
	int number = 0, nr = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	word = getenv("SCENE") ?: "";
	page = sysconf(_SC_PAGESIZE);
	devices = argv + 1;
	nr_devices = argc - 1;
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (outcome == MAP_FAILED)
		err(1, "mmap");
	set_up();
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		for (playing = all[i]; playing->name; playing++)
			nr += !!strstr(playing->name, word);
	printf("TAP version 13\n1..%d\n", nr);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		for (playing = all[i]; playing->name; playing++)
			if (strstr(playing->name, word) && result(++number))
				injections += outcome->injected;
	printf("# count injections %lu\n", injections);
	return 0;
}
