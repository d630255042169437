// SPDX-License-Identifier: GPL-2.0-only
/*
 * Creates and closes an io_uring with SQPOLL, whose poller is a user worker of this process, and
 * then enables pointer masking, which a process with one thread may do. For the fix of
 * copy_thread() that keeps user workers from locking the pointer masking mode (RISC-V). A thread
 * of user space still has to lock it.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_PMLEN_SHIFT
#define PR_PMLEN_SHIFT	24
#endif

enum { RIGHT, BUG, CANNOT_TELL = 4 };

static int set_pmlen(unsigned long pmlen)
{
	unsigned long mode = pmlen ? PR_TAGGED_ADDR_ENABLE | pmlen << PR_PMLEN_SHIFT : 0;

	return prctl(PR_SET_TAGGED_ADDR_CTRL, mode, 0, 0, 0) ? errno : 0;
}

/* In a process of its own, as it may be done once. */
static bool supported(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(set_pmlen(7));
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

static int threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) ? -1 : (int)st.st_nlink - 2;
}

/* The poller is a thread of this process while the ring is there. */
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

static void *nothing(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;
	int error;

	if (!supported()) {
		printf("no pointer masking: CONFIG_RISCV_ISA_SUPM or the CPU's Ssnpm is missing\n");
		return CANNOT_TELL;
	}
	if (!worker_came_and_went()) {
		printf("no user worker: CONFIG_IO_URING or /proc is missing\n");
		return CANNOT_TELL;
	}
	error = set_pmlen(7);
	if (error) {
		printf("pointer masking is locked after a user worker: %s\n", strerror(error));
		return BUG;
	}
	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) {
		printf("no thread\n");
		return CANNOT_TELL;
	}
	error = set_pmlen(0);
	printf("after a user worker: not locked; after a thread: %s\n", strerror(error));
	return error == EBUSY ? RIGHT : BUG;
}
