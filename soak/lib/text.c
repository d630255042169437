// SPDX-License-Identifier: GPL-2.0-only
#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

ssize_t read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = -1, some = 1;

	if (fd < 0)
		return -1;
	for (len = 0; some > 0 && len < (ssize_t)size - 1; len += some > 0 ? some : 0)
		some = read(fd, text + len, size - 1 - len);
	close(fd);
	text[len] = '\0';
	return some < 0 ? -1 : len;
}

bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = strlen(text);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, text, len) == len;
	close(fd);
	return done;
}

unsigned long value_in(const char *path, const char *key)
{
	char text[16384], *at;

	if (read_text(path, text, sizeof(text)) < 0)
		err(1, "%s", path);
	at = strstr(text, key);
	return at ? strtoul(at + strlen(key), NULL, 10) : 0;
}

long pinned_pages(void)
{
	/* The kernel counts per CPU and adds the counts up only periodically */
	write_text("/proc/sys/vm/stat_refresh", "1");
	return value_in("/proc/vmstat", "nr_foll_pin_acquired ") -
	       value_in("/proc/vmstat", "nr_foll_pin_released ");
}

unsigned long huge_pages_in_use(void)
{
	return value_in("/proc/meminfo", "HugePages_Total:") -
	       value_in("/proc/meminfo", "HugePages_Free:") +
	       value_in("/proc/meminfo", "HugePages_Rsvd:");
}

unsigned long page_tables(void)
{
	/* The kernel counts per CPU and adds the counts up only periodically */
	write_text("/proc/sys/vm/stat_refresh", "1");
	return value_in("/proc/meminfo", "SecPageTables:");
}
