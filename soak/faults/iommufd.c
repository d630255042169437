// SPDX-License-Identifier: GPL-2.0-only
/* Scenes of an iommufd: its address spaces and domains are created, filled and emptied. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/iommufd.h>
#include <linux/vfio.h>

#include "faults.h"
#include "lib/device.h"

#define IOVA ((4UL << 30) + page)
#define COPY (8UL << 30)

static int iommufd, device;
static uint32_t device_id, ioas, domain, copied;
static bool attached;

static const char *missing_device(void)
{
	return nr_devices < 3 ? "no device on vfio-pci" : missing_memory();
}

/* Binding resets the device, so this runs only once. The device stays bound. */
static void bind(void)
{
	struct vfio_device_bind_iommufd args = { .argsz = sizeof(args) };
	char path[PATH_MAX];

	cdev_path(devices[2], path, sizeof(path));
	device = open(path, O_RDWR | O_CLOEXEC);
	iommufd = open("/dev/iommu", O_RDWR | O_CLOEXEC);
	args.iommufd = iommufd;
	if (device < 0 || iommufd < 0 || ioctl(device, VFIO_DEVICE_BIND_IOMMUFD, &args))
		err(1, "%s", path);
	device_id = args.out_devid;
	if (playing->backing != NONE)
		make_memory();
}

static int destroy(uint32_t *id)
{
	struct iommu_destroy args = { .size = sizeof(args), .id = *id };

	if (*id && ioctl(iommufd, IOMMU_DESTROY, &args))
		return errno;
	*id = 0;
	return 0;
}

static int make_ioas(void)
{
	struct iommu_ioas_alloc args = { .size = sizeof(args) };

	if (ioctl(iommufd, IOMMU_IOAS_ALLOC, &args))
		return errno;
	ioas = args.out_ioas_id;
	return 0;
}

static int make_domain(void)
{
	struct iommu_hwpt_alloc args = {
		.size = sizeof(args),
		.dev_id = device_id,
		.pt_id = ioas,
	};

	if (ioctl(iommufd, IOMMU_HWPT_ALLOC, &args))
		return errno;
	domain = args.out_hwpt_id;
	return 0;
}

/* Attaches the device to the IOAS, for which the kernel creates a domain */
static int attach(void)
{
	struct vfio_device_attach_iommufd_pt args = { .argsz = sizeof(args), .pt_id = ioas };

	if (ioctl(device, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &args))
		return errno;
	attached = true;
	return 0;
}

static void undo(void)
{
	struct vfio_device_detach_iommufd_pt args = { .argsz = sizeof(args) };

	if (attached && ioctl(device, VFIO_DEVICE_DETACH_IOMMUFD_PT, &args))
		err(1, "VFIO_DEVICE_DETACH_IOMMUFD_PT");
	attached = false;
	if (destroy(&domain) || destroy(&copied) || destroy(&ioas))
		err(1, "IOMMU_DESTROY");
}

static int create(void)
{
	int error = make_ioas();

	if (!error)
		error = attach();
	if (error)
		undo();
	return error;
}

static int unmap_at(uint64_t iova)
{
	struct iommu_ioas_unmap args = {
		.size = sizeof(args),
		.ioas_id = ioas,
		.iova = iova,
		.length = playing->size,
	};

	return ioctl(iommufd, IOMMU_IOAS_UNMAP, &args) ? errno : 0;
}

/* EFAULT may mean that only the copy of the result failed. The mapping then still exists. */
static int failed_map(int error, uint64_t iova)
{
	if (error == EFAULT)
		unmap_at(iova);
	return error;
}

static int map(void)
{
	struct iommu_ioas_map args = {
		.size = sizeof(args),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE |
			 IOMMU_IOAS_MAP_WRITEABLE,
		.ioas_id = ioas,
		.user_va = (uintptr_t)memory,
		.iova = IOVA,
		.length = playing->size,
	};

	return ioctl(iommufd, IOMMU_IOAS_MAP, &args) ? failed_map(errno, IOVA) : 0;
}

/* ENOENT: an earlier call unmapped it, and only the copy of its result failed */
static int unmap(void)
{
	int error = unmap_at(IOVA);

	return error == ENOENT ? 0 : error;
}

static int copy(void)
{
	struct iommu_ioas_copy args = {
		.size = sizeof(args),
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE,
		.dst_ioas_id = ioas,
		.src_ioas_id = ioas,
		.length = playing->size,
		.dst_iova = COPY,
		.src_iova = IOVA,
	};

	return ioctl(iommufd, IOMMU_IOAS_COPY, &args) ? failed_map(errno, COPY) : 0;
}

static void prepare_ioas(void)
{
	drop_memory();
	errno = create();
	if (errno)
		err(1, "an IOAS");
}

static void prepare_mapping(void)
{
	prepare_ioas();
	errno = map();
	if (errno)
		err(1, "IOMMU_IOAS_MAP");
}

static void prepare_second(void)
{
	prepare_mapping();
	errno = make_domain();
	if (errno)
		err(1, "IOMMU_HWPT_ALLOC");
}

static void nothing(void)
{
}

#define SCENE .missing = missing_device, .begin = bind, .undo = undo
#define SMALL_8M .backing = SMALL, .size = 8 * MIB

const struct scene iommufd_scenes[] = {
	{ "iommufd: a device attached", SCENE, .prepare = nothing, .call = create },
	{ "iommufd: 4K mapped", SCENE, .prepare = prepare_ioas, .call = map, SMALL_8M },
	{ "iommufd: absent 4K mapped", SCENE, .prepare = prepare_ioas, .call = map,
	  .backing = ABSENT, .size = MIB / 4 },
	{ "iommufd: THP mapped", SCENE, .prepare = prepare_ioas, .call = map,
	  .backing = THP, .size = 16 * MIB },
	{ "iommufd: a second domain filled", SCENE, .prepare = prepare_mapping,
	  .call = make_domain, SMALL_8M },
	{ "iommufd: a mapping copied", SCENE, .prepare = prepare_mapping, .call = copy, SMALL_8M },
	{ "iommufd: 4K unmapped", SCENE, .prepare = prepare_mapping, .call = unmap, SMALL_8M,
	  .may_be_done = true },
	{ "iommufd: unmapped in two domains", SCENE, .prepare = prepare_second, .call = unmap,
	  SMALL_8M, .may_be_done = true },
	{}
};
