// SPDX-License-Identifier: GPL-2.0-only
#include <err.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

void group_path(const char *bdf, char *path, size_t size)
{
	char link[PATH_MAX], group[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s/iommu_group", bdf);
	len = readlink(link, group, sizeof(group) - 1);
	if (len < 0)
		err(1, "%s", link);
	group[len] = '\0';
	snprintf(path, size, "/dev/vfio%s", strrchr(group, '/'));
}

void cdev_path(const char *bdf, char *path, size_t size)
{
	char pattern[PATH_MAX];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "/sys/bus/pci/devices/%s/vfio-dev/vfio*", bdf);
	if (glob(pattern, 0, NULL, &found))
		errx(1, "%s is not there", pattern);
	snprintf(path, size, "/dev/vfio/devices%s", strrchr(found.gl_pathv[0], '/'));
	globfree(&found);
}
