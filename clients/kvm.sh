#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# kvm.sh EVENT MEMORY MIB [tcp]: QEMU runs Debian's kernel in a guest, with KVM. virtio-mem adds
# that memory to the guest, which fills it. Then QEMU is killed (kill), or resets the guest, which
# discards the added memory (reset). Meanwhile, cyclictest runs on each CPU, or sockperf (tcp) sends
# messages through TCP from one igb to the other. At the end, all memory must be free. With -icount,
# prints the seconds until the guest's init runs, those of the event, and the worst latency or round
# trip that was measured.
# kvm.sh version: prints QEMU's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
qemu=/usr/bin/qemu-system-aarch64 sockperf=/usr/bin/sockperf inner=/tmp/inner other=

case $1 in
version)
	$qemu --version | sed -n 's/.*version \([^ ]*\).*/version \1/p'
	exit ;;
kill|reset) event=$1 mib=$3 meanwhile=${4:-cyclictest} ;;
*) fail "no event $1" ;;
esac
case $meanwhile in
cyclictest|tcp) ;;
*) fail "no program $meanwhile" ;;
esac
case $2 in
prealloc) thp=never ;;
prealloc-thp) thp=always ;;
*) fail "no memory $2" ;;
esac
echo "$thp" > /sys/kernel/mm/transparent_hugepage/enabled

kib() {	# prints the KiB of $1 in /proc/meminfo
	echo 1 > /proc/sys/vm/stat_refresh
	awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo
}

measured() {	# prints a figure if the guest has one CPU, which means -icount: others are noise
	[ "$(nproc)" -gt 1 ] || figure "$@"
}

started() {	# has cyclictest started its threads, one for each CPU?
	set -- /proc/"$beside"/task/*
	[ $# -gt "$(nproc)" ]
}

cyclictest_runs() {
	# without -icount, a shorter interval would leave no time for QEMU
	/usr/bin/cyclictest --quiet --mlockall --smp --priority=95 \
		--interval=$(($(nproc) > 1 ? 10000 : 200)) > /tmp/latency &
	beside=$!
	await started
}

cyclictest_ends() {	# prints the worst latency
	kill "$beside"
	wait "$beside" || fail "cyclictest's exit status is $?"
	sed -n 's/^T:.* C: *\([0-9]*\) .* Max: *\([0-9]*\)$/\1 \2/p' /tmp/latency > /tmp/worst
	awk -v cpus="$(nproc)" '
		$1 > 0 { found++ }
		$2 > worst { worst = $2 }
		END {
			if (cpus == 1) printf "latency %.1f us\n", worst
			exit found != cpus
		}' /tmp/worst || {
		cat /tmp/latency
		fail "cyclictest has not run on each CPU"
	}
}

two_igb() {	# is the second igb back from the namespace of the case before?
	set -- /sys/bus/pci/drivers/igb/*/net/*
	[ $# = 2 ]
}

received() {	# prints the number of packets that interface $1 has received
	cat "/sys/class/net/$1/statistics/rx_packets"
}

talks() {	# has interface $1 received packets of sockperf, many more than the $2 before it?
	[ $(($(received "$1") - $2)) -gt 100 ]
}

tcp_runs() {
	await two_igb
	set -- /sys/bus/pci/drivers/igb/*/net/*
	apart "${1##*/}" "${2##*/}"
	nsenter -t "$other" -n /usr/bin/chrt -f 95 $sockperf server --tcp -p 4000 > /tmp/server &
	server=$!
	await listens "$other"
	packets=$(received "${1##*/}")
	# sockperf allocates memory for each second of --time
	/usr/bin/chrt -f 95 $sockperf ping-pong --tcp --full-rtt --time=5 -i 192.0.2.2 -p 4000 \
		> /tmp/client &
	beside=$!
	await talks "${1##*/}" "$packets"
	sleep 1	# sockperf omits the first 400 ms
}

silent() {
	cat /tmp/client
	fail "sockperf has not measured until the end"
}

