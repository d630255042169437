// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures the time in which a container fills a second domain. 1 GiB is mapped for
 * the group of the first device, then the group of the second device is attached.
 * This group would normally join the first domain. A failed allocation prevents this,
 * so the kernel creates a second domain and replays all mappings into it.
 *
 *   replay BDF BDF...
 *
 * Prints `replay_BACKING SECONDS` for each round.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/vfio.h>

#include "lib/device.h"
#include "lib/fail_nth.h"
#include "lib/text.h"

#define PAGE 4096UL
#define HUGE_SIZE (2UL << 20)
#define SIZE (1UL << 30)
#define IOVA (4UL << 30)
#define HUGE_TABLES 16		/* in kB; 1 GiB of huge pages needs only one table per level */
#define ROUNDS 3
#define MANY_FAULTS 200		/* more than an attach has */
#define FAILSLAB "/sys/kernel/debug/failslab/"

static const char *first;	/* device */
static int container, group, second;

static int open_group(const char *bdf)
{
	char path[PATH_MAX];
	int fd;

	group_path(bdf, path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

/*
 * Opens a new container for each kind of memory. An old domain would still have the tables of
 * earlier mappings.
 */
static void open_container(void)
{
	group = open_group(first);
	container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	if (container < 0 || ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) ||
	    ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		err(1, "a container");
}

static char *map_memory(int flags)
{
	char *memory = mmap(NULL, SIZE + HUGE_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	memory = (char *)(((uintptr_t)memory + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	if (mmap(memory, SIZE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) == MAP_FAILED)
		err(1, "mmap");
	return memory;
}

/* Present memory, allocated in ascending order */
static char *present(int flags, int advice)
{
	char *memory = map_memory(flags);

	if (madvise(memory, SIZE, advice) || madvise(memory, SIZE, MADV_POPULATE_WRITE))
		err(1, "madvise");
	return memory;
}

/* Allocates 511 other pages between a page and its neighbour, so these are not contiguous */
static char *scattered(void)
{
	char *memory = map_memory(0);

	if (madvise(memory, SIZE, MADV_NOHUGEPAGE))
		err(1, "madvise");
	for (size_t page = 0; page < HUGE_SIZE; page += PAGE)
		for (size_t at = page; at < SIZE; at += HUGE_SIZE)
			memory[at] = 1;
	return memory;
}

static void map(char *memory)
{
	struct vfio_iommu_type1_dma_map args = {
		.argsz = sizeof(args),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = (uintptr_t)memory,
		.iova = IOVA,
		.size = SIZE,
	};

	if (ioctl(container, VFIO_IOMMU_MAP_DMA, &args))
		err(1, "VFIO_IOMMU_MAP_DMA");
}

static void unmap(void)
{
	struct vfio_iommu_type1_dma_unmap args = {
		.argsz = sizeof(args),
		.iova = IOVA,
		.size = SIZE,
	};

	if (ioctl(container, VFIO_IOMMU_UNMAP_DMA, &args) || args.size != SIZE)
		err(1, "VFIO_IOMMU_UNMAP_DMA");
}

static void detach(void)
{
	if (ioctl(second, VFIO_GROUP_UNSET_CONTAINER))
		err(1, "VFIO_GROUP_UNSET_CONTAINER");
}

/* Seconds, negative if it fails */
static double attach(void)
{
	struct timespec start, end;
	int failed;

	clock_gettime(CLOCK_MONOTONIC, &start);
	failed = ioctl(second, VFIO_GROUP_SET_CONTAINER, &container);
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (failed)
		return -1;
	return end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9;
}

/*
 * @tables is the size of the first domain's tables for the mappings, in kB. A filled
 * second domain has the same number of tables, plus one at the top. An empty domain has
 * only the table at the top. The fault that leads to a second domain happens before the
 * replay. Tries the number of the last successful fault first.
 */
static double replay(unsigned long tables)
{
	static unsigned int right = 1;
	unsigned long before = page_tables();

	for (int tries = 0; tries < MANY_FAULTS; tries++) {
		double seconds;
		bool happened, filled;

		arm(right);
		seconds = attach();
		happened = disarm();
		filled = happened && seconds >= 0 && page_tables() > before + tables;
		if (seconds >= 0)
			detach();
		if (page_tables() != before)
			errx(1, "%ld kB of tables are left", page_tables() - before);
		if (filled) {
			printf("# fault %u\n", right);
			return seconds;
		}
		right = happened ? right + 1 : 1;
	}
	errx(1, "no fault led to a second domain");
}

/* Returns the time of an attach that shares the first domain. No fault is injected. */
static double share(void)
{
	unsigned long before = page_tables();
	double seconds = attach();

	if (seconds < 0)
		err(1, "VFIO_GROUP_SET_CONTAINER");
	if (page_tables() != before)
		errx(1, "the second group does not share the first one's domain");
	detach();
	return seconds;
}

static void measure(const char *backing, char *memory, bool huge)
{
	unsigned long before, tables;

	open_container();
	before = page_tables();
	map(memory);
	tables = page_tables() - before;
	if (!tables)
		errx(1, "the tables of the mapping are not counted");
	/* A mapping of 4K pages has one more table for each 2M */
	if (huge && tables > HUGE_TABLES)
		errx(1, "%s: mapped with %lu kB of tables, so not by huge pages", backing, tables);
	printf("share_%s %.9f\n", backing, share());
	for (int round = 0; round < ROUNDS; round++)
		printf("replay_%s %.9f\n", backing, replay(tables));
	unmap();
	close(group);
	close(container);
	if (munmap(memory, SIZE))
		err(1, "munmap");
}

static void set(const char *path, const char *value)
{
	if (!write_text(path, value))
		err(1, "%s", path);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		errx(2, "usage: replay BDF BDF...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	set(FAILSLAB "probability", "0");
	set(FAILSLAB "verbose", "0");
	set(FAILSLAB "ignore-gfp-wait", "N");
	set("/proc/sys/vm/nr_hugepages", "512");
	open_fail_nth();
	first = argv[1];
	second = open_group(argv[2]);
	/* Must come first: only memory that has not been used yet is physically contiguous */
	measure("fresh", present(0, MADV_NOHUGEPAGE), false);
	measure("4k", scattered(), false);
	measure("thp", present(0, MADV_HUGEPAGE), true);
	measure("hugetlb", present(MAP_HUGETLB, MADV_NORMAL), true);
	return 0;
}
