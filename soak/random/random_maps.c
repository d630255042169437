// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes random maps and unmaps, valid and invalid ones. Every 100 calls, prints a
 * hash of all results up to then: errno, sizes, pinned and locked memory, and the
 * memory that the IOMMU maps. If two kernels print the same hashes for a seed, all
 * their results were the same. After each map, this program compares the mapped
 * pages with those of the memory or file, and ends if they differ.
 *
 *   random_maps type1 /dev/vfio/GROUP CALLS SEED
 *   random_maps iommufd /dev/vfio/devices/vfioN CALLS SEED
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/iommufd.h>
#include <linux/memfd.h>
#include <linux/vfio.h>

#include "leaves.h"

#define PART (40UL * MIB)
#define MEMORY (5 * PART)	/* 4K, THP, memfd, hugetlb and DAX, with holes */
#define DAX "/dev/dax0.0"
#define LARGE (128 * MIB)	/* minimum size of a large map */
#define KEPT 64

/* Files for IOMMU_IOAS_MAP_FILE */
static struct {
	uint64_t size;		/* of the whole file; 0: not a memfd */
	uint64_t page;
	int fd;
} files[] = {
	{ PART, PAGE },
	{ LARGE + PART, PAGE },
	{ LARGE + 8 * MIB, 2 * MIB },
	{ PART, PAGE },		/* sealed */
	{ LARGE + PART, PAGE },	/* opened for reading */
	{}, {}, {},		/* a device, a folder, no file */
};
#define MEMFDS 4
#define FILES (sizeof(files) / sizeof(files[0]))

struct range {
	uint64_t iova;
	uint64_t size;
};

static uint64_t state, hash;
static int fd, iommufd = -1;
static uint32_t ioas;
static struct range kept[KEPT];
static int mapped, refused, unmapped, copied, large, filed, large_files;
static bool limited;		/* locked memory is limited */
static uint64_t dax_part;	/* address of the memory of the DAX device */
static int short_of;		/* maps that failed with ENOMEM, at the limit of locked memory */

/* The mapping that the last call has made */
static struct {
	enum { NOTHING, OF_MEMORY, OF_FILE, COPY } what;
	struct range range;
	uint64_t from;		/* an address, an offset in the file, or an IOVA */
	int file;
} made;
static int compared[COPY + 1];

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

	/* The kernel counts per CPU and adds the counts up only periodically */
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

/* In kB, of this process */
static uint64_t status_of(const char *key)
{
	size_t length = strlen(key);
	uint64_t value = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");

	if (!file)
		err(1, "status");
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, length))
			value = strtoull(line + length, NULL, 10);
	fclose(file);
	return value;
}

/* Usually read and write. type1 and iommufd get the same flags. */
static uint32_t random_flags(void)
{
	return rnd(16) ? VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE : rnd(16);
}

static uint32_t iommufd_flags(uint32_t flags)
{
	return IOMMU_IOAS_MAP_FIXED_IOVA |
	       (flags & VFIO_DMA_MAP_FLAG_READ ? IOMMU_IOAS_MAP_READABLE : 0) |
	       (flags & VFIO_DMA_MAP_FLAG_WRITE ? IOMMU_IOAS_MAP_WRITEABLE : 0) |
	       (flags & 8 ? 1U << 31 : 0);
}

/*
 * If a map exceeds the limit, the base leaves pages of a DAX device pinned if it has pinned them
 * together with the pages before them. The patched kernel unpins them. Avoids such maps.
 */
static struct range shortened(uint64_t vaddr, struct range range)
{
	if (limited && iommufd < 0 && vaddr < dax_part && vaddr + range.size > dax_part)
		range.size = dax_part - vaddr;
	return range;
}

/*
 * With iommufd, the base does not map an area correctly if it ends at the highest IOVA. AMD's IOMMU
 * allows such areas. Ends them one page below.
 */
static struct range below_top(struct range range)
{
	if (iommufd >= 0 && !(range.iova + range.size))
		range.size -= PAGE;
	return range;
}