tcp_ends() {	# prints the worst round trip
	sleep 1	# sockperf omits the last 50 ms, too
	kill -INT "$beside"
	wait "$beside" || fail "sockperf's exit status is $?"
	kill "$server" "$other"
	sed -n 's/.*\[Valid Duration\].*ReceivedMessages=\([0-9]*\).*/received \1/p
		s/.*<MAX> observation = *\([0-9.]*\).*/max \1/p' /tmp/client > /tmp/worst
	awk -v cpus="$(nproc)" '
		{ found[$1] = $2 }
		END {
			if (cpus == 1) printf "tcp %.1f us\n", found["max"]
			exit !(found["received"] > 10 && found["max"] > 0)
		}' /tmp/worst || silent
	grep -q 'interrupted by user' /tmp/client || silent
}

free() {	# are all but 1 MiB of the memory and all tables of stage 2 free again?
	[ "$(kib AnonPages)" -lt $((before + 1024)) ] && [ "$(kib SecPageTables)" = 0 ]
}

rm -rf $inner
mkdir -p $inner/bin $inner/dev $inner/proc $inner/full
cp /bin/busybox $inner/bin
xz -dc /usr/lib/modules/*/kernel/drivers/virtio/virtio_mem.ko.xz > $inner/virtio_mem.ko
cat > $inner/init << 'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t ramfs ramfs /full
exec > /dev/console 2>&1
echo inner: booted
insmod /virtio_mem.ko
until awk -v mib="$mib" '/^MemTotal/ { exit $2 < (mib + 128) * 1024 }' /proc/meminfo; do
	usleep 10000
done
dd if=/dev/zero of=/full/zero bs=1M count="$mib" 2> /dev/null
echo "inner: filled $(du -m /full/zero | cut -f 1) MiB"
exec sleep 100000
END
chmod 755 $inner/init
(cd $inner && find . | cpio -o -H newc) > /tmp/inner.cpio 2> /dev/null
pipes /tmp/to /tmp/from /tmp/console
exec 5<>/tmp/console

before=$(kib AnonPages)
start=$(now)
# the guest's kernel passes mib= to its init
$qemu -nodefaults -no-user-config -display none -accel kvm -M virt,gic-version=host -cpu host \
	-qmp stdio -m 256M,maxmem=8G -object "memory-backend-ram,id=memory,size=${mib}M" \
	-device "virtio-mem-pci,memdev=memory,requested-size=${mib}M,prealloc=on" \
	-kernel /boot/vmlinuz-* -initrd /tmp/inner.cpio \
	-append "console=ttyAMA0 quiet memhp_default_state=online mib=$mib" \
	-chardev file,id=console,path=/tmp/console -serial chardev:console < /tmp/to > /tmp/from &
process=$!
exec 3>/tmp/to 4</tmp/from
echo '{"execute": "qmp_capabilities"}' >&3
answer '"return"' <&4
answer 'inner: booted' <&5
measured boot "$start"
answer "inner: filled $mib MiB" <&5
used=$(kib AnonPages) tables=$(kib SecPageTables)
[ "$used" -ge $((mib * 1024)) ] || fail "only $used KiB are in use"
# a table of 4 KiB maps 2 MiB of 4K pages, or 1 GiB of 2M blocks
case $thp in
never) [ "$tables" -ge $((mib * 2)) ] ;;
always) [ "$tables" -lt "$mib" ] ;;
esac || fail "stage 2 has $tables KiB of tables"

trap 'kill -9 $process ${server:-} ${other:-} ${beside:-} 2> /dev/null || true; wait' EXIT
"${meanwhile}_runs"
start=$(now)
case $event in
kill)
	kill -9 $process
	wait $process || code=$?
	measured kill "$start"
	[ "$code" = 137 ] || fail "QEMU's exit status is $code" ;;
reset)
	echo '{"execute": "system_reset"}' >&3
	answer '"event": "RESET"' <&4
	measured reset "$start"
	# the guest boots again and uses other memory
	left=$(kib AnonPages)
	[ $((used - left)) -ge $((mib * 768)) ] || fail "$left of $used KiB are still in use" ;;
esac
"${meanwhile}_ends"

if [ "$event" = reset ]; then
	kill -9 $process
	wait $process || true
fi
await free
