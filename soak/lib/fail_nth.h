/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes an operation of the kernel fail: arm(n) selects the nth operation that can fail from then
 * on, in the thread that called open_fail_nth().
 */
#ifndef SOAK_FAIL_NTH_H
#define SOAK_FAIL_NTH_H

#include <stdbool.h>

void open_fail_nth(void);
void arm(unsigned int nth);
bool disarm(void);		/* returns whether the fault happened */

#endif
