// SPDX-License-Identifier: GPL-2.0-only
/* Allocates the memory that the calls of a scene use: 4K pages, THP or hugetlb. */
#define _GNU_SOURCE
#include <err.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "faults.h"
#include "lib/text.h"

#define HUGE_SIZE (2 * MIB)
#define REPEATED_SIZE (16 * MIB)	/* of hugetlbfs, mapped repeatedly side by side */

char *memory;
size_t page;

static bool needs_hugetlb(void)
{
	return playing->backing == HUGETLB || playing->backing == REPEATED;
}

const char *missing_memory(void)
{
	unsigned long free_pages = value_in("/proc/meminfo", "HugePages_Free:");

	return needs_hugetlb() && free_pages < REPEATED_SIZE / HUGE_SIZE ? "no hugetlbfs" : NULL;
}

static void *map_pages(void *at, size_t size, int flags, int fd)
{
	void *got = mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (got == MAP_FAILED)
		err(1, "mmap");
	return got;
}

static void repeat(void)
{
	int fd = memfd_create("faults", MFD_CLOEXEC | MFD_HUGETLB);

	if (fd < 0 || ftruncate(fd, REPEATED_SIZE))
		err(1, "memfd");
	for (size_t at = 0; at < playing->size; at += REPEATED_SIZE)
		map_pages(memory + at, REPEATED_SIZE, MAP_SHARED | MAP_FIXED, fd);
	close(fd);
}

void make_memory(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t size = playing->size;

	memory = map_pages(NULL, size + HUGE_SIZE, flags, -1);
	memory = (char *)(((uintptr_t)memory + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	if (playing->backing == HUGETLB)
		map_pages(memory, size, flags | MAP_FIXED | MAP_HUGETLB, -1);
	else if (playing->backing == REPEATED)
		repeat();
	else
		madvise(memory, size, playing->backing == THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	if (playing->backing != ABSENT)
		memset(memory, 1, size);
}

void drop_memory(void)
{
	if (playing->backing == ABSENT && madvise(memory, playing->size, MADV_DONTNEED))
		err(1, "MADV_DONTNEED");
}
