/* SPDX-License-Identifier: GPL-2.0-only */
/* Files of procfs and sysfs, and their counts of memory that is in use. */
#ifndef SOAK_TEXT_H
#define SOAK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

ssize_t read_text(const char *path, char *text, size_t size);
bool write_text(const char *path, const char *text);

/* The number after the key; 0 if the key is missing */
unsigned long value_in(const char *path, const char *key);

long pinned_pages(void);
unsigned long huge_pages_in_use(void);	/* of hugetlbfs */
unsigned long page_tables(void);	/* of IOMMUs and of VMs, in kB */

#endif
