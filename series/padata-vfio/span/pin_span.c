// SPDX-License-Identifier: GPL-2.0
/*
 * Maps and unmaps memory with VFIO type1 or iommufd. With iommufd, it can also map
 * and unmap memfds. Prints how many nanoseconds each call takes. With -icount, this
 * is the number of instructions.
 *
 *   pin_span GROUP|DEVICE|mock MIB BACKING [absent|kill]
 *
 * The memory is present when it is mapped, unless the last argument is "absent".
 * "mock" stands for a mock device, which iommufd has with IOMMUFD_TEST.
 * With "kill", the process that has mapped the memory is killed before it unmaps.
 * The figure "kill" is the time until the process can be reaped. By then, its
 * memory is unpinned and free.
 *
 * BACKING: thp, hugetlb, hugetlb1g; memfd_hugetlb (only for a device);
 *   fresh    4K pages; if nothing large was allocated before, they are adjacent
 *   4k       4K pages, no two of which are adjacent
 *   shared_4k, memfd    like 4k, in shared memory or in a file (only for a device)
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/iommufd.h>
#include <linux/memfd.h>
#include <linux/vfio.h>

#define HUGE (2UL << 20)
#define GIGA (1UL << 30)
#define IOVA (4UL << 30)
#define MOCK_IOVA GIGA	/* a mock device has IOVAs from 16M to 2G */

static int container_of(const char *group_path)
{
	int container = open("/dev/vfio/vfio", O_RDWR);
	int group = open(group_path, O_RDWR);

	if (container < 0 || group < 0)
		err(1, "%s", group_path);
	if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) ||
	    ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		err(1, "type1");

	return container;
}

/*
 * IOMMU_TEST_OP_MOCK_DOMAIN of drivers/iommu/iommufd/iommufd_test.h. iommufd accepts
 * a larger structure than its own if the rest is zero.
 */
struct mock_domain {
	uint32_t size;
	uint32_t op;
	uint32_t ioas_id;
	uint32_t zero[33];
};

#define MOCK_DOMAIN 2
#define TEST_CMD _IO(IOMMUFD_TYPE, IOMMUFD_CMD_BASE + 32)

/* Attaches a mock device to a new IOAS and returns its ID. */
static uint32_t ioas_of_mock(int iommufd)
{
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	struct mock_domain mock = { .size = sizeof(mock), .op = MOCK_DOMAIN };

	if (iommufd < 0 || ioctl(iommufd, IOMMU_IOAS_ALLOC, &alloc))
		err(1, "/dev/iommu");
	mock.ioas_id = alloc.out_ioas_id;
	if (ioctl(iommufd, TEST_CMD, &mock))
		err(1, "mock device");

	return alloc.out_ioas_id;
}

/* Attaches the device to a new IOAS and returns its ID. The device stays open. */
static uint32_t ioas_of(const char *path, int iommufd)
{
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind), .iommufd = iommufd };
	struct vfio_device_attach_iommufd_pt attach = { .argsz = sizeof(attach) };
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	int device = open(path, O_RDWR);

	if (device < 0 || iommufd < 0 || ioctl(device, VFIO_DEVICE_BIND_IOMMUFD, &bind) ||
	    ioctl(iommufd, IOMMU_IOAS_ALLOC, &alloc))
		err(1, "%s", path);
	attach.pt_id = alloc.out_ioas_id;
	if (ioctl(device, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &attach))
		err(1, "attach");

	return alloc.out_ioas_id;
}

static int memfd_of(size_t size, const char *backing)
{
	int fd = memfd_create(backing, strcmp(backing, "memfd") ? MFD_HUGETLB | MFD_HUGE_2MB : 0);

	if (fd < 0 || ftruncate(fd, size))
		err(1, "memfd");

	return fd;
}

/* Aligns the memory for huge pages, as a VMM does. */
static char *memory_of(size_t size, const char *backing)
{
	size_t huge = strcmp(backing, "hugetlb1g") ? HUGE : GIGA;
	int hugetlb = strncmp(backing, "hugetlb", 7) ? 0 :
		      MAP_HUGETLB | (huge == GIGA ? 30 : 21) << MAP_HUGE_SHIFT;
	int share = strcmp(backing, "shared_4k") ? MAP_PRIVATE : MAP_SHARED;
	char *memory = mmap(NULL, size + huge, PROT_READ | PROT_WRITE,
			    share | MAP_ANONYMOUS | MAP_NORESERVE | hugetlb, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	memory = (char *)(((uintptr_t)memory + huge - 1) & ~(huge - 1));
	if (!hugetlb && madvise(memory, size, strcmp(backing, "thp") ? MADV_NOHUGEPAGE :
								       MADV_HUGEPAGE))
		err(1, "madvise");

	return memory;
}

/* Touches every second 4K page first, so that no two successive pages are adjacent in memory */
static void touch(char *memory, size_t size, const char *backing)
{
	const bool apart = strstr(backing, "4k") || !strcmp(backing, "memfd");
	const size_t page = sysconf(_SC_PAGESIZE);

	for (size_t at = 0; apart && at < size; at += 2 * page)
		memory[at] = 1;
	memset(memory, 1, size);
}

static bool absent;	/* memory is mapped before its first access */

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000UL + ts.tv_nsec;
}