static int map(uint64_t vaddr, struct range wanted)
{
	struct range range = shortened(vaddr, below_top(wanted));
	uint32_t flags = random_flags();
	struct vfio_iommu_type1_dma_map type1 = {
		.argsz = sizeof(type1),
		.flags = flags,
		.vaddr = vaddr,
		.iova = range.iova,
		.size = range.size,
	};
	struct iommu_ioas_map two = {
		.size = sizeof(two),
		.flags = iommufd_flags(flags),
		.ioas_id = ioas,
		.user_va = vaddr,
		.iova = range.iova,
		.length = range.size,
	};
	int failed = iommufd < 0 ? ioctl(fd, VFIO_IOMMU_MAP_DMA, &type1) :
				   ioctl(iommufd, IOMMU_IOAS_MAP, &two);

	if (failed)
		return errno;
	made.what = OF_MEMORY;
	made.range = range;
	made.from = vaddr;
	return 0;
}

static int map_file(int file, uint64_t start, struct range wanted)
{
	struct range range = below_top(wanted);
	struct iommu_ioas_map_file args = {
		.size = sizeof(args),
		.flags = iommufd_flags(random_flags()),
		.ioas_id = ioas,
		.fd = files[file].fd,
		.start = start,
		.iova = range.iova,
		.length = range.size,
	};

	if (ioctl(iommufd, IOMMU_IOAS_MAP_FILE, &args))
		return errno;
	made.what = OF_FILE;
	made.range = range;
	made.from = start;
	made.file = file;
	return 0;
}

