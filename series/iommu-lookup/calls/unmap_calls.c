// SPDX-License-Identifier: GPL-2.0
/*
 * Measures VFIO's calls for 1 GiB of each kind of memory, and for small ranges.
 *
 *   unmap_calls type1|iommufd BDF [syncs]
 *
 * Prints `CALL_KIND SECONDS`: the time of one call for "fresh", the minimum of
 * several rounds for all others.
 *   fresh    4K pages, the first that the machine allocates, adjacent in memory
 *   again    the same, mapped again: the first unmap has marked them dirty
 *   4k       4K pages of which no two are adjacent
 *   64k      4K pages in adjacent groups of 16
 *   thp, hugetlb, 1g
 *   of_4k, of_64k, of_2048k    4K, 64K or 2M of the fresh memory, from its middle,
 *            as its first pages may not be adjacent
 * With iommufd, also prints the time to create a second domain with the same
 * mappings ("second"). With "syncs", prints only `syncs_KIND NUMBER`: how often one
 * unmap calls the function that is set in ftrace's filter.
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/iommufd.h>
#include <linux/mman.h>
#include <linux/vfio.h>

#define IOVA (4UL << 30)
#define SIZE (1UL << 30)
#define ROUNDS 64
#define AGAIN 4
#define MAP_1G (MAP_HUGETLB | MAP_HUGE_1GB)
#define TRACE "/sys/kernel/tracing/trace"

static int fd;			/* of a container, or of iommufd */
static uint32_t ioas, device;	/* 0 with a container */
static bool syncs;

static void type1_init(const char *bdf)
{
	char path[256], link[256] = {};
	int group;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", bdf);
	if (readlink(path, link, sizeof(link) - 1) < 0)
		err(1, "%s", path);
	snprintf(path, sizeof(path), "/dev/vfio/%s", basename(link));
	fd = open("/dev/vfio/vfio", O_RDWR);
	group = open(path, O_RDWR);
	if (fd < 0 || group < 0 || ioctl(group, VFIO_GROUP_SET_CONTAINER, &fd) ||
	    ioctl(fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		err(1, "%s", path);
}

static int open_cdev(const char *bdf)
{
	char path[512];
	struct dirent *entry;
	DIR *dir;
	int cdev;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vfio-dev", bdf);
	dir = opendir(path);
	if (!dir)
		err(1, "%s", path);
	do {
		entry = readdir(dir);
	} while (entry && strncmp(entry->d_name, "vfio", 4));
	if (!entry)
		errx(1, "%s: empty", path);
	snprintf(path, sizeof(path), "/dev/vfio/devices/%s", entry->d_name);
	closedir(dir);
	cdev = open(path, O_RDWR);
	if (cdev < 0)
		err(1, "%s", path);

	return cdev;
}

static void iommufd_init(const char *bdf)
{
	struct vfio_device_attach_iommufd_pt attach = { .argsz = sizeof(attach) };
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind) };
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	int cdev = open_cdev(bdf);

	fd = open("/dev/iommu", O_RDWR);
	bind.iommufd = fd;
	if (fd < 0 || ioctl(cdev, VFIO_DEVICE_BIND_IOMMUFD, &bind) ||
	    ioctl(fd, IOMMU_IOAS_ALLOC, &alloc))
		err(1, "iommufd");
	ioas = alloc.out_ioas_id;
	device = bind.out_devid;
	attach.pt_id = ioas;
	if (ioctl(cdev, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &attach))
		err(1, "attach");
}

static void map(void *memory, size_t size)
{
	struct vfio_iommu_type1_dma_map type1 = {
		.argsz = sizeof(type1),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = (uintptr_t)memory,
		.iova = IOVA,
		.size = size,
	};
	struct iommu_ioas_map iommufd = {
		.size = sizeof(iommufd),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.ioas_id = ioas,
		.user_va = (uintptr_t)memory,
		.length = size,
		.iova = IOVA,
	};

	if (ioas ? ioctl(fd, IOMMU_IOAS_MAP, &iommufd) : ioctl(fd, VFIO_IOMMU_MAP_DMA, &type1))
		err(1, "map");
}

static void unmap(void *memory, size_t size)
{
	struct vfio_iommu_type1_dma_unmap type1 = {
		.argsz = sizeof(type1),
		.iova = IOVA,
		.size = size,
	};
	struct iommu_ioas_unmap iommufd = {
		.size = sizeof(iommufd),
		.ioas_id = ioas,
		.iova = IOVA,
		.length = size,
	};

	if (ioas ? ioctl(fd, IOMMU_IOAS_UNMAP, &iommufd) :
		   ioctl(fd, VFIO_IOMMU_UNMAP_DMA, &type1))
		err(1, "unmap");
}

static double took(void (*call)(void *memory, size_t size), void *memory, size_t size)
{
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	call(memory, size);
	clock_gettime(CLOCK_MONOTONIC, &end);

	return end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9;
}

