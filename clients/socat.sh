#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# socat.sh DOMAIN: socat sends a file through TCP from one test device to the other, and at the same
# time another file back. Both devices use the kernel's own driver, in strict or lazy domains. The
# second device is in its own network namespace, so that the packets leave the first. Prints the
# seconds of the transfer.
# socat.sh version: prints socat's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
socat=/usr/bin/socat mib=32 other=

if [ "$1" = version ]; then
	$socat -V | sed -n 's/^socat version \([^ ]*\).*/version \1/p'
	exit
fi

carried() {	# has interface $2, in the namespace of process $1, received and sent a file?
	sed -n "s/^ *$2: *//p" "/proc/$1/net/dev" | awk -v bytes=$((mib << 20)) '
		{ print $1, "bytes received,", $9, "sent" }
		$1 > bytes && $9 > bytes { enough = 1 }
		END { exit !enough }' || fail "$2 has carried too few bytes"
}

for bdf in $BDFS; do
	domain "$bdf" igb "$1"
done
[ "$bdf" != "$BDF" ] || fail "no second igb"
near=$(ls "/sys/bus/pci/devices/$BDF/net") far=$(ls "/sys/bus/pci/devices/$bdf/net")

rm -f /tmp/*.got
pids=
# shellcheck disable=SC2086 # several PIDs
trap 'kill -9 $other $pids 2> /dev/null || true; wait' EXIT
apart "$near" "$far"

for file in /tmp/near /tmp/far; do
	dd if=/dev/urandom of=$file bs=1M count=$mib 2> /dev/null
done
timeout 200 $socat -u TCP4-LISTEN:4000 OPEN:/tmp/far.got,creat &
pids="$pids $!"
there timeout 200 $socat -u TCP4-LISTEN:4000 OPEN:/tmp/near.got,creat &
pids="$pids $!"
await listens $$
await listens "$other"
start=$(now)
timeout 200 $socat -u OPEN:/tmp/near,rdonly TCP4:192.0.2.2:4000 &
pids="$pids $!"
there timeout 200 $socat -u OPEN:/tmp/far,rdonly TCP4:192.0.2.1:4000 &
pids="$pids $!"
for pid in $pids; do
	wait "$pid" || fail "socat's exit status is $?"
done
figure transfer "$start"

cmp /tmp/near /tmp/near.got
cmp /tmp/far /tmp/far.got
carried $$ "$near"
carried "$other" "$far"
