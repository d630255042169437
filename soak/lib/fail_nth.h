/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes an operation of the kernel fail. After arm(n), the kernel injects a fault into the nth
 * operation that can fail. Only operations of the thread that called open_fail_nth() are counted.
 */
#ifndef SOAK_FAIL_NTH_H
#define SOAK_FAIL_NTH_H

#include <stdbool.h>

void open_fail_nth(void);
void arm(unsigned int nth);
bool disarm(void);		/* returns whether the fault happened */

#endif
