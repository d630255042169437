/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of a CPU that caches all that the architecture allows. stage2_model.py compiles it with
 * arch/arm64/kvm/hyp/pgtable.c. At any time, the TLB contains every translation that the CPU can
 * reach through tables or walk caches. The walk caches contain every table that it can reach in
 * this way. An invalidation drops only the entries that it must drop. The model fails if a freed
 * table is cached or can be reached by the CPU, or if the CPU can still translate an unmapped
 * address.
 */
#define ARENA_PAGES	16384
#define SPACE		(16 * SZ_1G)
#define NR_PAGES	(SPACE / PAGE_SIZE)
#define PHYS_BASE	0x4000000000ull
#define PAGES_BASE	0x8000000000ull

bool has_fwb, has_range;
struct kvm vm;
static bool host_ops;
static unsigned long seed, nr_invalidations, nr_visits, nr_detached, nr_refills;
static char *arena;
static struct {
	bool used;
	long entries;
	/* Is it in the walk caches? The IPA and the level belong to the entry that linked it. */
	bool cached;
	u64 ipa;
	s8 level;
	/* The last refill that walked this table, and the IPA of that walk */
	unsigned long refill;
	u64 walked;
	/* For a detached table: the level of its entry, and the next detached table */
	s8 detached_from;
	void *next;
} meta[ARENA_PAGES];
static void *detached;
/*
 * Each element is the level of a page's leaf, or 0 if there is none. tlb: the leaves in the TLB.
 * mapped: the leaves that must exist.
 */
static u8 tlb[NR_PAGES], mapped[NR_PAGES];
static struct kvm_pgtable pgt;
static struct kvm_s2_mmu mmu = { .pgt = &pgt };

void fail(const char *why)
{
	printf("FAIL: %s (seed %lu, FWB %d, ranges %d, host %d)\n", why, seed, has_fwb, has_range,
	       host_ops);
	exit(1);
}

static unsigned long nr_of(void *table) { return ((char *)table - arena) >> PAGE_SHIFT; }
static void *table_of(u64 phys) { return arena + (phys - PHYS_BASE); }

static unsigned long any(unsigned long n)
{
	static unsigned long state;

	if (!n)
		return state = seed * 2654435761u + 1;
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (state >> 33) % n;
}

/*
 * Fills the TLB and the walk caches with all that the CPU can reach from a table. @level is the
 * level of the entry that links the table.
 */
static void reach(kvm_pte_t *table, u64 ipa, s8 level)
{
	u64 granule = kvm_granule_size(level + 1);
	unsigned long nr = nr_of(table);

	if (!meta[nr].used)
		fail("the CPU walks a table that was freed");
	if (meta[nr].refill == nr_refills && meta[nr].walked == ipa)
		return;
	meta[nr].refill = nr_refills;
	meta[nr].walked = ipa;
	for (int i = 0; i < PTRS_PER_PTE && ipa < SPACE; i++, ipa += granule) {
		kvm_pte_t pte = table[i];

		if (!kvm_pte_valid(pte))
			continue;
		if (kvm_pte_table(pte, level + 1)) {
			kvm_pte_t *child = table_of(kvm_pte_to_phys(pte));

			meta[nr_of(child)].cached = true;
			meta[nr_of(child)].ipa = ipa;
			meta[nr_of(child)].level = level + 1;
			reach(child, ipa, level + 1);
		} else {
			memset(&tlb[ipa >> PAGE_SHIFT], level + 1, granule >> PAGE_SHIFT);
		}
	}
}

static void refill(void)
{
	nr_refills++;
	if (pgt.pgd)
		reach(pgt.pgd, 0, 0);
	for (int i = 0; i < ARENA_PAGES; i++)
		if (meta[i].cached)
			reach((kvm_pte_t *)(arena + i * PAGE_SIZE), meta[i].ipa, meta[i].level);
}

static void drop_tables(u64 start, u64 end)
{
	for (int i = 0; i < ARENA_PAGES; i++)
		if (meta[i].cached && meta[i].ipa < end && start < meta[i].ipa + kvm_granule_size(meta[i].level))
			meta[i].cached = false;
}

static void drop_leaf(u64 ipa)
{
	u64 granule;

	if (!tlb[ipa >> PAGE_SHIFT])
		return;
	granule = kvm_granule_size(tlb[ipa >> PAGE_SHIFT]);
	memset(&tlb[ALIGN_DOWN(ipa, granule) >> PAGE_SHIFT], 0, granule >> PAGE_SHIFT);
}

void __kvm_tlb_flush_vmid(struct kvm_s2_mmu *unused)
{
	refill();
	nr_invalidations++;
	memset(tlb, 0, sizeof(tlb));
	drop_tables(0, SPACE);
	refill();
}

