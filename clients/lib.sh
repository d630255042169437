#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Functions that the scripts of all clients share. $process and $other are PIDs to kill at the end.
# shellcheck disable=SC3045,SC2154 # busybox has `read -t`

fail() {
	echo "$*"
	exit 1
}

# the next case needs the device
# shellcheck disable=SC2086 # PIDs
trap 'kill -9 ${process:-} ${other:-} 2> /dev/null || true; wait' EXIT

now() {	# nanoseconds, which busybox's date does not print
	sed -n '/^now at/ { s/[^0-9]//g; p; q; }' /proc/timer_list
}

figure() {	# prints the seconds since $2 as figure $1
	echo "$1 $2 $(now)" | awk '{ printf "%s %.3f\n", $1, ($3 - $2) / 1e9 }'
}

await() {	# runs the command $@ until it succeeds
	tries=100
	until "$@"; do
		[ $((tries -= 1)) -gt 0 ] || fail "gave up after 20 s: $*"
		usleep 200000
	done
}

domain() {	# gives device $1 a new domain, strict or lazy ($3), and binds it to driver $2
	device=/sys/bus/pci/devices/$1
	case $3 in
	strict) type=DMA ;;
	lazy) type=DMA-FQ ;;
	*) fail "no domain $3" ;;
	esac
	await [ -e "$device/driver" ]
	echo "$1" > "$device/driver/unbind"
	# without this step, the kernel would make a strict domain lazy and keep its cached IOVAs
	echo identity > "$device/iommu_group/type"
	echo $type > "$device/iommu_group/type"
	echo "$1" > "/sys/bus/pci/drivers/$2/bind"
	# if the kernel cannot make a lazy domain, it makes a strict one
	[ "$(cat "$device/iommu_group/type")" = $type ] || fail "the domain is not $3"
}

# Gives addresses to interfaces $1 and $2, and moves $2 into a network namespace, that of $other
apart() {
	rm -f /tmp/up
	unshare -n sh -c 'echo up; exec sleep 100000' > /tmp/up &
	other=$!
	await [ -s /tmp/up ]
	ip link set "$2" netns $other
	ip addr flush dev "$1"
	ip addr add 192.0.2.1/24 dev "$1"
	ip link set "$1" up
	there ip addr add 192.0.2.2/24 dev "$2"
	there ip link set "$2" up
	await ping -q -c 1 -W 1 192.0.2.2
}

there() {	# runs the command $@ in the namespace of the second interface
	nsenter -t "$other" -n "$@"
}

listens() {	# does a program listen in the network namespace of process $1?
	grep -q ' 0A ' "/proc/$1/net/tcp"
}

answer() {	# reads lines until one contains $1; it is then in $line
	while read -r -t 120 line; do
		echo "$line" >> /tmp/heard
		case $line in
		*"$1"*) return ;;
		*'"error"'*) fail "$line" ;;
		esac
	done
	tail -n 20 /tmp/heard
	fail "no answer contains $1"
}

pinned() {	# prints the number of pinned pages
	echo 1 > /proc/sys/vm/stat_refresh
	awk '$1 == "nr_foll_pin_acquired" { pinned += $2 }
	     $1 == "nr_foll_pin_released" { pinned -= $2 }
	     END { print pinned }' /proc/vmstat
}

hugetlb() {	# reserves $1 huge pages of 2 MiB
	echo "$1" > /proc/sys/vm/nr_hugepages
	[ "$(cat /proc/sys/vm/nr_hugepages)" = "$1" ] || fail "no $1 huge pages"
}

all_free() {	# after the client's end: $1 pages must be pinned, and $2 huge pages free
	[ "$(pinned)" = "$1" ] || fail "$(($(pinned) - $1)) pages are still pinned"
	free=$(awk '/^HugePages_Free/ { print $2 }' /proc/meminfo)
	[ "$free" = "$2" ] || fail "$free of $2 huge pages are free"
}

pipes() {	# makes pipes for a client
	: > /tmp/heard
	for pipe; do
		rm -f "$pipe"
		mkfifo "$pipe"
	done
}
