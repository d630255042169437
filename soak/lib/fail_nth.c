// SPDX-License-Identifier: GPL-2.0-only
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail_nth.h"

static int fail_nth;

void open_fail_nth(void)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_nth < 0)
		err(1, "fail-nth");
}

void arm(unsigned int nth)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	if (pwrite(fail_nth, text, len, 0) != len)
		err(1, "fail-nth");
}

bool disarm(void)
{
	char text[16] = "";

	/* If the fault has not happened yet, it may happen in these calls */
	while (pread(fail_nth, text, sizeof(text) - 1, 0) < 0)
		strcpy(text, "1");
	if (!atoi(text))
		return true;
	while (pwrite(fail_nth, "0", 1, 0) != 1)
		;
	return false;
}