void __kvm_tlb_flush_vmid_range(struct kvm_s2_mmu *unused, phys_addr_t start, unsigned long pages)
{
	u64 end = min(start + pages * PAGE_SIZE, SPACE);

	if (pages > MAX_TLBI_RANGE_PAGES)
		fail("a range that is too long");
	refill();
	nr_invalidations++;
	drop_leaf(start);
	drop_leaf(end - PAGE_SIZE);
	memset(&tlb[start >> PAGE_SHIFT], 0, (end - start) >> PAGE_SHIFT);
	drop_tables(start, end);
	refill();
}

void __kvm_tlb_flush_vmid_ipa(struct kvm_s2_mmu *unused, phys_addr_t ipa, int level)
{
	refill();
	nr_invalidations++;
	/* A wrong level hint need not invalidate anything. With a hint, only a leaf is dropped. */
	if (level == TLBI_TTL_UNKNOWN || tlb[ipa >> PAGE_SHIFT] == level)
		drop_leaf(ipa);
	if (level == TLBI_TTL_UNKNOWN)
		drop_tables(ipa, ipa + PAGE_SIZE);
	refill();
}

static void *zalloc_page(void *mc)
{
	for (int i = 0; i < ARENA_PAGES; i++)
		if (!meta[i].used) {
			meta[i].used = true;
			meta[i].entries = 0;
			memset(arena + i * PAGE_SIZE, 0, PAGE_SIZE);
			return arena + i * PAGE_SIZE;
		}
	fail("out of tables");
}

static void *zalloc_exact(size_t size) { return zalloc_page(NULL); }

static void free_table(void *table)
{
	unsigned long nr = nr_of(table);

	if (!meta[nr].used)
		fail("a table is freed twice");
	if (meta[nr].cached)
		fail("a table is freed that the CPU has in its walk caches");
	meta[nr].used = false;
	memset(table, 0xff, PAGE_SIZE);
	refill();
}

static void free_exact(void *table, size_t size) { free_table(table); }
static void get_page(void *entry) { meta[nr_of(entry)].entries++; }
static void get_page_many(void *entry, int nr) { meta[nr_of(entry)].entries += nr; }

static void put_page(void *entry)
{
	unsigned long nr = nr_of(entry);

	if (meta[nr].entries)
		meta[nr].entries--;
	else
		free_table(arena + nr * PAGE_SIZE);
}

static int page_count(void *entry) { return 1 + meta[nr_of(entry)].entries; }
static void *phys_to_virt(phys_addr_t phys) { return table_of(phys); }
static phys_addr_t virt_to_phys(void *table) { return PHYS_BASE + ((char *)table - arena); }

static void detach_table(struct kvm_s2_mmu *unused, void *table, s8 level)
{
	meta[nr_of(table)].detached_from = level;
	meta[nr_of(table)].next = detached;
	detached = table;
	nr_detached++;
}

/* A page must be cleaned after its invalidation, or the guest could dirty it again. */
static void clean(void *page, size_t size)
{
	phys_addr_t phys = PHYS_BASE + ((char *)page - arena);
	u64 ipa = phys - PAGES_BASE;

	for (size_t i = 0; i < size; i += PAGE_SIZE)
		if (tlb[(ipa + i) >> PAGE_SHIFT])
			fail("a page is cleaned that the TLB still has");
}

static struct kvm_pgtable_mm_ops ops;
static bool cleans;

static void clean_unmapped(void *page, size_t size)
{
	if (cleans)
		clean(page, size);
}

static bool should_yield(struct kvm_s2_mmu *unused, unsigned long nr)
{
	return !any(3);
}

static void check_mapped(void)
{
	refill();
	/*
	 * If an invalidation is missing, the TLB has translations that must not exist. If an unmap
	 * has removed too much, translations are missing from the TLB.
	 */
	if (memcmp(tlb, mapped, sizeof(tlb)))
		fail("the TLB has other translations than those that are mapped");
}

static void map(u64 ipa, u64 size)
{
	/* Maps single pages or blocks, as faults do. Existing mappings do not change. */
	u64 granule = size >= SZ_1G ? SZ_1G : size >= SZ_2M ? SZ_2M : PAGE_SIZE;

	ipa = ALIGN_DOWN(ipa, granule);
	for (u64 end = ipa + size; ipa < end && ipa + granule <= SPACE; ipa += granule) {
		if (memchr(&mapped[ipa >> PAGE_SHIFT], 1, granule >> PAGE_SHIFT) ||
		    memchr(&mapped[ipa >> PAGE_SHIFT], 2, granule >> PAGE_SHIFT) ||
		    memchr(&mapped[ipa >> PAGE_SHIFT], 3, granule >> PAGE_SHIFT))
			continue;
		if (kvm_pgtable_stage2_map(&pgt, ipa, granule, PAGES_BASE + ipa, KVM_PGTABLE_PROT_RW, &mmu, 0))
			fail("a map failed");
		memset(&mapped[ipa >> PAGE_SHIFT], granule == SZ_1G ? 1 : granule == SZ_2M ? 2 : 3,
		       granule >> PAGE_SHIFT);
	}
}

