#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# qemu.sh CONTAINER MEMORY MIB: QEMU gives the test device to a guest with that memory. QEMU's
# monitor must answer, and SeaBIOS must run in the guest. All of the guest's memory must be pinned
# until QEMU exits with status 0. Prints the seconds since QEMU's invocation.
# qemu.sh version: prints QEMU's version
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
qemu=/usr/bin/qemu-system-x86_64

case $1 in
version)
	$qemu --version | sed -n 's/.*version \([^ ]*\).*/version \1/p'
	exit ;;
type1) device=vfio-pci object= ;;
iommufd) device=vfio-pci,iommufd=iommufd object='-object iommufd,id=iommufd' ;;
*) fail "no container $1" ;;
esac
thp=never huge=0 mib=$3
case $2 in
absent) memory=ram ;;
absent-thp) memory=ram thp=always ;;
prealloc) memory=ram,prealloc=on,prealloc-threads=2 ;;
prealloc-thp) memory=ram,prealloc=on,prealloc-threads=2 thp=always ;;
memfd) memory=memfd,share=on ;;
hugetlb) memory=memfd,hugetlb=on,hugetlbsize=2M huge=$((mib / 2)) ;;
*) fail "no memory $2" ;;
esac
echo $thp > /sys/kernel/mm/transparent_hugepage/enabled
hugetlb $huge
pipes /tmp/to /tmp/from /tmp/firmware
exec 5<>/tmp/firmware

before=$(pinned)
start=$(now)
# shellcheck disable=SC2086 # words of $object
$qemu -nodefaults -no-user-config -display none -accel tcg -S -qmp stdio $object \
	-m "$mib" -object "memory-backend-$memory,id=memory,size=${mib}M" \
	-machine pc,memory-backend=memory -device "$device,host=$BDF,rombar=0" \
	-chardev file,id=firmware,path=/tmp/firmware \
	-device isa-debugcon,iobase=0x402,chardev=firmware < /tmp/to > /tmp/from &
process=$!
exec 3>/tmp/to 4</tmp/from

echo '{"execute": "qmp_capabilities"} {"execute": "query-status"}' >&3
answer '"status": "prelaunch"' <&4
figure monitor "$start"
echo '{"execute": "cont"}' >&3
answer 'No bootable device' <&5
figure firmware "$start"

echo '{"execute": "query-pci", "id": "devices"}' >&3
answer '"id": "devices"' <&4
# shellcheck disable=SC2154 # answer() sets $line
case $line in
*'"device": 4297'*) ;;	# igb, 8086:10c9
*) fail "the guest has no igb: $line" ;;
esac
pages=$(($(pinned) - before))
[ $pages -ge $((mib * 256)) ] || fail "only $pages pages are pinned"
echo '{"execute": "quit"}' >&3
wait $process || fail "QEMU's exit status is $?"
all_free "$before" $huge
