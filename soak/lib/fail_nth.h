/* SPDX-License-Identifier: GPL-2.0-only */
/* Makes the nth operation that can fail from now on fail, in the thread that has opened it. */
#ifndef SOAK_FAIL_NTH_H
#define SOAK_FAIL_NTH_H

#include <stdbool.h>

void open_fail_nth(void);
void arm(unsigned int nth);
bool disarm(void);		/* did it happen? */

#endif