/* Like kvm_arch_guest_memory_reclaimed(), which runs without mmu_lock */
static void free_detached(void)
{
	while (detached) {
		void *table = detached;

		detached = meta[nr_of(table)].next;
		kvm_pgtable_stage2_free_subtree(&ops, table, meta[nr_of(table)].detached_from);
	}
}

/* mmu_lock was released: the TLB must be right, both before and after detached tables are freed. */
static void unlocked(void)
{
	check_mapped();
	if (detached) {
		free_detached();
		check_mapped();
	}
}

static void unmap(u64 start, u64 end, bool yields)
{
	u64 addr = start;

	ops.should_yield = yields ? should_yield : NULL;

	while (addr < end) {
		u64 from = addr, to;

		cleans = true;
		if (kvm_pgtable_stage2_unmap_resumable(&pgt, &addr, end))
			fail("an unmap failed");
		cleans = false;
		if (addr <= from)
			fail("no progress");

		/* An unmap of a part of a block unmaps the whole block. */
		to = min(addr, end);
		for (u64 ipa = from; ipa < to; ) {
			u8 level = mapped[ipa >> PAGE_SHIFT];
			u64 granule = level ? kvm_granule_size(level) : PAGE_SIZE;

			ipa = ALIGN_DOWN(ipa, granule);
			memset(&mapped[ipa >> PAGE_SHIFT], 0, granule >> PAGE_SHIFT);
			ipa += granule;
		}
		unlocked();
	}
}

/* Like kvm_stage2_unmap_all() */
static void unmap_all(void)
{
	bool any = memchr(mapped, 1, sizeof(mapped)) || memchr(mapped, 2, sizeof(mapped)) ||
		   memchr(mapped, 3, sizeof(mapped));

	if (kvm_pgtable_stage2_detach_all(&pgt))
		__kvm_tlb_flush_vmid(&mmu);
	else if (any)
		fail("mapped memory was not found");
	memset(mapped, 0, sizeof(mapped));
	unlocked();
}

static u64 any_range(u64 *size)
{
	static const u64 sizes[] = { PAGE_SIZE, 7 * PAGE_SIZE, SZ_1M, SZ_2M,
				     5 * SZ_2M + 3 * PAGE_SIZE, SZ_1G, 3 * SZ_1G, SPACE };
	u64 start = any(8) ? any(64) * SZ_2M + any(3) * any(512) * PAGE_SIZE : any(16) * SZ_1G;

	*size = sizes[any(sizeof(sizes) / sizeof(*sizes))];
	*size = min(*size, SPACE - start);
	return start;
}

static void begin(void)
{
	memset(meta, 0, sizeof(meta));
	memset(tlb, 0, sizeof(tlb));
	memset(mapped, 0, sizeof(mapped));
	ops = (struct kvm_pgtable_mm_ops) {
		.zalloc_page = zalloc_page, .zalloc_pages_exact = zalloc_exact, .free_pages_exact = free_exact,
		.get_page = get_page, .put_page = put_page, .page_count = page_count,
		.phys_to_virt = phys_to_virt, .virt_to_phys = virt_to_phys,
		.dcache_clean_inval_poc = clean_unmapped,
		.get_page_many = get_page_many, .detach_table = host_ops ? detach_table : NULL,
	};
	pgt = (struct kvm_pgtable) { .ia_bits = 39, .start_level = 1, .mm_ops = &ops, .mmu = &mmu };
	pgt.pgd = zalloc_page(NULL);
}

/* Drops all that the CPU has cached for the VM, and destroys the VM. No table may be left. */
static void end(void)
{
	memset(tlb, 0, sizeof(tlb));
	drop_tables(0, SPACE);
	kvm_pteref_t pgd = pgt.pgd;
	pgt.pgd = NULL;
	struct kvm_pgtable dead = pgt;
	dead.pgd = pgd;
	if (host_ops) {
		kvm_pgtable_stage2_detach_all(&dead);
		free_detached();
		kvm_pgtable_stage2_destroy_pgd(&dead);
	} else {
		kvm_pgtable_stage2_destroy(&dead);
	}
	for (int i = 0; i < ARENA_PAGES; i++)
		if (meta[i].used)
			fail("a table is left");
}

