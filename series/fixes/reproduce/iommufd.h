/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the reproducers of iommufd's bugs. Its functions attach a PCI device
 * to an IOAS, map a file, and return how many pins the kernel has taken and
 * dropped. Exit status 4: the bug cannot be tested here.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/iommufd.h>
#include <linux/vfio.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define SHMEM "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static int iommufd;
static uint32_t ioas;
static char shmem[128];

static void missing(const char *what)
{
	printf("cannot tell here: %s: %s\n", what, strerror(errno));
	exit(4);
}

/* Attaches the device, which is bound to vfio-pci, to a new IOAS */
static void open_ioas(const char *bdf)
{
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind) };
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	struct vfio_device_attach_iommufd_pt attach = { .argsz = sizeof(attach) };
	char path[PATH_MAX];
	int device;
	glob_t found;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vfio-dev/vfio*", bdf);
	if (glob(path, 0, NULL, &found))
		missing(path);
	snprintf(path, sizeof(path), "/dev/vfio/devices%s", strrchr(found.gl_pathv[0], '/'));
	globfree(&found);
	device = open(path, O_RDWR);
	iommufd = open("/dev/iommu", O_RDWR);
	bind.iommufd = iommufd;
	if (device < 0 || iommufd < 0 || ioctl(device, VFIO_DEVICE_BIND_IOMMUFD, &bind) ||
	    ioctl(iommufd, IOMMU_IOAS_ALLOC, &alloc))
		missing(path);
	ioas = alloc.out_ioas_id;
	attach.pt_id = ioas;
	if (ioctl(device, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &attach))
		missing(path);
}

static int map_file(int fd, uint64_t length, uint64_t iova)
{
	struct iommu_ioas_map_file map = {
		.size = sizeof(map),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.ioas_id = ioas,
		.fd = fd,
		.length = length,
		.iova = iova,
	};

	return ioctl(iommufd, IOMMU_IOAS_MAP_FILE, &map) ? errno : 0;
}

static int unmap(uint64_t length, uint64_t iova)
{
	struct iommu_ioas_unmap args = {
		.size = sizeof(args),
		.ioas_id = ioas,
		.iova = iova,
		.length = length,
	};

	return ioctl(iommufd, IOMMU_IOAS_UNMAP, &args) ? errno : 0;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		missing(path);
	close(fd);
}

static void restore_shmem(void)
{
	char *word = strchr(shmem, '[') + 1;

	word[strcspn(word, "]")] = '\0';
	write_file(SHMEM, word);
}

/* Makes memfds use huge pages where MADV_HUGEPAGE requests them */
static void advise_shmem(void)
{
	int fd = open(SHMEM, O_RDONLY);

	if (fd < 0 || read(fd, shmem, sizeof(shmem) - 1) < 0 || !strchr(shmem, '['))
		missing(SHMEM);
	close(fd);
	write_file(SHMEM, "advise");
	atexit(restore_shmem);
}

/* A counter in /proc/vmstat, after adding up the counts of all CPUs */
static long vmstat(const char *name)
{
	char line[128];
	long value = -1;
	size_t len = strlen(name);
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY);
	FILE *file = fopen("/proc/vmstat", "r");

	if (fd < 0 || !file || read(fd, line, 1) < 0)
		missing("/proc/vmstat");
	while (value < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, len) && line[len] == ' ')
			value = atol(line + len);
	fclose(file);
	close(fd);
	if (value < 0)
		missing(name);
	return value;
}

static long pins_taken(void)
{
	return vmstat("nr_foll_pin_acquired");
}

static long pins_dropped(void)
{
	return vmstat("nr_foll_pin_released");
}