static void open_files(void)
{
	char path[64];

	for (int i = 0; i < MEMFDS; i++) {
		files[i].fd = memfd_create("random_maps", MFD_ALLOW_SEALING |
					   (files[i].page > PAGE ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
		if (files[i].fd < 0 || ftruncate(files[i].fd, files[i].size))
			err(1, "memfd");
	}
	if (fcntl(files[3].fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW))
		err(1, "seal");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", files[1].fd);
	files[4].fd = open(path, O_RDONLY);
	files[5].fd = open("/dev/null", O_RDWR);
	files[6].fd = open("/", O_RDONLY);
	files[7].fd = -1;
	if (files[4].fd < 0 || files[5].fd < 0 || files[6].fd < 0)
		err(1, "files");
}

/* Truncates the file, restores its size, or punches a hole. Fails for a sealed file. */
static void change_file(int file)
{
	uint64_t pages = files[file].size / files[file].page;
	uint64_t from = rnd(pages), size = rnd(pages - from) + 1;

	if (rnd(2))
		ftruncate(files[file].fd, (rnd(2) ? pages : from) * files[file].page);
	else
		fallocate(files[file].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  from * files[file].page, size * files[file].page);
}

/* Blocks of all memfds */
static uint64_t blocks(void)
{
	uint64_t sum = 0;
	struct stat st;

	for (int i = 0; i < MEMFDS; i++) {
		if (fstat(files[i].fd, &st))
			err(1, "fstat");
		sum += st.st_blocks;
	}
	return sum;
}

/* Maps the same pages at another IOVA. The kernel reads their PFNs from the first domain. */
static int copy(struct range range, uint64_t iova)
{
	struct range to = below_top((struct range){ iova, range.size });
	struct iommu_ioas_copy args = {
		.size = sizeof(args),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.dst_ioas_id = ioas,
		.src_ioas_id = ioas,
		.length = to.size,
		.dst_iova = to.iova,
		.src_iova = range.iova,
	};

	if (ioctl(iommufd, IOMMU_IOAS_COPY, &args))
		return errno;
	made.what = COPY;
	made.range = to;
	made.from = range.iova;
	return 0;
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
	/* Without a DAX device, its part is mapped from the memfd */
	int memfd = memfd_create("random_maps", 0), dax = open(DAX, O_RDWR);
	char *at = mmap(NULL, MEMORY + 2 * MIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || memfd < 0 || ftruncate(memfd, 2 * PART))
		err(1, "memory");
	at = (char *)(((uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1));
	madvise(at, PART, MADV_NOHUGEPAGE);
	madvise(at + PART, PART, MADV_HUGEPAGE);
	if (mmap(at + 2 * PART, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
		 0) == MAP_FAILED ||
	    mmap(at + 3 * PART, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		 MAP_FIXED | MAP_HUGETLB, -1, 0) == MAP_FAILED ||
	    mmap(at + 4 * PART, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 dax < 0 ? memfd : dax, dax < 0 ? PART : 0) == MAP_FAILED)
		err(1, "memory");
	dax_part = (uintptr_t)at + 4 * PART;
	/* Touch every other page first: then no two neighbours are physically contiguous */
	for (size_t odd = 0; odd < 2; odd++)
		for (size_t pos = odd * PAGE; pos < MEMORY; pos += 2 * PAGE)
			at[pos] = 1;
	/* Large maps end at the end of the memory, so only some of them include these pages */
	munmap(at + 20 * MIB, PAGE);
	mprotect(at + 21 * MIB + 7 * PAGE, 3 * PAGE, PROT_READ);
	mprotect(at + 22 * MIB, PAGE, PROT_NONE);
	return at;
}

static void child(char *base)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		for (int i = 0; i < 16; i++)
			base[PART + i * PAGE] = 1;
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

/* Sets a limit slightly above the locked memory, and drops CAP_IPC_LOCK, which overrides it */
static void limit(bool on)
{
	struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];

	limited = on;
	if (on)
		most.rlim_cur = (status_of("VmLck:") + status_of("VmPin:")) * 1024 +
				rnd(1UL << rnd(15)) * PAGE;
	if (setrlimit(RLIMIT_MEMLOCK, &most) || syscall(SYS_capget, &head, caps))
		err(1, "limit");
	caps[0].effective = caps[0].permitted & ~(on ? 1U << CAP_IPC_LOCK : 0);
	if (syscall(SYS_capset, &head, caps))
		err(1, "capset");
}

/* Changes the memory, a file or the limit */
static void change(char *base)
{
	uint64_t size = (rnd(1UL << rnd(14)) + 1) * PAGE;
	uint64_t from = rnd((3 * PART - size) / PAGE) * PAGE;

	if (iommufd >= 0 && rnd(2)) {
		change_file(rnd(MEMFDS));
		return;
	}
	switch (rnd(4)) {
	case 0:
		child(base);
		break;
	case 1:
		limit(true);
		break;
	case 2:
		limit(false);
		break;
	default:
		/* A later map must fault it in again */
		madvise(base + from, size, MADV_DONTNEED);
	}
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

/* Maps a large file. Either all of its pages are absent, or all pages after a random offset. */
static int map_large_file(uint64_t *size)
{
	int file = 1 + rnd(2);
	uint64_t hole = rnd(2) ? rnd(files[file].size / (2 * MIB)) * 2 * MIB : 0;
	uint64_t start = rnd(2) ? rnd((files[file].size - LARGE) / PAGE) * PAGE : 0;
	struct range range = { IOVA, files[file].size - start };
	int result;

	unmap((struct range){ IOVA, WINDOW }, size);
	if (rnd(8) && ftruncate(files[file].fd, files[file].size))
		err(1, "ftruncate");
	fallocate(files[file].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole,
		  files[file].size - hole);
	if (!rnd(8))
		range.size += PAGE;
	result = map_file(file, start, range);
	large_files += !result;
	if (!result)
		kept[0] = range;
	return result;
}

/* Maps a large range of memory after unmapping everything. Half of the time, it is absent. */
static int map_large(char *base, uint64_t *size)
{
	struct range range = { IOVA, LARGE + rnd((MEMORY - LARGE) / PAGE) * PAGE };
	int result;

	unmap((struct range){ IOVA, WINDOW }, size);
	if (rnd(2))
		madvise(base, 3 * PART, MADV_DONTNEED);
	result = map((uintptr_t)base + MEMORY - range.size, range);
	large += !result;
	if (!result)
		kept[0] = range;
	return result;
}

/* Makes one call; returns its errno. @size is the size that an unmap returns. */
static int call_one(char *base, uint64_t *size)
{
	struct range *one = &kept[rnd(KEPT)], range;
	uint64_t vaddr = (uintptr_t)base + rnd(MEMORY / PAGE) * PAGE;
	int what = rnd(iommufd < 0 ? 9 : 11), result, file;

	if (!rnd(64))
		return iommufd >= 0 && rnd(2) ? map_large_file(size) : map_large(base, size);
	if (what > 8) {
		range = random_range();
		file = rnd(FILES);
		/* sometimes beyond the end of the file */
		result = map_file(file, rnd((files[file].size + PART / 8) / PAGE) * PAGE +
				  (rnd(32) ? 0 : 8), range);
		if (!result)
			*one = range;
		filed += !result;
		refused += !!result;
		return result;
	}
	if (what == 8) {
		change(base);
		return 0;
	}
	if (what < 4) {
		range = random_range();
		result = map(vaddr + (rnd(32) ? 0 : 8), range);
		if (!result)
			*one = range;
		mapped += !result;
		refused += !!result;
		short_of += result == ENOMEM;
		return result;
	}
	if (what == 4 && iommufd >= 0) {
		result = copy(*one, random_range().iova);
		copied += !result;
		return result;
	}
	result = unmap(what < 7 ? *one : random_range(), size);
	unmapped += !result && *size;
	return result;
}

/* Maps the file into this process: otherwise, pagemap does not have the file's pages */
static void compare_file(void)
{
	uint64_t page = files[made.file].page, part = made.from % page;
	uint64_t size = (part + made.range.size + page - 1) / page * page;
	char *at = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, files[made.file].fd,
			made.from - part);

	if (at == MAP_FAILED)
		err(1, "mmap");
	leaves_compare(made.range.iova, (uintptr_t)at + part, made.range.size);
	munmap(at, size);
}

/* Ends the program unless the call has mapped the pages of its memory, file or source */
static void compare(void)
{
	if (made.what == OF_MEMORY)
		leaves_compare(made.range.iova, made.from, made.range.size);
	else if (made.what == OF_FILE)
		compare_file();
	else if (made.what == COPY)
		leaves_compare_copy(made.range.iova, made.from, made.range.size);
	compared[made.what]++;
}

int main(int argc, char **argv)
{
	struct mapped now;
	uint64_t before, size;
	char *base;
	int calls;

	if (argc != 5)
		errx(2, "usage: random_maps type1|iommufd PATH CALLS SEED");
	calls = atoi(argv[3]);
	state = strtoull(argv[4], NULL, 10);
	if (strcmp(argv[1], "iommufd"))
		open_type1(argv[2]);
	else
		open_iommufd(argv[2]);
	base = memory();
	open_files();
	before = pinned();
	leaves_open();

	for (int call = 1; call <= calls; call++) {
		size = 0;
		made.what = NOTHING;
		tell(call_one(base, &size));
		tell(size);
		tell(pinned() - before);
		tell(status_of("VmLck:"));
		tell(status_of("VmPin:"));
		tell(blocks());
		now = leaves_read();
		compare();
		tell(now.bytes);
		tell(now.iovas);
		if (call % 100 == 0 || call == calls)
			printf("%d %s %016" PRIx64 " pinned %" PRIu64 " mapped %" PRIu64 "\n", call,
			       argv[1], hash, pinned() - before, now.bytes);
	}
	printf("all %s maps %d large %d refused %d (%d for the limit) unmaps %d copies %d files "
	       "%d large files %d compared: memory %d files %d copies %d\n", argv[1], mapped, large,
	       refused, short_of, unmapped, copied, filed, large_files, compared[OF_MEMORY],
	       compared[OF_FILE], compared[COPY]);
	if (calls >= 1000 && (!mapped || !large || !refused || !short_of || !unmapped ||
			      !compared[OF_MEMORY] ||
			      (iommufd >= 0 && (!compared[COPY] || !filed || !large_files))))
		errx(1, "%s: something never happened", argv[1]);
	return 0;
}
