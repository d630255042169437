#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# count.sh LINUX REVISION WHAT [burst] [32]: counts the instructions of the workload WHAT of
# bench.c, in total and under the rbtree's lock. Uses the iova.c of REVISION in the tree LINUX. The
# base is the revision `fixes`.
set -e
here=$(dirname "$(realpath "$0")")
linux=$1 revision=$2
shift 2
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
mkdir -p "$out/linux"
git -C "$linux" show "$revision:drivers/iommu/iova.c" > "$out/iova.c"
git -C "$linux" show "$revision:include/linux/iova.h" > "$out/linux/iova.h"
for name in atomic bitops compiler cpu dma-mapping export kernel kmemleak module rcupdate shrinker \
    slab smp types workqueue; do
	: > "$out/linux/$name.h"
done
one=
grep -q iova_rcache_free "$out/iova.c" && one=-DFREE_ONE
for locked in '' -DCOUNT_LOCKED; do
	gcc -O2 -g -w -include "$here/stub.h" -I"$out" -I"$here" -I"$linux/tools/include" \
	    $one $locked -DIOVA_C="\"$out/iova.c\"" "$here/bench.c" "$linux/tools/lib/rbtree.c" \
	    -o "$out/bench"
	toggle="--toggle-collect=count_$1"
	[ -n "$locked" ] && toggle=
	valgrind --tool=callgrind --collect-atstart=no ${toggle:+"$toggle"} \
	    --callgrind-out-file=/dev/null "$out/bench" "$@" 2>&1 |
	    sed -n "s/.*Collected : /${locked:+under the lock: }/p"
done
