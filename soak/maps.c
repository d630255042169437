// SPDX-License-Identifier: GPL-2.0-only
/*
 * Directors of VFIO containers and of an iommufd. Each opens one, starts mappers
 * (processes that map and unmap in it), and replaces mappers that end or are
 * killed. Sometimes it closes the container or iommufd, with or without mappings.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <linux/iommufd.h>
#include <linux/vfio.h>

#include "soak.h"
#include "lib/device.h"

#define MIB (1UL << 20)
#define HUGE_SIZE (2 * MIB)
#define MEMORY (160 * MIB)
#define HUGETLB (16 * MIB)	/* the last part of MEMORY */
#define LARGE (128 * MIB)
#define WINDOW (512 * MIB)	/* IOVAs of one mapper */
#define IOVA (4UL << 30)
#define KEPT 8
#define RETRY_S 60		/* time in which the last process closes the old file */

struct space {
	bool iommufd;
	int fd;		/* the container or /dev/iommu */
	int device;	/* the group or the device */
	uint32_t device_id;
};

struct mapper {
	struct space *space;
	uint64_t stream;
	uint64_t iova;
	uint32_t ioas, hwpt;
	bool *leave;	/* set by the director before it closes */
};

struct range {
	uint64_t iova;
	uint64_t size;
};

static uint64_t page;

static bool may_stay(struct mapper *mapper)
{
	return !over() && !__atomic_load_n(mapper->leave, __ATOMIC_RELAXED);
}

static bool open_type1(struct space *space, const char *path)
{
	space->device = open(path, O_RDWR | O_CLOEXEC);
	if (space->device < 0)
		return false;
	space->fd = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	if (space->fd >= 0 && !ioctl(space->device, VFIO_GROUP_SET_CONTAINER, &space->fd) &&
	    !ioctl(space->fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		return true;
	close(space->fd);
	close(space->device);
	return false;
}

static bool open_iommufd(struct space *space, const char *path)
{
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind) };

	space->device = open(path, O_RDWR | O_CLOEXEC);
	if (space->device < 0)
		return false;
	space->fd = open("/dev/iommu", O_RDWR | O_CLOEXEC);
	bind.iommufd = space->fd;
	if (space->fd >= 0 && !ioctl(space->device, VFIO_DEVICE_BIND_IOMMUFD, &bind)) {
		space->device_id = bind.out_devid;
		return true;
	}
	close(space->fd);
	close(space->device);
	return false;
}

static void open_space(struct space *space, const char *path)
{
	double late = now() + RETRY_S;

	/* A child of a killed mapper may still have the old file open */
	while (!(space->iommufd ? open_iommufd : open_type1)(space, path)) {
		if (now() > late)
			err(1, "%s", path);
		usleep(20000);
	}
}

static void close_space(struct space *space)
{
	close(space->fd);
	close(space->device);
}

static void destroy(struct space *space, uint32_t id)
{
	struct iommu_destroy args = { .size = sizeof(args), .id = id };

	ioctl(space->fd, IOMMU_DESTROY, &args);
}

/* Adds a domain to the IOAS. The kernel fills it with the existing mappings. */
static uint32_t alloc_hwpt(struct mapper *mapper)
{
	struct iommu_hwpt_alloc args = {
		.size = sizeof(args),
		.dev_id = mapper->space->device_id,
		.pt_id = mapper->ioas,
	};

	return ioctl(mapper->space->fd, IOMMU_HWPT_ALLOC, &args) ? 0 : args.out_hwpt_id;
}

static bool map(struct mapper *mapper, uint64_t vaddr, struct range range)
{
	bool writes = rnd(4);
	struct vfio_iommu_type1_dma_map type1 = {
		.argsz = sizeof(type1),
		.flags = VFIO_DMA_MAP_FLAG_READ | (writes ? VFIO_DMA_MAP_FLAG_WRITE : 0),
		.vaddr = vaddr,
		.iova = range.iova,
		.size = range.size,
	};
	struct iommu_ioas_map iommufd = {
		.size = sizeof(iommufd),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 (writes ? IOMMU_IOAS_MAP_WRITEABLE : 0),
		.ioas_id = mapper->ioas,
		.user_va = vaddr,
		.iova = range.iova,
		.length = range.size,
	};

	if (mapper->space->iommufd ? ioctl(mapper->space->fd, IOMMU_IOAS_MAP, &iommufd) :
				     ioctl(mapper->space->fd, VFIO_IOMMU_MAP_DMA, &type1))
		return false;
	counted(mapper->space->iommufd ? IOMMUFD : TYPE1);
	return true;
}

