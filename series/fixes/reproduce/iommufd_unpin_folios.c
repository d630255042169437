// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps a memfd of both small and huge pages through iommufd. The batch becomes full
 * before every pinned folio is in it. Then the allocation of an IOMMU page table
 * fails. The failed map must drop the pins that it took, and not those of an
 * earlier map of the same pages.
 * For "iommufd: Unpin only the folios that were pinned".
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>

#include "iommufd.h"

/*
 * iommufd pins 8192 pages at a time, and its batch holds 5461 contiguous ranges.
 * The first 8192 pages fill most of the batch. The next 8192 pages begin with small
 * pages, which fill the rest of the batch. So the huge pages after these are pinned
 * but do not fit into the batch.
 */
#define PIN 8192UL
#define LENGTH (2 * PIN * PAGE)
#define SCATTERED 4608UL
#define SMALL 2048UL
#define IOVA (1UL << 32)
#define FAULTS "/sys/kernel/debug/fail_page_alloc/"

static char *memory;

static void touch(unsigned long from, unsigned long to, unsigned long step)
{
	for (unsigned long page = from; page < to; page += step)
		memory[page * PAGE] = 1;
}

/* Touches even pages first, so that adjacent pages of the file are not adjacent in memory */
static void scatter(unsigned long from, unsigned long to)
{
	touch(from, to, 2);
	touch(from + 1, to, 2);
}

static int make_file(void)
{
	int fd = memfd_create("pins", 0);
	char *hint = mmap(NULL, LENGTH + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memory = (char *)(((uintptr_t)hint + HUGE - 1) & ~(HUGE - 1));
	if (fd < 0 || ftruncate(fd, LENGTH) || hint == MAP_FAILED ||
	    mmap(memory, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		missing("memfd");
	advise_shmem();
	if (madvise(memory + (PIN + SMALL) * PAGE, LENGTH - (PIN + SMALL) * PAGE, MADV_HUGEPAGE))
		missing("MADV_HUGEPAGE");
	scatter(0, SCATTERED);
	touch(SCATTERED, PIN, 1);
	scatter(PIN, PIN + SMALL);
	touch(PIN + SMALL, 2 * PIN, HUGE / PAGE);
	munmap(hint, LENGTH + HUGE);
	return fd;
}

/* Injects a fault into the nth operation of a map. Returns false if the map has fewer. */
static bool failing_map(int fd, unsigned int nth, int *error)
{
	int faults = open("/proc/thread-self/fail-nth", O_RDWR);
	char text[16];

	snprintf(text, sizeof(text), "%u", nth);
	if (faults < 0 || pwrite(faults, text, strlen(text), 0) < 0)
		missing("fail-nth");
	*error = map_file(fd, LENGTH, IOVA + LENGTH);
	/* If the fault has not happened yet, these calls may fail */
	memset(text, 0, sizeof(text));
	while (pread(faults, text, sizeof(text) - 1, 0) < 0)
		text[0] = '1';
	while (pwrite(faults, "0", 1, 0) < 0)
		;
	close(faults);
	return !atoi(text);
}

int main(int argc, char **argv)
{
	long taken, dropped;
	unsigned int nth;
	int fd, error;

	open_ioas(argc > 1 ? argv[1] : "");
	write_file(FAULTS "ignore-gfp-wait", "N");
	write_file(FAULTS "min-order", "0");
	fd = make_file();
	error = map_file(fd, PIN * PAGE, IOVA);
	if (error) {
		errno = error;
		missing("a map");
	}

	for (nth = 1; nth < 200; nth++) {
		taken = pins_taken();
		dropped = pins_dropped();
		if (!failing_map(fd, nth, &error))
			break;
		if (!error)
			error = unmap(LENGTH, IOVA + LENGTH);
		taken = pins_taken() - taken;
		dropped = pins_dropped() - dropped;
		if (taken != dropped) {
			printf("a failed map took %ld pins and dropped %ld\n", taken, dropped);
			/* Frees pages with wrong reference counts; the kernel reports them */
			if (ftruncate(fd, 0) || unmap(PIN * PAGE, IOVA))
				missing("unmap");
			memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			return 1;
		}
		/* The map has more pages than pins: each huge page outside the batch has one pin */
		if (error && taken > (long)PIN && taken < (long)(2 * PIN)) {
			printf("fault %u: %s, %ld pins taken and dropped\n", nth,
			       strerror(error), taken);
			return unmap(PIN * PAGE, IOVA) ? 1 : 0;
		}
	}
	printf("cannot tell here: no map failed with huge pages outside the batch\n");
	return 4;
}
