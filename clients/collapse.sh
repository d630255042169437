#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# collapse.sh cyclictest: cyclictest runs on both nohz_full CPUs. On the other CPUs, stress-ng grows
# its heap, and khugepaged collapses it into huge pages. Prints the number of interrupts (IPIs) that
# a nohz_full CPU receives for each huge page. Wake-ups of cyclictest do not count.
# collapse.sh version: prints stress-ng's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
stress=/usr/bin/stress-ng thp=/sys/kernel/mm/transparent_hugepage trace=/sys/kernel/tracing

case $1 in
version)
	$stress --version | sed -n 's/^stress-ng, version \([^ ]*\).*/version \1/p'
	exit ;;
cyclictest) ;;
*) fail "no program $1" ;;
esac
cpus=$(cat /sys/devices/system/cpu/nohz_full)
[ "$cpus" = 2-3 ] || fail "the nohz_full CPUs are $cpus, not 2-3"

collapses() {	# prints how many huge pages khugepaged has made
	cat $thp/khugepaged/pages_collapsed
}

started() {	# has cyclictest started both threads?
	[ -d "/proc/$process/task" ] && set -- "/proc/$process/task"/* && [ $# = 3 ]
}

echo always > $thp/enabled
echo 0 > $thp/khugepaged/scan_sleep_millisecs
taskset 3 /usr/bin/cyclictest --quiet --mlockall --priority=95 --interval=10000 --threads=2 \
	--affinity="$cpus" > /tmp/latency &
process=$!
await started
echo 1 > $trace/events/csd/csd_queue_cpu/enable
echo 1 > $trace/tracing_on
echo > $trace/trace	# enabling the event interrupts all CPUs
before=$(collapses)
taskset 3 $stress --quiet --bigheap 1 --bigheap-bytes 64M --timeout 10 ||
	fail "stress-ng's exit status is $?"
huge=$(($(collapses) - before))
echo 0 > $trace/tracing_on
kill $process
wait $process || fail "cyclictest's exit status is $?"
[ "$(grep -c '^T:.* C: *[1-9]' /tmp/latency)" = 2 ] || {
	cat /tmp/latency
	fail "cyclictest has not run on both CPUs"
}

sed -n 's/.*csd_queue_cpu: cpu=[23] .* func=\([^+ ]*\).*/\1/p' $trace/trace > /tmp/calls
echo "$huge huge pages; IPIs to the nohz_full CPUs, by function:"
sort /tmp/calls | uniq -c
[ $huge -ge 20 ] || fail "khugepaged has made only $huge huge pages"
grep -cv sched_ttwu_pending /tmp/calls |
	awk -v huge=$huge '{ printf "collapse %.3f IPIs\n", $1 / 2 / huge }'
