/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Definitions that iova.c needs, for one thread that simulates NR CPUs. Taking a lock
 * twice aborts.
 */
#ifndef IOVA_STUB_H
#define IOVA_STUB_H
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stdint.h>
#include <errno.h>
#include <limits.h>
typedef uint8_t u8;
typedef uint64_t u64;
typedef uint32_t u32;
typedef unsigned gfp_t;
typedef u64 dma_addr_t;
#define __percpu
#define NR 64
extern int cpu_now, nomem;
#include <stddef.h>
#define __always_inline inline __attribute__((always_inline))
#define unlikely(x) (x)
#define likely(x) (x)
typedef struct {
	int l;
} spinlock_t;
#define spin_lock_init(x) ((x)->l = 0)
static inline void _lk(spinlock_t *x)
{
	if (x->l)
		abort();
	x->l = 1;
}
static inline void _ulk(spinlock_t *x)
{
	if (!x->l)
		abort();
	x->l = 0;
}
#define spin_lock(x) _lk(x)
#define spin_unlock(x) _ulk(x)
#ifdef COUNT_LOCKED
#include <valgrind/callgrind.h>
extern bool count_locked;
#define counted(x) (count_locked && __builtin_strstr(#x, "iova_rbtree_lock"))
#define spin_lock_irqsave(x, f)                   \
	do {                                      \
		(f) = 0;                          \
		_lk(x);                           \
		if (counted(x))                   \
			CALLGRIND_TOGGLE_COLLECT; \
	} while (0)
#define spin_unlock_irqrestore(x, f)              \
	do {                                      \
		if (counted(x))                   \
			CALLGRIND_TOGGLE_COLLECT; \
		(void)(f);                        \
		_ulk(x);                          \
	} while (0)
#else
#define spin_lock_irqsave(x, f) ((f) = 0, _lk(x))
#define spin_unlock_irqrestore(x, f) ((void)(f), _ulk(x))
#endif
#define assert_spin_locked(x)    \
	do {                     \
		if (!(x)->l)     \
			abort(); \
	} while (0)
#define BUG_ON(c)                \
	do {                     \
		if (c)           \
			abort(); \
	} while (0)
#define WARN_ON(c)                                              \
	({                                                      \
		bool _c = !!(c);                                \
		if (_c) {                                       \
			fprintf(stderr, "WARN %d\n", __LINE__); \
			abort();                                \
		}                                               \
		_c;                                             \
	})
#define is_power_of_2(x) ((x) && !((x) & ((x) - 1)))
#define PAGE_SIZE 4096UL
#define PAGE_SHIFT 12
extern long totram;
#define totalram_pages() totram
#define SZ_4G (1ULL << 32)
#define EXPORT_SYMBOL_GPL(x)
#define MODULE_AUTHOR(x)
#define MODULE_DESCRIPTION(x)
#define MODULE_LICENSE(x)
static inline unsigned fls_long(unsigned long x)
{
	return x ? 64 - __builtin_clzl(x) : 0;
}
#define __fls(x) (63 - __builtin_clzl(x))
#define __ffs(x) __builtin_ctzl(x)
#define __ffs64(x) __builtin_ctzll(x)
#define ilog2(x) __fls(x)
static inline unsigned order_base_2(unsigned long x)
{
	return x > 1 ? fls_long(x - 1) : 0;
}
static inline unsigned long roundup_pow_of_two(unsigned long x)
{
	return 1UL << order_base_2(x);
}
#undef min
#undef max
#define min(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define max(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a > _b ? _a : _b;      \
	})
#define swap(a, b)                      \
	do {                            \
		__typeof__(a) _t = (a); \
		(a) = (b);              \
		(b) = _t;               \
	} while (0)
