/* SPDX-License-Identifier: GPL-2.0-only */
/* What a scene is: a call, each fault of which in turn is let happen. */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#define MIB (1UL << 20)

/* What a scene's memory is made of */
enum backing { NONE, SMALL, ABSENT, THP, HUGETLB, REPEATED };

struct scene {
	const char *name;
	/* Why it cannot be played here; NULL: it can */
	const char *(*missing)(void);
	void (*begin)(void);	/* once */
	void (*prepare)(void);	/* before each call, without a fault */
	int (*call)(void);	/* 0 or an errno; what has failed can be called again */
	void (*undo)(void);	/* all that prepare() and call() did */
	/* What is not as it should be after a call, failed or not */
	const char *(*wrong)(void);
	/* What has not happened in the end, which the scene is there for */
	const char *(*vain)(void);
	enum backing backing;
	size_t size;
	/* Not every fault of many: the next one is this part of them further */
	unsigned int sparse;
	/* A call that fails may have done its work: it has yet to copy something to its caller */
	bool may_be_done;
	/* What a call opens has a thread from some moment on, until it is closed */
	bool with_thread;
};

/* Ends with one without a name */
extern const struct scene type1_scenes[], iommufd_scenes[], pages_scenes[], vms_scenes[];

/* faults.c */
extern const struct scene *playing;
extern char **devices;
extern int nr_devices;

/* memory.c: of playing->backing and ->size */
extern char *memory;
extern size_t page;
const char *missing_memory(void);
void make_memory(void);
void drop_memory(void);		/* what is absent is so again */

#endif
