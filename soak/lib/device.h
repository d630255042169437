/* SPDX-License-Identifier: GPL-2.0-only */
/* Where user space opens a device on vfio-pci. */
#ifndef SOAK_DEVICE_H
#define SOAK_DEVICE_H

#include <stddef.h>

void group_path(const char *bdf, char *path, size_t size);
void cdev_path(const char *bdf, char *path, size_t size);

#endif
