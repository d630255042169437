#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# testpmd.sh MEMORY MIB: DPDK's testpmd sends packets from one test device to the other and back,
# for some seconds. They must arrive with the right checksums. Prints the seconds from the
# invocation until the ports are up, and the number of packets received.
# testpmd.sh version: prints DPDK's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
testpmd=/usr/bin/dpdk-testpmd

mkdir -p /var/run
chmod 755 /	# DPDK does not load plugins from below a world-writable folder
huge=0 mib=${2:-}
case $1 in
version)
	$testpmd -v --no-huge --no-pci --help 2>&1 |
		sed -n "s/.*RTE Version: 'DPDK \(.*\)'/version \1/p"
	exit ;;
pages) memory='--no-huge --no-shconf' ;;
hugetlb) memory=--in-memory huge=$((mib / 2)) ;;
*) fail "no memory $1" ;;
esac
hugetlb $huge
pipes /tmp/to /tmp/from

before=$(pinned)
start=$(now)
# shellcheck disable=SC2046,SC2086 # words of $memory and $BDFS
$testpmd -l 0-1 --no-telemetry --iova-mode=va $memory -m "$mib" \
	$(printf -- '-a %s ' $BDFS) -- --forward-mode=csum --enable-rx-cksum --tx-first \
	--total-num-mbufs=8192 < /tmp/to > /tmp/from 2>&1 &
process=$!
exec 3>/tmp/to 4</tmp/from

answer 'Checking link status' <&4
figure ports "$start"
pages=$(($(pinned) - before))
sleep 15	# some of this time passes before the ports have a carrier
echo >&3
cat <&4 > /tmp/stats
wait $process || fail "testpmd's exit status is $?"
grep -E 'X-packets|Bad-|error' /tmp/stats
awk '/[RT]X-packets/ { lines++; if (!$2) wrong = 1 }
     /Bad-|error/ { for (i = 2; i <= NF; i += 2) if ($i != 0) wrong = 1 }
     END { exit wrong || lines != 6 }' /tmp/stats ||
	fail "a port has no packets, or wrong ones"
[ $pages -ge $((mib * 256)) ] || fail "only $pages pages were pinned"
all_free "$before" $huge
