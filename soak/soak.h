/* SPDX-License-Identifier: GPL-2.0-only */
/* What the actors of the soak share: counts, random numbers, and whom trouble may strike. */
#ifndef SOAK_H
#define SOAK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/text.h"

/* What is counted, and has to have happened */
enum count {
	TYPE1, IOMMUFD, DMA, FORK, EXEC, COLLAPSE, SPLIT, WALK,
	VM, HOTPLUG, KILL, DUMP, STOP, FREEZE, MIGRATE, LIMIT, NR_COUNTS
};

/* Processes that trouble strikes at, and of those the ones that map */
#define MAPPERS 2	/* of a director */
#define VMS 2
#define MAX_VICTIMS 10

struct victim {
	pid_t pid;	/* 0: none */
	bool maps;
};

struct shared {
	uint64_t seed;
	bool end;		/* the minutes are over */
	bool cgroups;
	unsigned long count[NR_COUNTS];
	unsigned long failed;	/* processes that ended in a way nobody meant */
	unsigned long balanced, unbalanced;	/* VmLck and VmPin at a mapper's end */
	unsigned long foreign;	/* pages with what was never written there */
	pthread_mutex_t lock;	/* a victim is reaped after it was taken out of here */
	struct victim victims[MAX_VICTIMS];
};

extern struct shared *shared;

/* soak.c */
bool over(void);
void counted(enum count what);
void add(unsigned long *sum, unsigned long more);
void seed_random(uint64_t stream);	/* of this thread */
uint64_t rnd(uint64_t below);
void rest(unsigned int most_ms);
double now(void);
void spawn(int slot, bool maps, void (*work)(void *arg), void *arg);
bool reaped(int slot);	/* has it ended? */
void end_all(int first, int nr);

/* maps.c: a director of a container or of an iommufd, with its mappers */
void type1_director(const char *bdf, int slot);
void iommufd_director(const char *bdf, int slot);

/* dma.c */
void dma_director(const char *bdf, int slot);

/* pages.c */
void pages_director(const char *bdf, int slot);

/* vms.c */
void vms_director(const char *bdf, int slot);

/* trouble.c */
bool make_cgroups(void);
bool remove_cgroups(void);	/* false: somebody is in there still */
void join_cgroup(void);
unsigned long oom_kills(void);
void trouble(const char *bdf, int slot);
bool has_hotplug(void);
bool all_online(void);
void hotplug(const char *bdf, int slot);

#endif
