// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps a memfd through iommufd. Meanwhile, a thread of higher priority on the same
 * CPU removes the small pages of the file's first 2M, and faults in a huge page
 * there. If a pinned page is missing from the IOMMU's page table, the unmap leaves
 * it pinned.
 * For "mm/gup: start over if a memfd's folios are not adjacent".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>
#include <sys/mman.h>

#include "iommufd.h"

#define PAGES (2 * HUGE / PAGE)
#define IOVA (1UL << 32)
#define TRIES 500

static char *small, *huge;
static int fd;
static long delay, took;
static sem_t start, end;

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void punch(void)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE))
		missing("FALLOC_FL_PUNCH_HOLE");
}

static void *replace(void *unused)
{
	struct sched_param priority = { .sched_priority = 1 };
	struct timespec time = { };

	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		missing("SCHED_FIFO");
	for (;;) {
		sem_wait(&start);
		time.tv_sec = delay / 1000000000;
		time.tv_nsec = delay % 1000000000;
		nanosleep(&time, NULL);
		punch();
		*huge = 1;
		sem_post(&end);
	}
	return unused;
}

/* Maps the start of the file at an address that is aligned for huge pages */
static char *view(unsigned long length, int advice)
{
	char *hint = mmap(NULL, length + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((uintptr_t)hint + HUGE - 1) & ~(HUGE - 1));

	if (mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED || madvise(at, length, advice))
		missing("memfd");
	return at;
}

static void fill(unsigned long from, unsigned long to)
{
	for (; from < to; from++)
		small[from * PAGE] = 1;
}

/* Maps and unmaps the file. Exits if pins are left. Returns whether the pages had changed. */
static int map_once(void)
{
	long taken = pins_taken(), dropped = pins_dropped(), begin;
	int error;

	punch();
	fill(0, HUGE / PAGE);
	delay = took ? random() % took : 0;
	sem_post(&start);
	begin = now();
	error = map_file(fd, PAGES * PAGE, IOVA);
	if (!took)
		took = now() - begin;
	sem_wait(&end);
	if (error || unmap(PAGES * PAGE, IOVA)) {
		printf("map or unmap: %s\n", strerror(error ? error : errno));
		exit(1);
	}
	taken = pins_taken() - taken;
	dropped = pins_dropped() - dropped;
	if (taken != dropped) {
		printf("unmapped, %ld of %ld pins are left\n", taken - dropped, taken);
		exit(1);
	}
	return taken != PAGES;
}

int main(int argc, char **argv)
{
	int tries, changed = 0;
	pthread_t thread;
	cpu_set_t cpu;

	open_ioas(argc > 1 ? argv[1] : "");
	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	fd = memfd_create("punched", 0);
	if (sched_setaffinity(0, sizeof(cpu), &cpu) || fd < 0 || ftruncate(fd, PAGES * PAGE))
		missing("memfd");
	advise_shmem();
	small = view(PAGES * PAGE, MADV_NOHUGEPAGE);
	huge = view(HUGE, MADV_HUGEPAGE);
	fill(HUGE / PAGE, PAGES);
	sem_init(&start, 0, 0);
	sem_init(&end, 0, 0);
	if (pthread_create(&thread, NULL, replace, NULL))
		missing("thread");

	for (tries = 1; tries <= TRIES && changed < 5; tries++)
		changed += map_once();
	printf("%d maps, the pages changed during %d of them\n", tries - 1, changed);
	if (!changed)
		printf("cannot tell here: no huge page appeared during a map\n");
	return changed ? 0 : 4;
}