static int call(int fd, unsigned long request, void *argument, const char *what)
{
	uint64_t took;
	int failed;

	took = now();
	failed = ioctl(fd, request, argument);
	took = now() - took;
	printf("%s %lu\n", what, took);

	return failed;
}

static int mapped = -1;	/* the child that will be killed reports its map here */

/* Returns in the child only */
static void kill_when_mapped(void)
{
	int fds[2];
	pid_t child;
	char byte;
	uint64_t took;

	if (pipe(fds))
		err(1, "pipe");
	child = fork();
	if (child < 0)
		err(1, "fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mapped = fds[1];
		return;
	}
	close(fds[1]);
	if (read(fds[0], &byte, 1) != 1)
		errx(1, "nothing was mapped");
	took = now();
	if (kill(child, SIGKILL) || waitpid(child, NULL, 0) != child)
		err(1, "kill");
	took = now() - took;
	printf("kill %lu\n", took);
	exit(0);
}

static void wait_for_kill(void)
{
	if (mapped < 0)
		return;
	if (write(mapped, "", 1) != 1)
		err(1, "pipe");
	for (;;)
		pause();
}

static char *mapping_of(int fd, size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");

	return memory;
}

static int main_iommufd(const char *path, size_t size, const char *backing)
{
	int iommufd = open("/dev/iommu", O_RDWR);
	int fd = strncmp(backing, "memfd", 5) ? -1 : memfd_of(size, backing);
	char *memory = fd < 0 ? memory_of(size, backing) : mapping_of(fd, size);
	bool mock = !strcmp(path, "mock");
	uint32_t ioas = mock ? ioas_of_mock(iommufd) : ioas_of(path, iommufd);
	uint64_t iova = mock ? MOCK_IOVA : IOVA;
	uint32_t flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE;
	struct iommu_ioas_map map = {
		.size = sizeof(map),
		.flags = flags,
		.ioas_id = ioas,
		.user_va = (uintptr_t)memory,
		.iova = iova,
		.length = size,
	};
	struct iommu_ioas_map_file map_file = {
		.size = sizeof(map_file),
		.flags = flags,
		.ioas_id = ioas,
		.fd = fd,
		.iova = iova,
		.length = size,
	};
	struct iommu_ioas_unmap unmap = {
		.size = sizeof(unmap),
		.ioas_id = ioas,
		.iova = iova,
		.length = size,
	};
	int failed;

	if (!absent)
		touch(memory, size, backing);
	failed = fd < 0 ? call(iommufd, IOMMU_IOAS_MAP, &map, "map") :
			  call(iommufd, IOMMU_IOAS_MAP_FILE, &map_file, "map");
	if (failed)
		err(1, "%s", backing);
	wait_for_kill();
	if (call(iommufd, IOMMU_IOAS_UNMAP, &unmap, "unmap"))
		err(1, "%s", backing);

	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc == 5 ? argv[4] : "";
	bool killed = !strcmp(how, "kill");
	bool late = !strcmp(how, "absent");
	size_t size = argc == 4 || killed || late ? strtoul(argv[2], NULL, 0) << 20 : 0;
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.iova = IOVA,
		.size = size,
	};
	struct vfio_iommu_type1_dma_unmap unmap = {
		.argsz = sizeof(unmap),
		.iova = IOVA,
		.size = size,
	};
	int container;
	char *memory;

	if (!size)
		errx(2, "usage: pin_span GROUP|DEVICE|mock MIB BACKING [absent|kill]");
	absent = late;
	if (killed)
		kill_when_mapped();
	if (!strncmp(argv[1], "/dev/vfio/devices/", 18) || !strcmp(argv[1], "mock"))
		return main_iommufd(argv[1], size, argv[3]);
	container = container_of(argv[1]);
	memory = memory_of(size, argv[3]);
	if (!absent)
		touch(memory, size, argv[3]);
	map.vaddr = (uintptr_t)memory;
	if (call(container, VFIO_IOMMU_MAP_DMA, &map, "map"))
		err(1, "%s", argv[3]);
	wait_for_kill();
	if (call(container, VFIO_IOMMU_UNMAP_DMA, &unmap, "unmap"))
		err(1, "%s", argv[3]);

	return 0;
}