static void unmap(struct mapper *mapper, struct range range)
{
	struct vfio_iommu_type1_dma_unmap type1 = {
		.argsz = sizeof(type1),
		.iova = range.iova,
		.size = range.size,
	};
	struct iommu_ioas_unmap iommufd = {
		.size = sizeof(iommufd),
		.ioas_id = mapper->ioas,
		.iova = range.iova,
		.length = range.size,
	};
	bool failed = mapper->space->iommufd ?
		ioctl(mapper->space->fd, IOMMU_IOAS_UNMAP, &iommufd) :
		ioctl(mapper->space->fd, VFIO_IOMMU_UNMAP_DMA, &type1) || !type1.size;

	if (!failed)
		counted(mapper->space->iommufd ? IOMMUFD : TYPE1);
}

static void unmap_all(struct mapper *mapper)
{
	unmap(mapper, (struct range){ mapper->iova, WINDOW });
}

/* Maps the same pages at other IOVAs. The kernel looks up the pages in the first domain. */
static void copy(struct mapper *mapper, struct range range, uint64_t iova)
{
	struct iommu_ioas_copy args = {
		.size = sizeof(args),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE,
		.dst_ioas_id = mapper->ioas,
		.src_ioas_id = mapper->ioas,
		.length = range.size,
		.dst_iova = iova,
		.src_iova = range.iova,
	};

	if (!ioctl(mapper->space->fd, IOMMU_IOAS_COPY, &args))
		counted(IOMMUFD);
}

