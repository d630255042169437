// SPDX-License-Identifier: GPL-2.0-only
/*
 * The protocol of Documentation/litmus-tests/mm/lockless-walk.litmus for Spin, where herd7 is not at hand.
 * Each CPU takes its accesses in any order that barriers, acquire, release and dependencies leave; with two CPUs it makes
 * no difference when a store reaches whom. Must find nothing:
 *     spin -a lockless-walk.pml && cc -o pan pan.c && ./pan
 * and an error with any of -DMB=0 -DUMB=0 -DACQ=0 -DREL=0 given to spin.
 */
#ifndef MB
#define MB 1	/* full barrier in the walk */
#endif
#ifndef UMB
#define UMB 1	/* full barrier in the updater */
#endif
#ifndef ACQ
#define ACQ 1
#endif
#ifndef REL
#define REL 1
#endif
byte entry = 1, walks, used, reused;
bool a, b, c, d, e, f, g, h, i;
byte p0r0 = 9, p0r1 = 9, p1r0 = 9, p1r1 = 9;

proctype P0() {
	do
	:: atomic { !a -> entry = 0; a = true }
	:: atomic { !b && (!UMB || a) -> p0r0 = walks; b = true }
	:: atomic { !c && (!UMB || a) && (!ACQ || b) -> p0r1 = used; c = true }
	:: atomic { !d && b && (!UMB || a) -> if :: p0r0 == 0 -> reused = 1 :: else fi; d = true }
	:: a && b && c && d -> break
	od
}
proctype P1() {
	do
	:: atomic { !e -> walks = 1; e = true }
	:: atomic { !f && (!MB || e) -> p1r0 = entry; f = true }
	:: atomic { !g && (!MB || e) -> p1r1 = reused; g = true }
	:: atomic { !h && f && (!MB || e) -> if :: p1r0 == 1 -> used = 1 :: else fi; h = true }
	:: atomic { !i && e && (!REL || (f && g && h)) -> walks = 0; i = true }
	:: e && f && g && h && i -> break
	od
}
init { atomic { run P0(); run P1() }
	(_nr_pr == 1);
	assert(!(p0r0 == 0 && p1r0 == 1 && (p0r1 == 0 || p1r1 == 1)))
}
