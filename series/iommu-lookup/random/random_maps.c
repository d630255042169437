// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps and unmaps at random and prints what user space is told: for every 100
 * calls a number made of their errno and sizes and of how many pages are pinned
 * after each. Two kernels that print the same for a seed told the same.
 *
 *   random_maps type1 /dev/vfio/GROUP CALLS SEED
 *   random_maps iommufd /dev/vfio/devices/vfioN CALLS SEED
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/iommufd.h>
#include <linux/vfio.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define MEMORY (96 * MIB)	/* a third each: 4K, THP, hugetlb, with holes */
#define IOVA (4UL << 30)
#define WINDOW (128 * MIB)
#define KEPT 64

struct range {
	uint64_t iova;
	uint64_t size;
};

static uint64_t state, hash;
static int fd, iommufd = -1;
static uint32_t ioas;
static struct range kept[KEPT];

static uint64_t rnd(uint64_t below)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (state >> 33) % below;
}

static void tell(uint64_t value)
{
	hash = (hash ^ value) * 1099511628211;
}

static uint64_t pinned(void)
{
	uint64_t value, acquired = 0, released = 0;
	int refresh = open("/proc/sys/vm/stat_refresh", O_WRONLY);
	char name[64];
	FILE *file;

	/* Counted by CPU, and added up now and then */
	if (refresh < 0 || write(refresh, "1", 1) != 1)
		err(1, "stat_refresh");
	close(refresh);
	file = fopen("/proc/vmstat", "r");
	if (!file)
		err(1, "vmstat");
	while (fscanf(file, "%63s %" SCNu64, name, &value) == 2) {
		if (!strcmp(name, "nr_foll_pin_acquired"))
			acquired = value;
		if (!strcmp(name, "nr_foll_pin_released"))
			released = value;
	}
	fclose(file);
	return acquired - released;
}

static void open_type1(const char *path)
{
	int group = open(path, O_RDWR);

	fd = open("/dev/vfio/vfio", O_RDWR);
	if (fd < 0 || group < 0 || ioctl(group, VFIO_GROUP_SET_CONTAINER, &fd) ||
	    ioctl(fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		err(1, "%s", path);
}

static void open_iommufd(const char *path)
{
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind) };
	struct vfio_device_attach_iommufd_pt attach = { .argsz = sizeof(attach) };
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };

	iommufd = open("/dev/iommu", O_RDWR);
	fd = open(path, O_RDWR);
	bind.iommufd = iommufd;
	if (fd < 0 || iommufd < 0 || ioctl(fd, VFIO_DEVICE_BIND_IOMMUFD, &bind) ||
	    ioctl(iommufd, IOMMU_IOAS_ALLOC, &alloc))
		err(1, "%s", path);
	ioas = alloc.out_ioas_id;
	attach.pt_id = ioas;
	if (ioctl(fd, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &attach))
		err(1, "attach");
}

static int map(uint64_t vaddr, struct range range)
{
	struct vfio_iommu_type1_dma_map type1 = {
		.argsz = sizeof(type1),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = vaddr,
		.iova = range.iova,
		.size = range.size,
	};
	struct iommu_ioas_map two = {
		.size = sizeof(two),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.ioas_id = ioas,
		.user_va = vaddr,
		.iova = range.iova,
		.length = range.size,
	};
	int failed = iommufd < 0 ? ioctl(fd, VFIO_IOMMU_MAP_DMA, &type1) :
				   ioctl(iommufd, IOMMU_IOAS_MAP, &two);

	return failed ? errno : 0;
}

/* Another mapping of the same pages: their PFNs come from the first domain */
static int copy(struct range range, uint64_t iova)
{
	struct iommu_ioas_copy args = {
		.size = sizeof(args),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.dst_ioas_id = ioas,
		.src_ioas_id = ioas,
		.length = range.size,
		.dst_iova = iova,
		.src_iova = range.iova,
	};

	return ioctl(iommufd, IOMMU_IOAS_COPY, &args) ? errno : 0;
}

static int unmap(struct range range, uint64_t *size)
{
	struct vfio_iommu_type1_dma_unmap type1 = {
		.argsz = sizeof(type1),
		.iova = range.iova,
		.size = range.size,
	};
	struct iommu_ioas_unmap two = {
		.size = sizeof(two),
		.ioas_id = ioas,
		.iova = range.iova,
		.length = range.size,
	};
	int failed = iommufd < 0 ? ioctl(fd, VFIO_IOMMU_UNMAP_DMA, &type1) :
				   ioctl(iommufd, IOMMU_IOAS_UNMAP, &two);

	*size = iommufd < 0 ? type1.size : two.length;
	return failed ? errno : 0;
}

static char *memory(void)
{
	char *at = mmap(NULL, MEMORY + 2 * MIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t third = MEMORY / 3;

	if (at == MAP_FAILED)
		err(1, "mmap");
	at = (char *)(((uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1));
	madvise(at, third, MADV_NOHUGEPAGE);
	madvise(at + third, third, MADV_HUGEPAGE);
	if (mmap(at + 2 * third, third, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		 MAP_FIXED | MAP_HUGETLB, -1, 0) == MAP_FAILED)
		err(1, "hugetlb");
	/* Present, so that the result does not hang on free memory; every other page first */
	for (size_t odd = 0; odd < 2; odd++)
		for (size_t pos = odd * PAGE; pos < MEMORY; pos += 2 * PAGE)
			at[pos] = 1;
	munmap(at + 20 * MIB, PAGE);
	mprotect(at + 50 * MIB + 7 * PAGE, 3 * PAGE, PROT_READ);
	return at;
}

static struct range random_range(void)
{
	struct range range = { IOVA + rnd(WINDOW / PAGE) * PAGE };

	switch (rnd(16)) {
	case 0:
		range.size = rnd(3) * 1000;
		break;
	case 1:
		range.iova = -(rnd(4) + 1) * PAGE;
		range.size = (rnd(6) + 1) * PAGE;
		break;
	case 2:
		range.size = rnd(WINDOW / PAGE) * PAGE;
		break;
	default:
		range.size = (rnd(1UL << rnd(13)) + 1) * PAGE;
	}
	return range;
}

int main(int argc, char **argv)
{
	uint64_t before, size = 0;
	struct range range;
	char *base;
	int calls, result;

	if (argc != 5)
		errx(2, "usage: random_maps type1|iommufd PATH CALLS SEED");
	calls = atoi(argv[3]);
	state = atoi(argv[4]);
	if (strcmp(argv[1], "iommufd"))
		open_type1(argv[2]);
	else
		open_iommufd(argv[2]);
	base = memory();
	before = pinned();

	for (int call = 1; call <= calls; call++) {
		struct range *one = &kept[rnd(KEPT)];
		int what = rnd(8);

		size = 0;
		if (what < 4) {
			range = random_range();
			result = map((uintptr_t)base + rnd(MEMORY / PAGE) * PAGE, range);
			if (!result)
				*one = range;
		} else if (what == 4 && iommufd >= 0) {
			range = random_range();
			result = copy(*one, range.iova);
		} else {
			range = what < 7 ? *one : random_range();
			result = unmap(range, &size);
		}
		tell(result);
		tell(size);
		tell(pinned() - before);
		if (call % 100 == 0 || call == calls)
			printf("%d %s %016" PRIx64 " %" PRIu64 "\n", call, argv[1], hash,
			       pinned() - before);
	}
	return 0;
}
