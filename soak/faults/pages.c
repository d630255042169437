// SPDX-License-Identifier: GPL-2.0-only
/* Scenes that collapse and split a process's huge pages, and free its page tables. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "faults.h"
#include "lib/text.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define AREA ((char *)(1UL << 36))
#define TABLES 8		/* page tables that an unmap frees */

static size_t pmd, step;	/* step: distance between present pages */
static bool shmem, unmapped;

static void map_area(size_t size, int advice)
{
	int fd = shmem ? memfd_create("faults", MFD_CLOEXEC) : -1;
	int flags = shmem ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	if (shmem && (fd < 0 || ftruncate(fd, size)))
		err(1, "memfd");
	if (mmap(AREA, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != AREA ||
	    madvise(AREA, size, advice))
		err(1, "mmap");
	if (shmem)
		close(fd);
	for (char *at = AREA; at < AREA + size; at += step)
		*(uint64_t *)at = (uintptr_t)at;
	unmapped = false;
}

static bool has_data(void)
{
	for (char *at = AREA; at < AREA + (step == page ? pmd : TABLES * pmd); at += step)
		if (*(uint64_t *)at != (uintptr_t)at)
			return false;
	return true;
}

static const char *wrong_data(void)
{
	return unmapped || has_data() ? NULL : "the pages have lost their data";
}

static void begin(void)
{
	char text[32];

	if (read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text,
		      sizeof(text)) < 0)
		err(1, "hpage_pmd_size");
	pmd = strtoul(text, NULL, 10);
	step = page;
}

static void begin_shmem(void)
{
	begin();
	shmem = true;
}

static void begin_tables(void)
{
	begin();
	step = pmd / 2;
}

/* MADV_NOHUGEPAGE makes faults map small pages. It is off again before MADV_COLLAPSE. */
static void prepare_small(void)
{
	map_area(pmd, MADV_NOHUGEPAGE);
	if (madvise(AREA, pmd, MADV_HUGEPAGE))
		err(1, "MADV_HUGEPAGE");
}

static int collapse(void)
{
	int error = 0;

	/* EAGAIN: a page is temporarily not on an LRU list */
	for (int tries = 100; tries; tries--) {
		error = madvise(AREA, pmd, MADV_COLLAPSE) ? errno : 0;
		if (error != EAGAIN)
			break;
	}
	return error;
}

static void prepare_huge(void)
{
	prepare_small();
	errno = collapse();
	if (errno)
		err(1, "MADV_COLLAPSE");
}

static void prepare_tables(void)
{
	map_area(TABLES * pmd, MADV_NOHUGEPAGE);
}

static void unmap_area(void)
{
	munmap(AREA, TABLES * pmd);
}

/* Splits into small pages with the same data */
static int split(void)
{
	int fd = open("/sys/kernel/debug/split_huge_pages", O_WRONLY | O_CLOEXEC), error = 0;
	char text[128];
	int len = snprintf(text, sizeof(text), "%d,%p,%p", getpid(), AREA, AREA + pmd);

	if (fd < 0 || write(fd, text, len) != len)
		error = errno;
	if (fd >= 0)
		close(fd);
	return error;
}

/* Splits the VMA in the middle of the huge page */
static int protect(void)
{
	return mprotect(AREA, pmd / 2, PROT_READ) ? errno : 0;
}

static int free_tables(void)
{
	if (munmap(AREA, TABLES * pmd))
		return errno;
	unmapped = true;
	return 0;
}

/* An unmap succeeds despite faults: without memory for a batch, it frees pages one by one */
static int cut(void)
{
	return munmap(AREA + pmd, (TABLES - 2) * pmd) ? errno : 0;
}

static const char *wrong_edges(void)
{
	return *(uint64_t *)AREA == (uintptr_t)AREA ? NULL : "a page beside is gone";
}

static int copy_process(void)
{
	pid_t pid = fork();
	int error = errno;

	if (!pid) {
		/* These writes make copies and do not change the parent's pages */
		for (int i = 0; i < 16; i++)
			*(uint64_t *)(AREA + i * page) = 1;
		_exit(0);
	}
	if (pid < 0)
		return error;
	/* Do not request the status: a fault might be injected into its copy */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

#define SCENE .undo = unmap_area, .wrong = wrong_data

const struct scene pages_scenes[] = {
	{ "pages: collapsed", SCENE, .begin = begin, .prepare = prepare_small, .call = collapse },
	{ "pages: collapsed, shmem", SCENE, .begin = begin_shmem, .prepare = prepare_small,
	  .call = collapse },
	{ "pages: split", SCENE, .begin = begin, .prepare = prepare_huge, .call = split },
	{ "pages: split, shmem", SCENE, .begin = begin_shmem, .prepare = prepare_huge,
	  .call = split },
	{ "pages: half of a huge page protected", SCENE, .begin = begin, .prepare = prepare_huge,
	  .call = protect },
	{ "pages: page tables freed", SCENE, .begin = begin_tables, .prepare = prepare_tables,
	  .call = free_tables },
	{ "pages: a hole cut", .undo = unmap_area, .wrong = wrong_edges, .begin = begin_tables,
	  .prepare = prepare_tables, .call = cut },
	{ "pages: forked", SCENE, .begin = begin, .prepare = prepare_huge, .call = copy_process },
	{}
};