static void run(int rounds)
{
	u64 start, size;

	any(0);
	begin();
	for (int i = 0; i < rounds; i++) {
		start = any_range(&size);
		switch (any(5)) {
		case 0:
			map(start, min(size, 4 * SZ_2M));
			break;
		case 1:
			/* Some pages of many tables */
			for (int j = 0; j < 6; j++)
				map(any(6) * SZ_1G + any(8) * SZ_2M + any(512) * PAGE_SIZE, PAGE_SIZE);
			break;
		case 2:
			if (host_ops && has_fwb && !any(2)) {
				refill();
				unmap_all();
				break;
			}
			/* fall through */
		default:
			refill();
			nr_visits = nr_invalidations;
			unmap(start, start + size, any(2));
			break;
		}
	}
	end();
}

/* The base yields after this size: one block of the lowest level that has blocks */
#define LARGE	(PAGE_SHIFT == 12 ? SZ_1G : PAGE_SHIFT == 14 ? 16 * SZ_2M : SZ_512M)

typedef int (*step_fn)(struct kvm_pgtable *, u64 *, u64);

/* With mmu_lock always contended: the walk must yield after @expected bytes. */
static void check_batch(step_fn step, s8 level, bool fwb, u64 expected, const char *why)
{
	u64 granule = kvm_granule_size(level), addr = 0;

	has_fwb = fwb;
	has_range = true;
	vm.mmu_lock = true;
	begin();
	for (u64 ipa = 0; ipa < 2 * LARGE; ipa += granule)
		if (kvm_pgtable_stage2_map(&pgt, ipa, granule, PAGES_BASE + ipa, KVM_PGTABLE_PROT_RW, &mmu, 0))
			fail("a map failed");
	ops.should_yield = stage2_should_yield;
	if (step(&pgt, &addr, 2 * LARGE) || addr != min(expected, 2 * LARGE)) {
		printf("%lluK pages, level %d: after %llu pages instead of %llu: ", PAGE_SIZE / 1024ull,
		       level, addr / PAGE_SIZE + 0ull, expected / PAGE_SIZE + 0ull);
		fail(why);
	}
	end();
}

/* A walk of unmapped memory must not yield, even if it cleans pages. */
static void check_absent(step_fn step, bool fwb)
{
	u64 addr = 0;

	has_fwb = fwb;
	vm.mmu_lock = true;
	begin();
	ops.should_yield = stage2_should_yield;
	if (step(&pgt, &addr, SPACE) || addr < SPACE)
		fail("a walk yields although nothing is mapped");
	end();
}

static void check_batches(void)
{
	/* Contiguous ranges of cleaned pages. Each counts as at least 32 entries. */
	u64 cleaned = 16 * STAGE2_STEP_PAGES * PAGE_SIZE;
	s8 level;

	seed = 0;
	host_ops = false;
	check_absent(kvm_pgtable_stage2_wrprotect_resumable, true);
	check_absent(kvm_pgtable_stage2_unmap_resumable, false);
	check_absent(kvm_pgtable_stage2_flush_resumable, false);
	for (level = KVM_PGTABLE_MIN_BLOCK_LEVEL; level <= KVM_PGTABLE_LAST_LEVEL; level++) {
		/* Blocks are visited one by one. Each counts as 32 entries. */
		u64 nr = level == KVM_PGTABLE_LAST_LEVEL ? 512 : 512 / 32;

		check_batch(kvm_pgtable_stage2_wrprotect_resumable, level, true,
			    nr * kvm_granule_size(level),
			    "write protection yields too seldom or too often");
		check_batch(kvm_pgtable_stage2_unmap_resumable, level, true,
			    nr * kvm_granule_size(level),
			    "an unmap yields too seldom or too often");
		/* Without FWB, pages are cleaned; a block is cleaned as a whole. */
		check_batch(kvm_pgtable_stage2_unmap_resumable, level, false,
			    max(cleaned, kvm_granule_size(level)),
			    "an unmap cleans more than a block before it yields");
		check_batch(kvm_pgtable_stage2_flush_resumable, level, false,
			    max(cleaned, kvm_granule_size(level)),
			    "a flush yields too seldom or too often");
	}
}

int main(int argc, char **argv)
{
	arena = aligned_alloc(PAGE_SIZE, ARENA_PAGES * PAGE_SIZE);
	check_batches();
	/* The caching rules do not depend on the page size, so 4K is enough. */
	for (seed = 1; PAGE_SHIFT == 12 && seed <= atol(argv[1]); seed++) {
		has_fwb = seed & 1;
		has_range = seed & 2;
		host_ops = seed & 4;
		/* Rounds that detach tables are fast, so there are more of them. */
		run(has_fwb && host_ops ? 200 : 40);
	}
	printf("ok: %lu invalidations, %lu tables detached\n", nr_invalidations, nr_detached);
	return 0;
}
