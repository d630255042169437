/* SPDX-License-Identifier: GPL-2.0-only */
/* Paths of a device that is bound to vfio-pci: its group and its character device. */
#ifndef SOAK_DEVICE_H
#define SOAK_DEVICE_H

#include <stddef.h>

void group_path(const char *bdf, char *path, size_t size);
void cdev_path(const char *bdf, char *path, size_t size);

#endif
