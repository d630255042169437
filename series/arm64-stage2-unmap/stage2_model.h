/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Definitions that arch/arm64/kvm/hyp/pgtable.c needs in a user-space program. The model implements
 * the invalidations.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
typedef int8_t s8;
typedef u64 phys_addr_t;
typedef u64 kvm_pfn_t;

/* PAGE_SHIFT comes from the compiler's command line */
#define PAGE_SIZE	(1ul << PAGE_SHIFT)
#define PAGE_MASK	(~(PAGE_SIZE - 1))
#define PTRS_PER_PTE	(1 << (PAGE_SHIFT - 3))
#if PAGE_SHIFT == 12
#define CONFIG_ARM64_4K_PAGES 1
#endif
#define ARM64_HW_PGTABLE_LEVEL_SHIFT(level)	((PAGE_SHIFT - 3) * (4 - (level)) + 3)
#define PMD_SIZE	(1ul << 21)
#define SZ_512K		0x80000ul
#define SZ_1M		0x100000ul
#define SZ_2M		0x200000ul
#define SZ_512M		0x20000000ul
#define SZ_1G		0x40000000ul

#define __rcu
#define BIT(n)			(1ull << (n))
#define UL(n)			n##ul
#define GENMASK(high, low)	((~0ull >> (63 - (high))) & (~0ull << (low)))
#define FIELD_GET(mask, value)	(((value) & (mask)) >> __builtin_ctzll(mask))
#define FIELD_PREP(mask, value)	(((u64)(value) << __builtin_ctzll(mask)) & (mask))
#define IS_ALIGNED(x, a)	(!((x) & ((a) - 1)))
#define ALIGN_DOWN(x, a)	((x) & ~((u64)(a) - 1))
#define PAGE_ALIGN(x)		ALIGN_DOWN((x) + PAGE_SIZE - 1, PAGE_SIZE)
#define DIV_ROUND_UP(x, n)	(((x) + (n) - 1) / (n))
#define READ_ONCE(x)		(*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value)	(*(volatile typeof(x) *)&(x) = (value))
#define smp_store_release(p, value) WRITE_ONCE(*(p), value)
#define cmpxchg(p, old, new)	({ typeof(*(p)) was = *(p); if (was == (old)) *(p) = (new); was; })
#define min(a, b)		((a) < (b) ? (a) : (b))
#define MIN			min
#define unlikely(x)		(x)
#define max(a, b)		((a) > (b) ? (a) : (b))
#define max3(a, b, c)		max(max(a, b), c)
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define IS_ENABLED(option)	0
#define dsb(scope)
#define WARN_ON(x)		({ bool wrong = (x); if (wrong) fail("WARN_ON(" #x ")"); wrong; })
#define WARN_ON_ONCE(x)		WARN_ON(x)
#define ERR_PTR(e)		((void *)(long)(e))
#define PTR_ERR(p)		((long)(p))
#define IS_ERR(p)		((unsigned long)(p) > -4096ul)
#define rcu_dereference_check(p, x)	(p)
#define rcu_dereference_raw(p)	(p)
#define rcu_read_lock()
#define rcu_read_unlock()
#define rcu_read_lock_held()	true
#define __phys_to_pfn(p)	((p) >> PAGE_SHIFT)

#define PAGE_S2_MEMATTR(kind)	MEMATTR_##kind
#define MEMATTR_NORMAL		(0xful << 2)
#define MEMATTR_NORMAL_NC	(0x5ul << 2)
#define MEMATTR_DEVICE_nGnRE	(0x1ul << 2)
#define MEMATTR_AS_S1		(0x7ul << 2)

struct list_head { struct list_head *next, *prev; };
struct rb_root_cached { int nothing; };
struct kvm_mmu_memory_cache { int nobjs; };
struct kvm_s2_mmu {
	struct kvm_pgtable *pgt;
	struct kvm_mmu_memory_cache split_page_cache;
	u64 vtcr;
};
/* The part of struct kvm that stage2_should_yield() reads; there is one VM */
struct kvm { bool mmu_lock, mmu_invalidate_in_progress; };
extern struct kvm vm;
#define kvm_s2_mmu_to_kvm(mmu)	(&vm)
#define rwlock_needbreak(lock)	(*(lock))
#define need_resched()		false

enum { ARM64_HAS_STAGE2_FWB, ARM64_HAS_XNX, ARM64_KVM_HVHE };
extern bool has_fwb, has_range;
#define cpus_have_final_cap(cap)	((cap) == ARM64_HAS_STAGE2_FWB ? has_fwb : (cap) == ARM64_HAS_XNX)
#define system_supports_tlb_range()	has_range
#define system_supports_lpa2()		false
#define TLBI_TTL_UNKNOWN		127
#ifndef MAX_TLBI_RANGE_PAGES
#define MAX_TLBI_RANGE_PAGES		(1ul << 21)
#endif

void fail(const char *why) __attribute__((noreturn));
void __kvm_tlb_flush_vmid(struct kvm_s2_mmu *mmu);
void __kvm_tlb_flush_vmid_range(struct kvm_s2_mmu *mmu, phys_addr_t addr, unsigned long pages);
void __kvm_tlb_flush_vmid_ipa(struct kvm_s2_mmu *mmu, phys_addr_t ipa, int level);
#define __kvm_tlb_flush_vmid_ipa_nsh	__kvm_tlb_flush_vmid_ipa
#define kvm_call_hyp(function, ...)	function(__VA_ARGS__)
