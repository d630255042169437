// SPDX-License-Identifier: GPL-2.0-only
/*
 * The mark of lockless page-table walks for Spin. P1 walks twice; in between it may be interrupted
 * for another updater, which takes its mark away. Or the second walk is an NMI's that comes before
 * the barrier of the first. P0 detaches the page table and waits only if it finds the mark. Each CPU
 * takes its accesses in any order that barriers, acquire, release and dependencies leave; with two
 * CPUs it makes no difference when a store reaches whom.
 *
 * mark_model.py runs it; by hand, with an error for any of -DMB=0 -DUMB=0 -DACQ=0 -DREL=0 -DSET=0
 * -DORD=0:
 *     spin -a mark_model.pml && cc -o pan pan.c && ./pan
 */
#ifndef MB
#define MB 1	/* full barrier after the mark is set */
#endif
#ifndef UMB
#define UMB 1	/* full barrier in the updater before it reads the mark */
#endif
#ifndef ACQ
#define ACQ 1	/* and after it */
#endif
#ifndef REL
#define REL 1	/* the interrupt takes the mark away with a release */
#endif
#ifndef SET
#define SET 1	/* a walk after the interrupt sets the mark again */
#endif
#ifndef ORD
#define ORD 1	/* an NMI between the mark and its barrier has a barrier of its own */
#endif
byte entry = 1, mark, used1, used2, reused;
bool was_marked, interrupted, nmi;	/* chosen at the start */
byte m = 9, u1, u2;			/* what P0 reads */
byte e1, e2, r1, r2;			/* what the walks of P1 read */
bool a, b, c, d, f;
bool s1, le1, lr1, st1, cl, s2, le2, lr2, st2;

/* Is the walk's own setting of the mark, if there is one, done? */
#define FIRST	(was_marked || !MB || s1)
#define SECOND	(nmi -> (!ORD || FIRST) : (FIRST && (!interrupted || !SET || !MB || s2)))
#define WALK1	(le1 && lr1 && st1)
#define MARKED1	(was_marked || s1)

proctype P0() {
	do
	:: atomic { !a -> entry = 0; a = true }
	:: atomic { !b && (!UMB || a) -> m = mark; b = true }
	:: atomic { !c && (!UMB || a) && (!ACQ || b) -> u1 = used1; c = true }
	:: atomic { !d && (!UMB || a) && (!ACQ || b) -> u2 = used2; d = true }
	:: atomic { !f && b && (!UMB || a) -> if :: m == 0 -> reused = 1 :: else fi; f = true }
	:: a && b && c && d && f -> break
	od
}
proctype P1() {
	do
	:: atomic { !s1 && !was_marked -> mark = 1; s1 = true }
	:: atomic { !le1 && FIRST -> e1 = entry; le1 = true }
	:: atomic { !lr1 && FIRST -> r1 = reused; lr1 = true }
	:: atomic { !st1 && le1 && FIRST -> if :: e1 == 1 -> used1 = 1 :: else fi; st1 = true }
	/* own stores to the mark stay in order */
	:: atomic { interrupted && !cl && MARKED1 && (!REL || WALK1) -> mark = 0; cl = true }
	:: atomic { interrupted && SET && !s2 && cl -> mark = 1; s2 = true }
	:: atomic { !le2 && SECOND -> e2 = entry; le2 = true }
	:: atomic { !lr2 && SECOND -> r2 = reused; lr2 = true }
	:: atomic { !st2 && le2 && SECOND -> if :: e2 == 1 -> used2 = 1 :: else fi; st2 = true }
	:: MARKED1 && WALK1 && le2 && lr2 && st2 && (!interrupted || (cl && (!SET || s2))) -> break
	od
}
init {
	if :: was_marked = true; mark = 1 :: skip fi;
	if :: interrupted = true :: nmi = !was_marked :: skip fi;
	atomic { run P0(); run P1() }
	(_nr_pr == 1);
	assert(!(m == 0 && e1 == 1 && (u1 == 0 || r1 == 1)));
	assert(!(m == 0 && e2 == 1 && (u2 == 0 || r2 == 1)))
}
