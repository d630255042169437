// SPDX-License-Identifier: GPL-2.0-only
/*
 * For "mm/memfd: allocate huge pages according to the memory policy". IOMMU_IOAS_MAP_FILE allocates
 * and pins the huge pages that a memfd lacks. The program runs on a CPU of node 0 with policies for
 * node 1, and prints the nodes of the pages. Needs two nodes and a VFIO device.
 *
 *   memfd_policy BDF
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/iommufd.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <linux/vfio.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	(2UL << 20)
#define PAGES	2UL
#define POOL	8
#define FILE_OF	"/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/%s"

static int iommu, pool[2];
static __u32 ioas;

static void need(int met, const char *what)
{
	if (met)
		return;
	printf("cannot tell: %s\n", what);
	exit(4);
}

static int number(int node, const char *name, int value)
{
	int now = -1;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), FILE_OF, node, name);
	file = fopen(path, value < 0 ? "r" : "w");
	need(file && (value < 0 ? fscanf(file, "%d", &now) : fprintf(file, "%d", value)) > 0,
	     "no huge pages on two nodes");
	need(!fclose(file), "cannot set the number of huge pages");
	return now;
}

static void restore(void)
{
	for (int node = 0; node < 2; node++)
		number(node, "nr_hugepages", pool[node]);
}

static void attach(const char *bdf)
{
	struct vfio_device_bind_iommufd bind = { .argsz = sizeof(bind) };
	struct vfio_device_attach_iommufd_pt pt = { .argsz = sizeof(pt) };
	struct iommu_ioas_alloc alloc = { .size = sizeof(alloc) };
	struct dirent *entry;
	char path[512];
	int device = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vfio-dev", bdf);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/dev/vfio/devices/%s", entry->d_name);
		if (entry->d_name[0] != '.')
			device = open(path, O_RDWR);
	}
	iommu = open("/dev/iommu", O_RDWR);
	need(device >= 0 && iommu >= 0, "no VFIO device, or no iommufd");
	bind.iommufd = iommu;
	need(!ioctl(device, VFIO_DEVICE_BIND_IOMMUFD, &bind) &&
	     !ioctl(iommu, IOMMU_IOAS_ALLOC, &alloc), "cannot bind");
	ioas = pt.pt_id = alloc.out_ioas_id;
	need(!ioctl(device, VFIO_DEVICE_ATTACH_IOMMUFD_PT, &pt), "cannot attach");
}

/* Sets the policy and pins a new file of huge pages. Returns 1 if one is on the wrong node. */
static int astray(const char *name, int mode, unsigned long nodes, const int *wanted)
{
	struct iommu_ioas_map_file map = {
		.size = sizeof(map), .length = PAGES * PAGE, .iova = 1UL << 30,
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE,
	};
	struct iommu_ioas_unmap unmap = {
		.size = sizeof(unmap), .iova = map.iova, .length = map.length,
	};
	int file = memfd_create("huge", MFD_HUGETLB | MFD_HUGE_2MB);
	int ret = 0, node[PAGES];
	char *at;

	need(file >= 0 && !ftruncate(file, PAGES * PAGE), "no memfd of huge pages");
	need(!syscall(SYS_set_mempolicy, mode, nodes ? &nodes : NULL, 8 * sizeof(nodes)),
	     "cannot set the policy");
	map.ioas_id = unmap.ioas_id = ioas;
	map.fd = file;
	need(!ioctl(iommu, IOMMU_IOAS_MAP_FILE, &map), "cannot map the file");

	/* The pages are in the page cache by now, so touching them allocates nothing. */
	at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
	need(at != MAP_FAILED, "cannot look at the file");
	for (unsigned long i = 0; i < PAGES; i++) {
		need(!syscall(SYS_get_mempolicy, &node[i], NULL, 0, at + i * PAGE,
			      MPOL_F_NODE | MPOL_F_ADDR), "cannot look at a page");
		printf("%s: page %lu is on node %d, wanted on %d\n", name, i, node[i], wanted[i]);
		ret |= node[i] != wanted[i];
	}
	need(!munmap(at, PAGES * PAGE) && !ioctl(iommu, IOMMU_IOAS_UNMAP, &unmap) && !close(file),
	     "cannot unmap");
	return ret;
}

