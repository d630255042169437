// SPDX-License-Identifier: GPL-2.0-only
/* Workloads on iova.c. In each run, callgrind counts the instructions of one count_*(). */
#include "stub.h"
#include IOVA_C

long totram = 1L << 19;
int cpu_now, nomem;
bool count_locked;

#define HOLES 57174

static struct iova_domain domain;
static unsigned long pfns[NR * 1024];
static unsigned long limit = (1UL << 36) - 1;

/* Each CPU in turn allocates and frees 1,024 IOVAs of each size. */
static void burst(void)
{
	for (cpu_now = 0; cpu_now < NR; cpu_now++) {
		for (int order = 0; order < 6; order++) {
			for (int i = 0; i < 1024; i++)
				pfns[i] = alloc_iova_fast(&domain, 1UL << order, limit, true);
			for (int i = 0; i < 1024; i++)
				free_iova_fast(&domain, pfns[i], 1UL << order);
		}
	}
	cpu_now = 0;
}

/* Allocates a size that is not cached. */
noinline void count_miss(void)
{
	for (int i = 0; i < 2000; i++)
		pfns[i] = alloc_iova_fast(&domain, 128, limit, true);
}

noinline void count_pair(void)
{
	for (int i = 0; i < 2000; i++)
		free_iova_fast(&domain, alloc_iova_fast(&domain, 1, limit, true), 1);
}

/* For each size in turn, all CPUs hold 256 IOVAs at the same time. */
noinline void count_return(void)
{
	static unsigned long of_cpu[NR][256];

	count_locked = true;
	for (int order = 0; order < 6; order++) {
		for (cpu_now = 0; cpu_now < NR; cpu_now++) {
			for (int i = 0; i < 256; i++)
				of_cpu[cpu_now][i] = alloc_iova_fast(&domain, 1UL << order, limit, true);
		}
		for (cpu_now = 0; cpu_now < NR; cpu_now++) {
			for (int i = 0; i < 256; i++)
				free_iova_fast(&domain, of_cpu[cpu_now][i], 1UL << order);
		}
	}
	cpu_now = 0;
	count_locked = false;
}

/* Empties the depots of two sizes */
noinline void count_flush(void)
{
	for (int i = 0; i < 2; i++) {
		while (domain.rcaches[i].depot) {
#ifdef FREE_ONE
			iova_rcache_free(&domain.rcaches[i], -1, 1);
#else
			struct iova_magazine *mag = iova_depot_pop(&domain.rcaches[i]);

			iova_magazine_free_pfns(mag, &domain);
			iova_magazine_free(mag);
#endif
		}
	}
}

static unsigned long state = 88172645463325252UL;

static unsigned long rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Allocates mixed sizes. At any time, 256 IOVAs are in use. */
static void mixed(int nr)
{
	static const unsigned long sizes[] = { 1, 1, 1, 8, 40, 64, 96, 128 };
	static struct { unsigned long pfn, size; } live[256];

	for (int i = 0; i < nr; i++) {
		int k = i % 256;

		if (live[k].size)
			free_iova_fast(&domain, live[k].pfn, live[k].size);
		live[k].size = sizes[rnd() % 8];
		live[k].pfn = alloc_iova_fast(&domain, live[k].size, limit, true);
	}
}

noinline void count_mixed(void)
{
	mixed(8000);
}

/* The domain has only holes of 32 pages. */
static void make_holes(void)
{
	static struct iova *iovas[2 * HOLES];

	for (int i = 0; i < 2 * HOLES; i++)
		iovas[i] = alloc_iova(&domain, 32, limit, true);
	for (int i = 0; i < 2 * HOLES; i += 2)
		__free_iova(&domain, iovas[i]);
}

/* No hole is large enough, so this allocation fails. */
noinline void count_holes(void)
{
	if (alloc_iova(&domain, 33, limit, true))
		abort();
}

static const struct {
	const char *name;
	void (*run)(void);
} counts[] = {
	{ "miss", count_miss }, { "pair", count_pair }, { "return", count_return },
	{ "flush", count_flush }, { "mixed", count_mixed }, { "holes", count_holes },
};

/* bench WHAT [burst] [32] */
int main(int argc, char **argv)
{
	bool after = false, holes;

	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "burst"))
			after = true;
		if (!strcmp(argv[i], "32"))
			limit = (1UL << 20) - 1;
	}
	iova_cache_get();
	holes = argc > 1 && !strcmp(argv[1], "holes");
	init_iova_domain(&domain, PAGE_SIZE, holes ? limit + 1 - 2 * HOLES * 32UL : 1);
	if (argc < 2 || iova_domain_init_rcaches(&domain))
		return 1;
	if (!strcmp(argv[1], "mixed"))
		mixed(20000);
	if (holes)
		make_holes();
	if (after)
		burst();
	for (int i = 0; i < 6; i++) {
		if (!strcmp(argv[1], counts[i].name))
			counts[i].run();
	}
	return 0;
}