#ifndef READ_ONCE
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#endif
#ifndef WRITE_ONCE
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))
#endif
#define data_race(x) (x)
#define BIT_ULL(n) (1ULL << (n))
#define ALIGN(x, a) (((x) + (a) - 1) & ~((a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((a) - 1))
#define GFP_ATOMIC 1
#define GFP_KERNEL 2
#define __GFP_NOWARN 4
#define SLAB_HWCACHE_ALIGN 0
struct kmem_cache {
	size_t sz;
	const char *name;
	long live;
	void *free;
};
static inline struct kmem_cache *kmem_cache_create(const char *n, size_t sz,
						   int a, int f, void *c)
{
	struct kmem_cache *k = calloc(1, sizeof *k);
	k->sz = (sz + 15) & ~15UL;
	k->name = n;
	return k;
}
static inline void kmem_cache_destroy(struct kmem_cache *k)
{
	if (k && k->live) {
		fprintf(stderr, "LEAK %s %ld\n", k->name, k->live);
		abort();
	}
}
static inline void *kmem_cache_alloc(struct kmem_cache *k, gfp_t f)
{
	void *p;
	if (nomem && rand() % nomem)
		return NULL;
	k->live++;
	if (k->free) {
		p = k->free;
		k->free = *(void **)p;
		return p;
	}
	return malloc(k->sz);
}
static inline void *kmem_cache_zalloc(struct kmem_cache *k, gfp_t f)
{
	void *p = kmem_cache_alloc(k, f);
	if (p)
		memset(p, 0, k->sz);
	return p;
}
#ifdef ASAN
static inline void kmem_cache_free(struct kmem_cache *k, void *p)
{
	k->live--;
	free(p);
}
#else
static inline void kmem_cache_free(struct kmem_cache *k, void *p)
{
	k->live--;
	*(void **)p = k->free;
	k->free = p;
}
#endif
#define kmemleak_transient_leak(x)
#define kzalloc_objs(t, n) calloc(n, sizeof(t))
#define kfree free
#define cache_line_size() 64
#define __alloc_percpu(s, a) calloc(NR, 64)
#define free_percpu free
#define per_cpu_ptr(p, c) ((__typeof__(p))((char *)(p) + 64 * (c)))
#define raw_cpu_ptr(p) per_cpu_ptr(p, cpu_now)
#define for_each_online_cpu(c) for ((c) = 0; (c) < NR; (c)++)
#define for_each_possible_cpu(c) for ((c) = 0; (c) < NR; (c)++)
#define num_online_cpus() NR
struct work_struct {
	int x;
};
struct delayed_work {
	struct work_struct work;
};
#define INIT_DELAYED_WORK(w, f) ((void)(f))
#define schedule_delayed_work(w, d) ((void)(w))
#define cancel_delayed_work_sync(w) ((void)(w))
#define msecs_to_jiffies(x) (x)
#undef container_of
#define container_of(p, t, m) ((t *)((char *)(p) - offsetof(t, m)))
struct hlist_node {
	void *a, *b;
};
#include <linux/rbtree.h>
#include <linux/rbtree_augmented.h>

#define hlist_entry_safe(p, t, m) ((p) ? container_of(p, t, m) : NULL)
#define cpuhp_state_add_instance_nocalls(a, b) (0)
#define cpuhp_state_remove_instance_nocalls(a, b) ((void)0)
#define cpuhp_setup_state_multi(a, b, c, d) ((void)(d), 0)
#define cpuhp_remove_multi_state(a) ((void)0)
#define DEFINE_MUTEX(x) int x
#define mutex_lock(x) ((void)(x))
#define mutex_unlock(x) ((void)(x))
#define pr_err(...) ((void)0)
#define ERR_PTR(x) ((void *)(long)(x))
#define IS_REACHABLE(x) 1
#define cond_resched() ((void)0)
#define static_assert _Static_assert2
#define _Static_assert2(...) _Static_assert(__VA_ARGS__, "")
#define noinline __attribute__((__noinline__))
struct list_head {
	struct list_head *next, *prev;
};
#define LIST_HEAD(n) struct list_head n = { &n, &n }
static inline void INIT_LIST_HEAD(struct list_head *l)
{
	l->next = l->prev = l;
}
static inline void list_add(struct list_head *n, struct list_head *h)
{
	n->next = h->next;
	n->prev = h;
	h->next->prev = n;
	h->next = n;
}
static inline void list_del(struct list_head *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	n->next = n->prev = (void *)0x100;
}
#define list_empty(h) ((h)->next == (h))
#define list_first_entry_or_null(h, t, m) \
	(list_empty(h) ? NULL : container_of((h)->next, t, m))
struct shrink_control {
	unsigned long nr_to_scan;
};
struct shrinker {
	unsigned long (*count_objects)(struct shrinker *,
				       struct shrink_control *);
	unsigned long (*scan_objects)(struct shrinker *,
				      struct shrink_control *);
	void *private_data;
};
static inline struct shrinker *shrinker_alloc(int f, const char *n)
{
	return calloc(1, sizeof(struct shrinker));
}
#define shrinker_register(s) ((void)(s))
#define shrinker_free(s) free(s)
#define SHRINK_STOP (~0UL)
typedef struct {
	int v;
} atomic_t;
#define atomic_inc(a) ((a)->v++)
#define atomic_dec(a) ((a)->v--)
#define atomic_add(n, a) ((a)->v += (n))
#define atomic_sub(n, a) ((a)->v -= (n))
#define atomic_set(a, n) ((a)->v = (n))
#define atomic_read(a) ((a)->v)
typedef struct {
	long v;
} atomic_long_t;
#define atomic_long_inc(a) ((a)->v++)
#define atomic_long_dec(a) ((a)->v--)
#define atomic_long_read(a) ((a)->v)
#endif