/* Fills a second domain, and frees it */
static double second(void)
{
	struct iommu_hwpt_alloc alloc = {
		.size = sizeof(alloc),
		.dev_id = device,
		.pt_id = ioas,
	};
	struct iommu_destroy destroy = { .size = sizeof(destroy) };
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	if (ioctl(fd, IOMMU_HWPT_ALLOC, &alloc))
		err(1, "a second domain");
	clock_gettime(CLOCK_MONOTONIC, &end);
	destroy.id = alloc.out_hwpt_id;
	if (ioctl(fd, IOMMU_DESTROY, &destroy))
		err(1, "destroy");

	return end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9;
}

static void write_to(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fputs(text, file) < 0 || fclose(file))
		err(1, "%s", path);
}

/* Counts the calls that ftrace recorded during an unmap */
static void count_syncs(const char *kind, char *memory)
{
	unsigned int number = 0;
	char line[256];
	FILE *trace;

	map(memory, SIZE);
	write_to(TRACE, "\n");
	unmap(memory, SIZE);
	trace = fopen(TRACE, "r");
	if (!trace)
		err(1, TRACE);
	while (fgets(line, sizeof(line), trace))
		number += line[0] != '#';
	fclose(trace);
	printf("syncs_%s %u\n", kind, number);
}

/* Repeated rounds reuse the page tables that the first round has left */
static void measure(const char *kind, char *memory)
{
	double least = 1e9, least_second = 1e9, seconds;

	if (syncs) {
		count_syncs(kind, memory);
		return;
	}
	for (unsigned int round = 0; round < AGAIN; round++) {
		map(memory, SIZE);
		if (ioas) {
			seconds = second();
			if (seconds < least_second)
				least_second = seconds;
		}
		seconds = took(unmap, memory, SIZE);
		if (seconds < least)
			least = seconds;
	}
	printf("unmap_%s %.9f\n", kind, least);
	if (ioas)
		printf("second_%s %.9f\n", kind, least_second);
	fflush(stdout);
}

static char *get(int flags, int advice)
{
	char *memory = mmap(NULL, 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "address space");
	memory = (char *)(((uintptr_t)memory + SIZE - 1) & ~(SIZE - 1));
	if (mmap(memory, SIZE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) == MAP_FAILED)
		err(1, "memory");
	if (advice && madvise(memory, SIZE, advice))
		err(1, "madvise");
	return memory;
}

/* Touches every second chunk first, so that no two successive chunks are adjacent in memory */
static void touch(char *memory, size_t chunk)
{
	for (size_t at = 0; at < 2 * SIZE; at += 2 * chunk) {
		char *from = memory + (at < SIZE ? at : at - SIZE + chunk);

		for (size_t page = 0; page < chunk; page += 4096)
			from[page] = 1;
	}
}

static void measure_kind(const char *kind, int flags, int advice, size_t chunk)
{
	char *memory = get(flags, advice);

	touch(memory, chunk);
	measure(kind, memory);
	munmap(memory, SIZE);
}

static void small_calls(char *memory)
{
	static const size_t sizes[] = { 4096, 64 << 10, 2 << 20 };
	double least[2], seconds;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		least[0] = least[1] = 1e9;
		for (int round = 0; round < 2 * ROUNDS; round++) {
			seconds = took(round % 2 ? unmap : map, memory, sizes[i]);
			if (seconds < least[round % 2])
				least[round % 2] = seconds;
		}
		printf("map_of_%zuk %.9f\n", sizes[i] >> 10, least[0]);
		printf("unmap_of_%zuk %.9f\n", sizes[i] >> 10, least[1]);
	}
}

int main(int argc, char **argv)
{
	char *memory;

	syncs = argc == 4 && !strcmp(argv[3], "syncs");
	if (argc != 3 && !syncs)
		errx(2, "usage: unmap_calls type1|iommufd BDF [syncs]");
	memory = get(0, MADV_NOHUGEPAGE);
	if (madvise(memory, SIZE, MADV_POPULATE_WRITE))
		err(1, "memory");
	if (strcmp(argv[1], "type1"))
		iommufd_init(argv[2]);
	else
		type1_init(argv[2]);

	if (syncs) {
		count_syncs("fresh", memory);
	} else {
		printf("map_fresh %.9f\n", took(map, memory, SIZE));
		printf("unmap_fresh %.9f\n", took(unmap, memory, SIZE));
		measure("again", memory);
		small_calls(memory + SIZE / 2);
	}
	munmap(memory, SIZE);

	measure_kind("4k", 0, MADV_NOHUGEPAGE, 4096);
	measure_kind("64k", 0, MADV_NOHUGEPAGE, 65536);
	measure_kind("thp", 0, MADV_HUGEPAGE, 2 << 20);
	write_to("/proc/sys/vm/nr_hugepages", "512");
	measure_kind("hugetlb", MAP_HUGETLB, 0, 2 << 20);
	write_to("/proc/sys/vm/nr_hugepages", "0");
	measure_kind("1g", MAP_1G, 0, 2 << 20);
	return 0;
}
