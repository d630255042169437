#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# fio.sh DOMAIN: fio writes to an NVMe in a strict or lazy domain, then reads and verifies all that
# it has written. It does so with one block size after another. They share the domain, so that IOVAs
# of earlier sizes stay cached. Prints the CPU time of each size.
# fio.sh version: prints fio's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
fio=/usr/bin/fio jobs=2 mib=64

if [ "$1" = version ]; then
	$fio --version | sed 's/^fio-/version /'
	exit
fi
nvme=$(grep -l 0x010802 /sys/bus/pci/devices/*/class) || fail "no NVMe"
nvme=${nvme%/class}
domain "${nvme##*/}" nvme "$1"	# binding it returns after the driver has found the disk
set -- "$nvme"/nvme/nvme*/nvme*n1
disk=/dev/${1##*/}
[ -b "$disk" ] || fail "no $disk"

kib=$((jobs * mib * 1024))
busy() {	# seconds during which CPUs were not idle, since boot
	awk -v now="$(now)" '
		$1 == "cpu" { idle = ($5 + $6) / 100 }
		$1 ~ /^cpu[0-9]/ { cpus++ }
		END { printf "%.2f", cpus * now / 1e9 - idle }' /proc/stat
}

for size in 4k 16k 64k 128k; do
	since=$(busy)
	$fio --name=$size --filename="$disk" --direct=1 --rw=randwrite --bs=$size \
		--numjobs=$jobs --size=${mib}m --offset_increment=${mib}m \
		--ioengine=libaio --iodepth=512 --verify=crc32c --verify_fatal=1 \
		--verify_state_save=0 --group_reporting --minimal > /tmp/fio || {
		code=$?
		cat /tmp/fio
		fail "fio's exit status is $code"
	}
	echo "$size $since $(busy)" | awk '{ printf "write-%s %.2f\n", $1, $3 - $2 }'
	# fields of fio's terse format, version 3: 6 KiB read, 47 KiB written
	awk -F ';' -v kib=$kib '
		$1 == 3 && $6 == kib && $47 == kib { found = 1 }
		END { exit !found }' /tmp/fio || {
		cat /tmp/fio
		fail "fio has not written and read $kib KiB"
	}
done
