// SPDX-License-Identifier: GPL-2.0-only
/*
 * Enables a shadow stack, then creates and closes an io_uring with SQPOLL, whose poller is a user
 * worker of this process. Checks that the shadow stack is still mapped. For the fix of
 * copy_thread() on RISC-V: a user worker that exits must not unmap its creator's shadow stack. With
 * any argument, the program then uses its shadow stack, and gets SIGSEGV if that is unmapped.
 *
 * Needs CONFIG_RISCV_USER_CFI (a kernel built by gcc 15), a CPU with Zicfiss, and firmware with the
 * SBI extension FWFT for shadow stacks. OpenSBI 1.9 has this extension, 1.5.1 lacks it.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_SHADOW_STACK_STATUS
#define PR_SET_SHADOW_STACK_STATUS	75
#define PR_SHADOW_STACK_ENABLE		1
#endif

enum { RIGHT, BUG, CANNOT_TELL = 4 };

/* Pushes and checks a return address, as functions do. Older assemblers lack these instructions. */
static void push_and_pop(void)
{
	asm volatile(".4byte 0xce104073	# sspush ra\n\t"
		     ".4byte 0xcdc0c073	# sspopchk ra" ::: "memory");
}

static unsigned long shadow_stack_pointer(void)
{
	unsigned long ssp;

	asm volatile("csrr %0, 0x011" : "=r" (ssp));
	return ssp;
}

static bool mapped(unsigned long addr)
{
	unsigned long size = sysconf(_SC_PAGESIZE);
	unsigned char present;

	return !mincore((void *)(addr & ~(size - 1)), size, &present);
}

static int threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) ? -1 : (int)st.st_nlink - 2;
}

/* The poller is a thread of this process while the ring exists. */
static bool worker_came_and_went(void)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SQPOLL };
	int ring = syscall(__NR_io_uring_setup, 1, &params);
	bool came = ring >= 0 && threads() == 2;

	if (ring >= 0)
		close(ring);
	while (threads() > 1)
		usleep(1000);
	return came && threads() == 1;
}

int main(int argc, char **argv)
{
	unsigned long top;

	if (prctl(PR_SET_SHADOW_STACK_STATUS, PR_SHADOW_STACK_ENABLE, 0, 0, 0)) {
		printf("no shadow stack without RISCV_USER_CFI, Zicfiss and FWFT: %s\n",
		       strerror(errno));
		return CANNOT_TELL;
	}
	push_and_pop();
	top = shadow_stack_pointer() - sizeof(long);
	if (!mapped(top)) {
		printf("no shadow stack at %#lx\n", top);
		return CANNOT_TELL;
	}
	if (!worker_came_and_went()) {
		printf("no user worker: CONFIG_IO_URING or /proc is missing\n");
		return CANNOT_TELL;
	}
	if (!mapped(top)) {
		printf("the exit of a user worker has unmapped the shadow stack\n");
		if (argc > 1) {
			fflush(stdout);
			push_and_pop();
		}
		return BUG;
	}
	push_and_pop();
	printf("the shadow stack is still mapped after a user worker\n");
	return RIGHT;
}
