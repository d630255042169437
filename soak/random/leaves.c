// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core emits these events for every IOMMU driver. Each CPU stores its events in pages of a ring
 * buffer (include/linux/ring_buffer.h, kernel/trace/ring_buffer.c). leaves_read() empties the
 * buffers after each call. The order of events of different CPUs is lost, so maps and unmaps of a
 * page are counted.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leaves.h"

#define TRACING "/sys/kernel/tracing/"
#define BUFFER_KB "16384"	/* for the events of one call */
#define CPUS 8
#define LEAVES (2 * WINDOW / PAGE)
#define BATCH 4096		/* entries of pagemap */

enum { PADDING = 29, TIME_EXTEND, TIME_STAMP };	/* lengths of other records */

struct ring_page {
	uint64_t time;
	uint64_t committed;	/* bytes, and flags */
	char data[PAGE - 16];
};
#define BYTES 0xfffffUL
#define MISSED (1UL << 31)

struct event {
	uint16_t type;
	uint8_t flags, preempt_count;
	int32_t pid;
	uint64_t iova;
	union {
		struct {
			uint64_t paddr, size;
		} map;
		struct {
			uint64_t asked, size;
		} unmap;
	};
};

static struct {
	uint64_t paddr;		/* of the last map */
	int64_t mapped;		/* number of maps minus number of unmaps */
} leaves[LEAVES];
static struct mapped all;
static int rings[CPUS], cpus, map_type, unmap_type;

static void set(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), TRACING "%s", name);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		err(1, "%s", path);
	close(fd);
}

static int type_of(const char *name)
{
	char path[128];
	FILE *file;
	int type;

	snprintf(path, sizeof(path), TRACING "events/iommu/%s/id", name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%d", &type) != 1)
		err(1, "%s", path);
	fclose(file);
	return type;
}

static void count(uint64_t iova, uint64_t size, const uint64_t *paddr)
{
	int64_t one = paddr ? 1 : -1;

	for (uint64_t pos = 0; pos < size; pos += PAGE) {
		uint64_t leaf = (iova + pos - IOVA) / PAGE;

		all.bytes += one * PAGE;
		all.iovas += one * (iova + pos);
		if (leaf >= LEAVES)
			continue;
		leaves[leaf].mapped += one;
		if (paddr)
			leaves[leaf].paddr = *paddr + pos;
	}
}

static void take(const struct event *event)
{
	if (event->type == map_type)
		count(event->iova, event->map.size, &event->map.paddr);
	else if (event->type == unmap_type)
		count(event->iova, event->unmap.size, NULL);
}

static void take_page(const struct ring_page *page)
{
	uint64_t end = page->committed & BYTES, pos = 0;
	uint32_t head, length;

	if (page->committed & MISSED)
		errx(1, "the ring buffer is too small");
	while (pos < end) {
		memcpy(&head, page->data + pos, 4);
		memcpy(&length, page->data + pos + 4, 4);
		switch (head & 31) {
		case PADDING:
			if (!(head >> 5))
				return;
			pos += 4 + length;
			break;
		case TIME_EXTEND:
		case TIME_STAMP:
			pos += 8;
			break;
		case 0:
			pos += 4 + length;
			break;
		default:
			take((const struct event *)(page->data + pos + 4));
			pos += 4 + (head & 31) * 4;
		}
	}
}

void leaves_open(void)
{
	char path[128];

	set("events/enable", "0");
	set("buffer_size_kb", BUFFER_KB);
	set("trace", "\n");
	map_type = type_of("map");
	unmap_type = type_of("unmap");
	cpus = sysconf(_SC_NPROCESSORS_CONF);
	if (cpus > CPUS)
		errx(1, "more than %d CPUs", CPUS);
	for (int cpu = 0; cpu < cpus; cpu++) {
		snprintf(path, sizeof(path), TRACING "per_cpu/cpu%d/trace_pipe_raw", cpu);
		rings[cpu] = open(path, O_RDONLY | O_NONBLOCK);
		if (rings[cpu] < 0)
			err(1, "%s", path);
	}
	set("events/iommu/map/enable", "1");
	set("events/iommu/unmap/enable", "1");
}

struct mapped leaves_read(void)
{
	static struct ring_page page;
	ssize_t got;

	for (int cpu = 0; cpu < cpus; cpu++) {
		while ((got = read(rings[cpu], &page, sizeof(page))) > 0)
			take_page(&page);
		if (got < 0 && errno != EAGAIN)
			err(1, "trace_pipe_raw");
	}
	return all;
}

static void compare(uint64_t iova, uint64_t paddr)
{
	uint64_t leaf = (iova - IOVA) / PAGE;

	if (leaf < LEAVES && (leaves[leaf].mapped != 1 || leaves[leaf].paddr != paddr))
		errx(1, "IOVA %#" PRIx64 ": mapped %" PRId64 " times, %#" PRIx64 ", expected %#"
		     PRIx64, iova, leaves[leaf].mapped, leaves[leaf].paddr, paddr);
}

void leaves_compare(uint64_t iova, uint64_t vaddr, uint64_t size)
{
	uint64_t left = size / PAGE, at = vaddr / PAGE, some;
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	static uint64_t entries[BATCH];

	if (pagemap < 0)
		err(1, "pagemap");
	for (; left; left -= some, at += some) {
		some = left < BATCH ? left : BATCH;
		if (pread(pagemap, entries, some * 8, at * 8) != (ssize_t)some * 8)
			err(1, "pagemap");
		for (uint64_t i = 0; i < some; i++, iova += PAGE) {
			if (!(entries[i] >> 63))
				errx(1, "IOVA %#" PRIx64 ": the page is absent", iova);
			compare(iova, (entries[i] & ((1UL << 55) - 1)) * PAGE);
		}
	}
	close(pagemap);
}

void leaves_compare_copy(uint64_t iova, uint64_t from, uint64_t size)
{
	for (uint64_t pos = 0; pos < size; pos += PAGE) {
		uint64_t leaf = (from + pos - IOVA) / PAGE;

		if (leaf < LEAVES)
			compare(iova + pos, leaves[leaf].paddr);
	}
}