/* 4K pages, THP, or one half of each. If huge pages are free, the end is sometimes hugetlb. */
static char *memory(void)
{
	char *at = mmap(NULL, MEMORY + HUGE_SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t small = rnd(3) * MEMORY / 2, first;

	if (at == MAP_FAILED)
		err(1, "mmap");
	first = ((uintptr_t)at + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1);
	at = (char *)first;
	madvise(at, small, MADV_NOHUGEPAGE);
	madvise(at + small, MEMORY - small, MADV_HUGEPAGE);
	if (rnd(2)) {
		char *huge = mmap(NULL, HUGETLB, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

		/* Map elsewhere, then move: a failed MAP_FIXED would leave a hole */
		if (huge != MAP_FAILED && mremap(huge, HUGETLB, HUGETLB,
						 MREMAP_MAYMOVE | MREMAP_FIXED,
						 at + MEMORY - HUGETLB) == MAP_FAILED)
			munmap(huge, HUGETLB);
	}
	return at;
}

static struct range random_range(struct mapper *mapper)
{
	struct range range = { mapper->iova };

	if (!rnd(12)) {
		range.size = LARGE + rnd((MEMORY - LARGE) / page + 1) * page;
		range.iova += rnd(2) * WINDOW / 2;
		return range;
	}
	range.size = (rnd(1UL << rnd(13)) + 1) * page;
	range.iova += rnd((WINDOW - range.size) / page) * page;
	return range;
}

/* A large range needs a free window: in half of these cases, everything is unmapped first */
static bool map_some(struct mapper *mapper, char *base, struct range *kept)
{
	struct range range = random_range(mapper);
	uint64_t vaddr = (uintptr_t)base + rnd((MEMORY - range.size) / page + 1) * page;

	if (range.size >= LARGE && rnd(2)) {
		unmap_all(mapper);
		madvise(base, MEMORY - HUGETLB, MADV_DONTNEED);
	}
	if (!map(mapper, vaddr, range))
		return false;
	*kept = range;
	return true;
}

static void child(char *base)
{
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (!pid) {
		for (int i = 0; i < 16; i++)
			base[rnd((MEMORY - HUGETLB) / page) * page] = 1;
		if (rnd(2))
			execl("/bin/busybox", "true", NULL);
		_exit(0);
	}
	counted(FORK);
	waitpid(pid, NULL, 0);
}

static void *exec_later(void *arg)
{
	uint64_t *stream = arg;

	seed_random(*stream);
	usleep(rnd(4000000));
	counted(EXEC);
	execl("/bin/busybox", "true", NULL);
	return NULL;
}

/* In kB, of this process */
static unsigned long status_of(const char *key)
{
	char text[8192], *at;

	if (read_text("/proc/self/status", text, sizeof(text)) < 0)
		err(1, "/proc/self/status");
	at = strstr(text, key);
	return at ? strtoul(at + strlen(key), NULL, 10) : 0;
}

static void check_balance(const char *what)
{
	unsigned long locked = status_of("VmLck:"), pinned = status_of("VmPin:");

	add(locked || pinned ? &shared->unbalanced : &shared->balanced, 1);
	if (locked || pinned)
		printf("# a process of %s ended with VmLck %lu kB, VmPin %lu kB\n", what, locked,
		       pinned);
}

static void mapper_main(void *arg)
{
	struct mapper *mapper = arg;
	uint64_t stream = mapper->stream;
	struct range kept[KEPT] = {};
	uint32_t hwpt = 0;
	pthread_t thread;
	char *base;

	seed_random(stream++);
	base = memory();
	/* The exec ends this process, usually in the middle of a call */
	if (!rnd(5) && pthread_create(&thread, NULL, exec_later, &stream))
		errx(1, "pthread_create");

	for (int calls = 30 + rnd(100); calls && may_stay(mapper); calls--) {
		struct range *one = &kept[rnd(KEPT)];
		uint64_t from = rnd(MEMORY / page) * page, size = rnd(8 * MIB / page) * page;

		if (size > MEMORY - from)
			size = MEMORY - from;
		switch (rnd(16)) {
		case 0 ... 5:
			map_some(mapper, base, one);
			break;
		case 6 ... 9:
			unmap(mapper, *one);
			break;
		case 10:
			if (mapper->space->iommufd && one->size)
				copy(mapper, *one, random_range(mapper).iova);
			break;
		case 11:
			madvise(base + from, size, MADV_DONTNEED);
			break;
		case 12:
			/* Not in hugetlb: without a free huge page, the write causes SIGBUS */
			for (; size && from < MEMORY - HUGETLB; from += page, size -= page)
				base[from] = 1;
			break;
		case 13:
			child(base);
			break;
		case 14:
			if (!mapper->space->iommufd)
				break;
			if (!hwpt) {
				hwpt = alloc_hwpt(mapper);
			} else {
				destroy(mapper->space, hwpt);
				hwpt = 0;
			}
			break;
		default:
			rest(100);
		}
	}
	unmap_all(mapper);
	if (hwpt)
		destroy(mapper->space, hwpt);
	check_balance(mapper->space->iommufd ? "iommufd" : "type1");
}

static void start(struct mapper *mapper, int slot)
{
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };

	if (mapper->space->iommufd) {
		if (ioctl(mapper->space->fd, IOMMU_IOAS_ALLOC, &alloc))
			err(1, "IOMMU_IOAS_ALLOC");
		mapper->ioas = alloc.out_ioas_id;
		mapper->hwpt = alloc_hwpt(mapper);
		if (!mapper->hwpt)
			err(1, "IOMMU_HWPT_ALLOC");
	}
	mapper->stream += 2;
	spawn(slot, true, mapper_main, mapper);
}

/* Removes the mappings of a mapper that has ended */
static void clean(struct mapper *mapper)
{
	if (!mapper->space->iommufd) {
		unmap_all(mapper);
		return;
	}
	/* Fails if the mapper had a second domain; closing the iommufd then frees both */
	destroy(mapper->space, mapper->hwpt);
	destroy(mapper->space, mapper->ioas);
}

static void one_life(struct space *space, struct mapper *mappers, bool *leave, int slot)
{
	double end = now() + 10 + rnd(30);

	for (int i = 0; i < MAPPERS; i++)
		start(&mappers[i], slot + i);
	while (!over() && now() < end) {
		for (int i = 0; i < MAPPERS; i++) {
			if (!reaped(slot + i))
				continue;
			clean(&mappers[i]);
			start(&mappers[i], slot + i);
		}
		usleep(20000);
	}
	__atomic_store_n(leave, true, __ATOMIC_RELAXED);
	/* Killed mappers leave their mappings; others unmap everything */
	if (!over() && rnd(3))
		end_all(slot, MAPPERS);
	for (int i = 0; i < MAPPERS; i++)
		while (!reaped(slot + i))
			usleep(20000);
	__atomic_store_n(leave, false, __ATOMIC_RELAXED);
	close_space(space);
}

static void direct(const char *path, bool iommufd, int slot)
{
	struct space space = { .iommufd = iommufd };
	struct mapper mappers[MAPPERS];
	bool *leave = mmap(NULL, sizeof(*leave), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (leave == MAP_FAILED)
		err(1, "mmap");
	page = sysconf(_SC_PAGESIZE);
	seed_random((slot + 1) * 1000000UL);
	for (int i = 0; i < MAPPERS; i++)
		mappers[i] = (struct mapper){
			.space = &space,
			.stream = (slot + i + 1) * 1000000UL + 1,
			.iova = IOVA + i * WINDOW,
			.leave = leave,
		};
	while (!over()) {
		open_space(&space, path);
		one_life(&space, mappers, leave, slot);
	}
}

void type1_director(const char *bdf, int slot)
{
	char path[PATH_MAX];

	group_path(bdf, path, sizeof(path));
	direct(path, false, slot);
}

void iommufd_director(const char *bdf, int slot)
{
	char path[PATH_MAX];

	cdev_path(bdf, path, sizeof(path));
	direct(path, true, slot);
}
