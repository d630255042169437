// SPDX-License-Identifier: GPL-2.0-only
/*
 * Disturbs the victims: sends signals to them, moves them between two cgroups,
 * freezes the cgroups and changes their memory.max. Also takes CPUs offline and online.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "soak.h"

#define MIB (1UL << 20)
#define CGROUP "/sys/fs/cgroup"
#define CPUS "/sys/devices/system/cpu"

static const char *const cgroups[] = { CGROUP "/soak.a", CGROUP "/soak.b" };

static bool set(int cgroup, const char *file, const char *value)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", cgroups[cgroup], file);
	return write_text(path, value);
}

/* false: this kernel has no memory controller */
bool make_cgroups(void)
{
	if (!write_text(CGROUP "/cgroup.subtree_control", "+memory"))
		return false;
	for (int i = 0; i < 2; i++)
		if (mkdir(cgroups[i], 0755))
			err(1, "%s", cgroups[i]);
	return true;
}

bool remove_cgroups(void)
{
	bool empty = true;

	for (int i = 0; i < 2; i++)
		empty &= !rmdir(cgroups[i]) || errno == ENOENT;
	return empty;
}

void join_cgroup(void)
{
	if (shared->cgroups)
		set(rnd(2), "cgroup.procs", "0");
}

unsigned long oom_kills(void)
{
	unsigned long sum = 0;
	char path[PATH_MAX], text[512], *at;

	for (int i = 0; shared->cgroups && i < 2; i++) {
		snprintf(path, sizeof(path), "%s/memory.events", cgroups[i]);
		if (read_text(path, text, sizeof(text)) < 0)
			err(1, "%s", path);
		at = strstr(text, "oom_kill ");
		sum += at ? strtoul(at + 9, NULL, 10) : 0;
	}
	return sum;
}

static void strike(int slot, int signal)
{
	pthread_mutex_lock(&shared->lock);
	if (shared->victims[slot].pid)
		kill(shared->victims[slot].pid, signal);
	pthread_mutex_unlock(&shared->lock);
}

static void disturb(int slot)
{
	int what = rnd(shared->cgroups ? 10 : 4), cgroup = rnd(2);
	char text[32];

	switch (what) {
	case 0:
		/* SIGQUIT makes it dump core */
		if (rnd(2)) {
			strike(slot, SIGQUIT);
			break;
		}
		strike(slot, SIGKILL);
		counted(KILL);
		break;
	case 1 ... 3:
		strike(slot, SIGSTOP);
		rest(500);
		strike(slot, SIGCONT);
		counted(STOP);
		break;
	case 4:
	case 5:
		if (set(cgroup, "cgroup.freeze", "1"))
			counted(FREEZE);
		rest(500);
		set(cgroup, "cgroup.freeze", "0");
		break;
	case 6 ... 8:
		snprintf(text, sizeof(text), "%d", shared->victims[slot].pid);
		/* writing 0 would move this process */
		if (strcmp(text, "0") && set(cgroup, "cgroup.procs", text))
			counted(MIGRATE);
		break;
	default:
		/* from a limit too small for one mapper to one that is enough for all mappers */
		snprintf(text, sizeof(text), "%lu", (128 + rnd(1000)) * MIB);
		if (set(cgroup, "memory.max", text))
			counted(LIMIT);
	}
}

void trouble(const char *bdf, int slot)
{
	double next = now();

	(void)bdf;
	seed_random((slot + 1) * 1000000UL);
	while (!over()) {
		if (now() > next) {
			disturb(rnd(MAX_VICTIMS));
			next = now() + rnd(2000) / 1000.0;
		}
		usleep(20000);
	}
	for (int i = 0; shared->cgroups && i < 2; i++)
		set(i, "memory.max", "max");
}

static bool set_online(int cpu, bool on)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), CPUS "/cpu%d/online", cpu);
	return write_text(path, on ? "1" : "0");
}

/* CPU 0 stays online, as some architectures cannot take it offline */
static int nr_cpus(void)
{
	return sysconf(_SC_NPROCESSORS_CONF);
}

bool has_hotplug(void)
{
	return nr_cpus() > 1 && !access(CPUS "/cpu1/online", W_OK);
}

bool all_online(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) == nr_cpus();
}

void hotplug(const char *bdf, int slot)
{
	(void)bdf;
	seed_random((slot + 1) * 1000000UL);
	while (!over()) {
		int cpu = 1 + rnd(nr_cpus() - 1);
		bool off;

		rest(6000);
		off = set_online(cpu, false);
		rest(2000);
		if (!off)
			continue;
		if (!set_online(cpu, true))
			err(1, "CPU %d online", cpu);
		counted(HOTPLUG);
	}
}
