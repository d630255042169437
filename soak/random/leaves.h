/* SPDX-License-Identifier: GPL-2.0-only */
/* The leaves of the IOMMU's page table, according to the events iommu:map and iommu:unmap. */
#ifndef LEAVES_H
#define LEAVES_H

#include <stdint.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define IOVA (4UL << 30)
#define WINDOW (256 * MIB)

struct mapped {
	uint64_t bytes;
	uint64_t iovas;		/* the sum of the pages' IOVAs, which wraps around */
};

/* Starts to count maps and unmaps */
void leaves_open(void);

/* Returns the memory that was mapped after leaves_open() and is still mapped */
struct mapped leaves_read(void);

/* Ends the program unless the pages at @iova are the present pages at @vaddr */
void leaves_compare(uint64_t iova, uint64_t vaddr, uint64_t size);

/* Ends the program unless the IOVAs @iova and @from map the same pages */
void leaves_compare_copy(uint64_t iova, uint64_t from, uint64_t size);

#endif
