#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# rust-vmm.sh CONTAINER MEMORY MIB: the program in rust-vmm/ maps that memory for the test device,
# through the crates that cloud-hypervisor uses. All of the memory must be pinned until it is
# unmapped. Prints the seconds of the map and of the unmap.
# rust-vmm.sh version: prints the version of the crate vfio-ioctls
set -eu
# shellcheck disable=SC1091
. /job/lib.sh
program=/job/rust-vmm

if [ "$1" = version ]; then
	exec $program version
fi
thp=never mib=$3
case $2 in
*-thp) thp=always ;;
esac
echo $thp > /sys/kernel/mm/transparent_hugepage/enabled
pipes /tmp/to /tmp/from

before=$(pinned)
$program "$1" "${2%-thp}" "$mib" < /tmp/to > /tmp/from 2>&1 &
process=$!
exec 3>/tmp/to 4</tmp/from

answer 'map ' <&4
# shellcheck disable=SC2154 # answer() sets $line
echo "$line"
pages=$(($(pinned) - before))
[ $pages -ge $((mib * 256)) ] || fail "only $pages pages are pinned"
echo >&3
answer 'unmap ' <&4
echo "$line"
wait $process || fail "the exit status of rust-vmm is $?"
all_free "$before" 0