/* Maps a file with reserved huge pages while node 1, to which this process is bound, has none. */
static int strayed(void)
{
	struct iommu_ioas_map_file map = {
		.size = sizeof(map), .length = PAGES * PAGE, .iova = 1UL << 30,
		.flags = IOMMU_IOAS_MAP_FIXED_IOVA | IOMMU_IOAS_MAP_READABLE,
		.ioas_id = ioas,
	};
	struct iommu_ioas_unmap unmap = {
		.size = sizeof(unmap), .iova = map.iova, .length = map.length, .ioas_id = ioas,
	};
	unsigned long nodes = 2;
	int mapped;
	void *at;

	map.fd = memfd_create("huge", MFD_HUGETLB | MFD_HUGE_2MB);
	need(map.fd >= 0 && !ftruncate(map.fd, PAGES * PAGE), "no memfd of huge pages");
	need(!syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), "cannot set the policy");
	at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, map.fd, 0);
	need(at != MAP_FAILED, "cannot reserve huge pages");
	need(!syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 8 * sizeof(nodes)),
	     "cannot set the policy");
	mapped = !ioctl(iommu, IOMMU_IOAS_MAP_FILE, &map);
	need(mapped || errno == ENOMEM, "cannot map the file");
	printf("bind, none: %s\n", mapped ? "mapped pages of another node" : "not mapped");
	need(!mapped || !ioctl(iommu, IOMMU_IOAS_UNMAP, &unmap), "cannot unmap");
	need(!munmap(at, PAGES * PAGE) && !close(map.fd), "cannot close the file");
	return mapped;
}

int main(int argc, char **argv)
{
	static const int zero[] = { 0, 0 }, one[] = { 1, 1 }, both[] = { 0, 1 };
	unsigned int cpu, node;
	int ret = 0, left = 0;
	cpu_set_t set;

	setvbuf(stdout, NULL, _IONBF, 0);
	need(argc == 2, "usage: memfd_policy BDF");
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	need(!sched_setaffinity(0, sizeof(set), &set) && !getcpu(&cpu, &node) && !cpu && !node,
	     "CPU 0 is not on node 0");
	for (node = 0; node < 2; node++)
		pool[node] = number(node, "nr_hugepages", -1);
	atexit(restore);
	for (node = 0; node < 2; node++) {
		number(node, "nr_hugepages", pool[node] + POOL);
		need(number(node, "free_hugepages", -1) >= POOL, "too few huge pages");
		left += number(node, "free_hugepages", -1);
	}
	attach(argv[1]);

	/* Node 0 has enough pages: without a policy, they would all be allocated there. */
	need(!astray("default", MPOL_DEFAULT, 0, zero), "the default is not the CPU's node");
	ret |= astray("bind", MPOL_BIND, 2, one);
	ret |= astray("preferred", MPOL_PREFERRED, 2, one);
	ret |= astray("preferred many", MPOL_PREFERRED_MANY, 2, one);
	ret |= astray("interleave", MPOL_INTERLEAVE, 3, both);

	/* With a preferred node, pages of node 0 are a fallback. MPOL_BIND has no fallback. */
	number(1, "nr_hugepages", 0);
	need(!number(1, "free_hugepages", -1), "node 1 still has huge pages");
	ret |= astray("preferred, none", MPOL_PREFERRED, 2, zero);
	ret |= astray("preferred many, none", MPOL_PREFERRED_MANY, 2, zero);
	ret |= strayed();
	number(1, "nr_hugepages", pool[1] + POOL);

	for (node = 0; node < 2; node++)
		left -= number(node, "free_hugepages", -1);
	if (left)
		printf("%d huge pages are missing\n", left);
	if (ret)
		printf("the policy was ignored\n");
	return ret || left;
}
