// SPDX-License-Identifier: GPL-2.0
/*
 * How long VFIO's calls take: for 1 GiB of 4K pages that are the first which the
 * machine allocates, so next to one another in physical memory; for the same ones
 * again, which the first unmap has marked dirty; and for little.
 *
 *   unmap_calls type1|iommufd BDF
 *
 * Prints `METRIC SECONDS`, of all but the first the least of several rounds.
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/iommufd.h>
#include <linux/vfio.h>

#define IOVA (4UL << 30)
#define FRESH (1UL << 30)
#define ROUNDS 64
#define AGAIN 4

static int fd;			/* of a container, or of iommufd */
static uint32_t ioas;		/* 0 with a container */

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

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4096, 64 << 10, 2 << 20 };
	double least[2], seconds;
	char *memory;

	if (argc != 3)
		errx(2, "usage: unmap_calls type1|iommufd BDF");
	memory = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, FRESH, MADV_NOHUGEPAGE) ||
	    madvise(memory, FRESH, MADV_POPULATE_WRITE))
		err(1, "memory");
	if (strcmp(argv[1], "type1"))
		iommufd_init(argv[2]);
	else
		type1_init(argv[2]);

	printf("map_fresh %.9f\n", took(map, memory, FRESH));
	printf("unmap_fresh %.9f\n", took(unmap, memory, FRESH));

	least[0] = 1e9;
	for (int round = 0; round < AGAIN; round++) {
		map(memory, FRESH);
		seconds = took(unmap, memory, FRESH);
		if (seconds < least[0])
			least[0] = seconds;
	}
	printf("unmap_again %.9f\n", least[0]);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		least[0] = least[1] = 1e9;
		for (int round = 0; round < 2 * ROUNDS; round++) {
			seconds = took(round % 2 ? unmap : map, memory, sizes[i]);
			if (seconds < least[round % 2])
				least[round % 2] = seconds;
		}
		printf("map_%zuk %.9f\n", sizes[i] >> 10, least[0]);
		printf("unmap_%zuk %.9f\n", sizes[i] >> 10, least[1]);
	}

	return 0;
}
