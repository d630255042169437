/* SPDX-License-Identifier: GPL-2.0-only */
/* The nth fault from now on of the thread that has opened it. */
#ifndef SOAK_FAIL_NTH_H
#define SOAK_FAIL_NTH_H

#include <stdbool.h>

void open_fail_nth(void);
void arm(unsigned int nth);
bool disarm(void);		/* did it happen? */

#endif
