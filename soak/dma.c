// SPDX-License-Identifier: GPL-2.0-only
/* Bursts of the kernel's own DMA mappings, by kernel/dma/map_benchmark.c on one of the devices. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/ioctl.h>

#include <linux/map_benchmark.h>

#include "soak.h"

#define DRIVER "dma_map_benchmark"

static void bind_driver(const char *bdf)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", bdf);
	write_text(path, bdf);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver_override", bdf);
	if (!write_text(path, DRIVER) || !write_text("/sys/bus/pci/drivers_probe", bdf))
		err(1, "%s on " DRIVER, bdf);
}

void dma_director(const char *bdf, int slot)
{
	int fd;

	seed_random((slot + 1) * 1000000UL);
	bind_driver(bdf);
	fd = open("/sys/kernel/debug/" DRIVER, O_RDWR);
	if (fd < 0)
		err(1, DRIVER);
	while (!over()) {
		struct map_benchmark burst = {
			.threads = 1 + rnd(2),
			.seconds = 1,
			.node = -1,
			.dma_bits = rnd(2) ? 32 : 64,
			.dma_dir = rnd(3),
			.granule = 1 << rnd(6),
			.map_mode = rnd(DMA_MAP_BENCH_MODE_MAX),
		};

		/* EINTR: one of the benchmark's threads did not run within the second */
		if (ioctl(fd, DMA_MAP_BENCHMARK, &burst) && errno != EINTR)
			err(1, "DMA_MAP_BENCHMARK");
		if (burst.avg_map_100ns)
			counted(DMA);
		rest(5000);
	}
	close(fd);
}
