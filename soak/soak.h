/* SPDX-License-Identifier: GPL-2.0-only */
/* Data shared by the actors of the soak: counts, random numbers, and the processes to disturb. */
#ifndef SOAK_H
#define SOAK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/text.h"

/* Operations that are counted. Each must happen at least once. */
enum count {
	TYPE1, IOMMUFD, DMA, FORK, EXEC, COLLAPSE, SPLIT, WALK,
	VM, HOTPLUG, KILL, DUMP, STOP, FREEZE, MIGRATE, LIMIT, NR_COUNTS
};

/* Victims are the processes that trouble.c disturbs. Mappers are victims that map. */
#define MAPPERS 2	/* per director */
#define VMS 2
#define MAX_VICTIMS 10

struct victim {
	pid_t pid;	/* 0: none */
	bool maps;
};

struct shared {
	uint64_t seed;
	bool end;		/* the time is over: every process must end */
	bool cgroups;
	unsigned long count[NR_COUNTS];
	unsigned long failed;	/* processes that ended with an error or an unexpected signal */
	/*
	 * balanced: mappers that ended with VmLck and VmPin at 0.
	 * unbalanced: mappers that ended with other values.
	 */
	unsigned long balanced, unbalanced;
	unsigned long foreign;	/* pages with data that was never written to them */
	pthread_mutex_t lock;	/* protects victims. A victim is removed before it is reaped. */
	struct victim victims[MAX_VICTIMS];
};

extern struct shared *shared;

/* soak.c */
bool over(void);
void counted(enum count what);
void add(unsigned long *sum, unsigned long more);
void seed_random(uint64_t stream);	/* for the calling thread */
uint64_t rnd(uint64_t below);
void rest(unsigned int most_ms);
double now(void);
void spawn(int slot, bool maps, void (*work)(void *arg), void *arg);
bool reaped(int slot);	/* reaps the victim if it has ended */
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
bool remove_cgroups(void);	/* false: they still contain processes */
void join_cgroup(void);
unsigned long oom_kills(void);
void trouble(const char *bdf, int slot);
bool has_hotplug(void);
bool all_online(void);
void hotplug(const char *bdf, int slot);

#endif
