/* SPDX-License-Identifier: GPL-2.0-only */
/* A scene repeats a call. Each time, a fault is injected into a later operation of the call. */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#define MIB (1UL << 20)

/* The kinds of memory of a scene */
enum backing { NONE, SMALL, ABSENT, THP, HUGETLB, REPEATED };

struct scene {
	const char *name;
	/* Returns the reason why the scene cannot run here, or NULL if it can run */
	const char *(*missing)(void);
	void (*begin)(void);	/* runs once */
	void (*prepare)(void);	/* runs before each call, without a fault */
	int (*call)(void);	/* returns 0 or an errno; can be repeated after a failure */
	void (*undo)(void);	/* reverts prepare() and call() */
	/* Runs after each call, failed or not. Returns an error in the data, or NULL. */
	const char *(*wrong)(void);
	/* Runs at the end. Returns an event that the scene failed to cause, or NULL. */
	const char *(*vain)(void);
	enum backing backing;
	size_t size;
	/* If it is not 0, the fault after fault n is n + n / sparse + 1 */
	unsigned int sparse;
	/* A call may fail after its work was done, when it copies results to the caller */
	bool may_be_done;
	/* The call may start a kernel thread, which ends when the file is closed */
	bool with_thread;
};

/* The last scene of each array has no name */
extern const struct scene type1_scenes[], iommufd_scenes[], pages_scenes[], vms_scenes[];

/* faults.c */
extern const struct scene *playing;
extern char **devices;
extern int nr_devices;

/* memory.c: memory of kind playing->backing and size playing->size */
extern char *memory;
extern size_t page;
const char *missing_memory(void);
void make_memory(void);
void drop_memory(void);		/* makes ABSENT memory absent again */

#endif
