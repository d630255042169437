// SPDX-License-Identifier: GPL-2.0-only
/* Scenes of VFIO containers: creation, maps, unmaps, and a second domain. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/vfio.h>

#include "faults.h"
#include "lib/device.h"
#include "lib/fail_nth.h"
#include "lib/text.h"

/* The memory is aligned to 2M but the IOVA is not, so the IOMMU needs a table for each 2M */
#define IOVA ((4UL << 30) + page)
/* Size of these tables in an additional domain, in kB */
#define MORE_TABLES (playing->size / (2 * MIB) * 4)
#define MANY_FAULTS 200		/* more operations than an attach has */

static int container = -1, group = -1, second = -1;
static unsigned long tables;	/* before the second group's attach */
static unsigned int replays;
static char groups[2][PATH_MAX];

static const char *missing_device(void)
{
	if (nr_devices < 3)
		return "no device on vfio-pci";
	/* Find the groups now, while no fault is injected */
	for (int i = 0; i < 2; i++)
		group_path(devices[i], groups[i], sizeof(groups[i]));
	return missing_memory();
}

static int open_group(int number)
{
	return open(groups[number], O_RDWR | O_CLOEXEC);
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_all(void)
{
	/* Closing the last group of a container also unmaps everything */
	close_one(&second);
	close_one(&group);
	close_one(&container);
}

static int create(void)
{
	int error = 0;

	group = open_group(0);
	if (group >= 0)
		container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	if (group < 0 || container < 0 || ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) ||
	    ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		error = errno;
	if (error)
		close_all();
	return error;
}

static int map(void)
{
	struct vfio_iommu_type1_dma_map args = {
		.argsz = sizeof(args),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = (uintptr_t)memory,
		.iova = IOVA,
		.size = playing->size,
	};

	return ioctl(container, VFIO_IOMMU_MAP_DMA, &args) ? errno : 0;
}

static int unmap(void)
{
	struct vfio_iommu_type1_dma_unmap args = {
		.argsz = sizeof(args),
		.iova = IOVA,
		.size = playing->size,
	};

	return ioctl(container, VFIO_IOMMU_UNMAP_DMA, &args) ? errno : 0;
}

static int attach(void)
{
	return ioctl(second, VFIO_GROUP_SET_CONTAINER, &container) ? errno : 0;
}

static void prepare_container(void)
{
	drop_memory();
	errno = create();
	if (errno)
		err(1, "a container");
}

static void prepare_mapping(void)
{
	prepare_container();
	errno = map();
	if (errno)
		err(1, "VFIO_IOMMU_MAP_DMA");
}

static void unmap_and_close(void)
{
	errno = unmap();
	if (errno)
		err(1, "VFIO_IOMMU_UNMAP_DMA");
	close_all();
}

/* The second group gets a domain of its own only if a fault kept it out of the first domain */
static bool has_second_domain(void)
{
	return page_tables() >= tables + MORE_TABLES;
}

static void prepare_replay(void)
{
	prepare_mapping();
	second = open_group(1);
	if (second < 0)
		err(1, "the second group");
	tables = page_tables();
}

static void undo_replay(void)
{
	replays += has_second_domain();
	unmap_and_close();
}

static const char *no_replay(void)
{
	printf("# %s: %u of them filled a second domain\n", playing->name, replays);
	return replays ? NULL : "no fault led to a second domain, so nothing was replayed";
}

/*
 * The attach leads to a second domain only if one particular operation fails. The number of this
 * operation depends on the state of the allocator. So each number is tried up to four times,
 * beginning with the last successful one.
 */
static void prepare_two_domains(void)
{
	static unsigned int right = 1;

	prepare_replay();
	for (unsigned int tries = 4 * MANY_FAULTS; tries; tries--) {
		int error;

		/* Read this again, because tables of the previous try may be freed late */
		tables = page_tables();
		arm(right);
		error = attach();
		disarm();
		if (!error && has_second_domain())
			return;
		if (!error && ioctl(second, VFIO_GROUP_UNSET_CONTAINER))
			err(1, "VFIO_GROUP_UNSET_CONTAINER");
		right = right % MANY_FAULTS + 1;
	}
	errx(1, "no fault led to a second domain");
}

static void prepare_two_empty_domains(void)
{
	prepare_two_domains();
	errno = unmap();
	if (errno)
		err(1, "VFIO_IOMMU_UNMAP_DMA");
}

#define MAP .missing = missing_device, .begin = make_memory, .prepare = prepare_container, \
	.call = map, .undo = unmap_and_close
#define UNMAP .missing = missing_device, .begin = make_memory, .prepare = prepare_mapping, \
	.call = unmap, .undo = close_all, .may_be_done = true

static void nothing(void)
{
}

const struct scene type1_scenes[] = {
	{ "type1: a container is made", .missing = missing_device, .prepare = nothing,
	  .call = create, .undo = close_all },
	{ "type1: 4K mapped", MAP, .backing = SMALL, .size = 8 * MIB },
	{ "type1: absent 4K mapped", MAP, .backing = ABSENT, .size = MIB / 4 },
	{ "type1: THP mapped", MAP, .backing = THP, .size = 16 * MIB },
	{ "type1: hugetlb mapped", MAP, .backing = HUGETLB, .size = 16 * MIB },
	{ "type1: more mapped than is pinned at once", MAP,
	  .backing = REPEATED, .size = 384 * MIB, .sparse = 8 },
	{ "type1: 4K unmapped", UNMAP, .backing = SMALL, .size = 8 * MIB },
	{ "type1: THP unmapped", UNMAP, .backing = THP, .size = 16 * MIB },
	{ "type1: a second group attached, a replay", .missing = missing_device,
	  .begin = make_memory, .prepare = prepare_replay, .call = attach, .undo = undo_replay,
	  .vain = no_replay, .backing = SMALL, .size = 8 * MIB },
	{ "type1: mapped in two domains", MAP, .prepare = prepare_two_empty_domains,
	  .backing = SMALL, .size = 8 * MIB },
	{ "type1: unmapped in two domains", UNMAP, .prepare = prepare_two_domains,
	  .backing = SMALL, .size = 8 * MIB },
	{}
};
