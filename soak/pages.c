// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes in which one thread collapses, splits, zaps and unmaps a range while
 * other threads walk its page tables, with and without a lock. A page of the range
 * is zero or contains the tag of its address. Other contents belong to other pages.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <linux/futex.h>

#include "soak.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PROCESSES 2
#define WALKERS 2

/* The same address in each process, so that each can read the range of the other */
#define AREA ((char *)(1UL << 36))

static size_t page, pmd, size;
static bool shmem;	/* drawn at random in each process */
static int first_slot;

/* Four bytes: a reader may see larger values half written */
static uint32_t tag(const char *at)
{
	return (uintptr_t)at;
}

static char *random_page(void)
{
	return AREA + rnd(size / page) * page;
}

static void look(const char *at, uint32_t value)
{
	counted(WALK);
	if (value && value != tag(at)) {
		add(&shared->foreign, 1);
		printf("# page %p has %#x\n", at, value);
	}
}

static void vmsplice_one(int fds[2])
{
	char *at = random_page();
	struct iovec iov = { at, sizeof(uint32_t) };
	uint32_t value;

	/* EFAULT: unmapped at the moment */
	if (vmsplice(fds[1], &iov, 1, 0) != sizeof(value))
		return;
	if (read(fds[0], &value, sizeof(value)) != sizeof(value))
		err(1, "read");
	look(at, value);
}

static void read_one(void)
{
	char *at = random_page();
	pid_t pid = shared->victims[first_slot + rnd(PROCESSES)].pid;
	uint32_t value;
	struct iovec to = { &value, sizeof(value) }, from = { at, sizeof(value) };

	/* The process may have been killed, or may not have mapped the range yet */
	if (pid && process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(value))
		look(at, value);
}

static void *walk(void *arg)
{
	int fds[2];

	seed_random((uintptr_t)arg);
	if (pipe(fds))
		err(1, "pipe");
	while (!over()) {
		for (int i = rnd(400); i; i--) {
			switch (rnd(4)) {
			case 0:
			case 1:
				vmsplice_one(fds);
				break;
			case 2:
				read_one();
				break;
			default:
				/* A futex that is not private needs a lookup of its page */
				if (syscall(SYS_futex, random_page(), FUTEX_WAKE, 1, NULL, NULL,
					    0) >= 0)
					counted(WALK);
			}
		}
		rest(100);
	}
	return NULL;
}

static void map_range(char *at, size_t length)
{
	int fd = shmem ? memfd_create("soak", 0) : -1;
	int flags = shmem ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	if (shmem && (fd < 0 || ftruncate(fd, size)))
		err(1, "memfd");
	if (mmap(at, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd,
		 shmem ? at - AREA : 0) != at)
		err(1, "mmap");
	if (shmem)
		close(fd);
}

static void fill(char *at, size_t length)
{
	for (char *end = at + length; at < end; at += page)
		__atomic_store_n((uint32_t *)at, tag(at), __ATOMIC_RELAXED);
}

/* Splits into small pages with the same data. Fails while a walker holds a page. */
static void split_pages(char *at)
{
	int fd = open("/sys/kernel/debug/split_huge_pages", O_WRONLY);
	char text[128];
	int len = snprintf(text, sizeof(text), "%d,%p,%p", getpid(), at, at + pmd);

	if (fd < 0)
		err(1, "split_huge_pages");
	if (write(fd, text, len) == len)
		counted(SPLIT);
	close(fd);
}

static void child(char *at)
{
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (!pid) {
		fill(at, 16 * page);
		_exit(0);
	}
	counted(FORK);
	waitpid(pid, NULL, 0);
}

static void change(void)
{
	char *huge = AREA + rnd(size / pmd) * pmd;
	size_t pages = 1 + rnd(pmd / page - 1);
	char *part = huge + rnd(pmd / page - pages) * page;

	switch (rnd(8)) {
	case 0:
	case 1:
		fill(part, pages * page);
		if (!madvise(huge, pmd, MADV_COLLAPSE))
			counted(COLLAPSE);
		break;
	case 2:
		if (mprotect(part, pages * page, PROT_READ) ||
		    mprotect(part, pages * page, PROT_READ | PROT_WRITE))
			err(1, "mprotect");
		counted(SPLIT);
		break;
	case 3:
		madvise(part, pages * page, rnd(2) ? MADV_DONTNEED : MADV_FREE);
		break;
	case 4:
		if (munmap(part, pages * page))
			err(1, "munmap");
		rest(2);
		map_range(part, pages * page);
		break;
	case 5:
		/* A collapse needs a single VMA */
		map_range(AREA, size);
		break;
	case 6:
		split_pages(huge);
		break;
	default:
		child(huge);
	}
}

static void pages_main(void *arg)
{
	uint64_t stream = (uintptr_t)arg;
	pthread_t threads[WALKERS];

	seed_random(stream);
	shmem = rnd(2);
	map_range(AREA, size);
	for (int i = 0; i < WALKERS; i++)
		if (pthread_create(&threads[i], NULL, walk, (void *)(stream + 1 + i)))
			errx(1, "pthread_create");
	while (!over()) {
		for (int i = rnd(20); i; i--)
			change();
		rest(300);
	}
	for (int i = 0; i < WALKERS; i++)
		pthread_join(threads[i], NULL);
}

void pages_director(const char *bdf, int slot)
{
	uint64_t stream = (slot + 1) * 1000000UL;
	char text[32];

	(void)bdf;
	if (read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text,
		      sizeof(text)) < 0)
		err(1, "hpage_pmd_size");
	page = sysconf(_SC_PAGESIZE);
	pmd = strtoul(text, NULL, 10);
	size = 2 * pmd;
	first_slot = slot;
	while (!over()) {
		for (int i = 0; i < PROCESSES; i++) {
			if (shared->victims[slot + i].pid && !reaped(slot + i))
				continue;
			stream += 1 + WALKERS;
			spawn(slot + i, false, pages_main, (void *)stream);
		}
		usleep(20000);
	}
	for (int i = 0; i < PROCESSES; i++)
		while (!reaped(slot + i))
			usleep(20000);
}
