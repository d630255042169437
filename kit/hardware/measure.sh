#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# usage: ./measure [--quick] [--output FILE] [BDF]
#
# Measures the running kernel, one of the two that `make hardware` built, and adds the figures to
# machine.json or FILE. --quick: 3 repetitions instead of 30. BDF: a PCI device that no driver uses,
# for example 0000:01:00.0. vfio-pci gets it meanwhile. Without BDF, iommufd's mock device is used.
# All settings are restored at the end, also after a signal.
set -u
here=$(cd "$(dirname "$0")" && pwd)
PATH=$here:$PATH repetitions=30 out=machine.json bdf='' tmp='' bound='' child='' failed=''
sys=${MEASURE_SYS:-/sys} kvm=${MEASURE_KVM:-/dev/kvm}	# tests set others

die() {
	echo "measure: $*" >&2
	exit 1
}

# Prints the value of a setting: b if the file has `a [b] c`
value_of() {
	sed 's/.*\[\(.*\)\].*/\1/' "$1"
}

restore() {
	trap '' INT TERM HUP
	[ -z "$child" ] || { kill "$child" && wait "$child"; } 2> /dev/null
	if [ -n "$bound" ]; then
		echo "$bound" > "$sys/bus/pci/drivers/vfio-pci/unbind"
		echo "$override" > "$sys/bus/pci/devices/$bound/driver_override"
	fi 2> /dev/null
	while IFS='	' read -r file value; do
		[ "$(value_of "$file")" = "$value" ] || echo "$value" > "$file" ||
			echo "measure: could not restore $file to $value" >&2
	done < "$tmp/saved"
	rm -rf "$tmp"
}

driver_of() {
	[ ! -L "$1/driver" ] || basename "$(readlink "$1/driver")"
}

# Gives the device to vfio-pci if no driver has it. Never takes it from another driver.
bind() {
	device=$sys/bus/pci/devices/$bdf
	[ -d "$device" ] || die "no PCI device $bdf"
	# a bridge of the chipset often has no driver, and vfio-pci would accept it
	case $(cat "$device/class") in
	0x06*) die "$bdf is a bridge, without which the machine may stop: choose another device" ;;
	esac
	[ -e "$device/iommu_group" ] || die "no IOMMU for $bdf: enable it in the firmware" \
		'and on the command line (Intel: intel_iommu=on)'
	for member in "$device"/iommu_group/devices/*; do
		where=''
		[ "${member##*/}" = "$bdf" ] || where=" in the IOMMU group of $bdf"
		case $(driver_of "$member") in
		'' | vfio-pci | pcieport) ;;
		*) die "device in use: ${member##*/}$where has a driver, $(driver_of "$member")" ;;
		esac
	done
	if [ -z "$(driver_of "$device")" ]; then
		override=$(sed 's/^(null)$//' "$device/driver_override")
		bound=$bdf
		echo vfio-pci > "$device/driver_override"
		echo "$bdf" > "$sys/bus/pci/drivers_probe"
	fi
	[ "$(driver_of "$device")" = vfio-pci ] || die "vfio-pci does not accept $bdf"
	GROUP=/dev/vfio/$(basename "$(readlink "$device/iommu_group")")
	DEVICE=/dev/vfio/devices/$(ls "$device/vfio-dev")
	(: <> "$GROUP") 2> /dev/null || die "device in use: another program has opened $GROUP"
	export BDF="$bdf" GROUP DEVICE
}

# Prints an entry of JSON, "NAME": "TEXT", with the text of the given files
fact() {
	name=$1 && shift
	printf '"%s": "%s", ' "$name" \
		"$(cat "$@" 2> /dev/null | tr '\t\n\0' ' ' | sed 's/[\\"]/\\&/g; s/ *$//')"
}

facts() {
	cd "$sys" || return
	dmi=class/dmi/id cpus=devices/system/cpu
	# arm64 has no model name in /proc/cpuinfo; lscpu may print `-`
	{ cat /proc/cpuinfo; lscpu; } 2> /dev/null | awk -F '[ \t]*: *' '
		/^[Mm]odel name/ && $2 != "-" && !name { name = $2 }
		/^CPU (implementer|part)/ && !seen[$1]++ { id = id $1 " " $2 " " }
		END { print name ? name : id }
	' | fact cpu -
	grep . /dev/null $cpus/vulnerabilities/* | sed 's/.*vulnerabilities.//; s/:/: /; s/$/;/' |
		fact mitigations -
	# without DMI, as on most small arm64 machines, the device tree has the model
	fact product $dmi/sys_vendor $dmi/product_name firmware/devicetree/base/model
	fact firmware $dmi/bios_vendor $dmi/bios_version $dmi/bios_date
	fact command_line /proc/cmdline
	fact thp kernel/mm/transparent_hugepage/enabled
	fact governor $cpus/cpu0/cpufreq/scaling_governor
	fact version /proc/version
	# arm64's KVM logs its mode when it starts: VHE, Hyp nVHE, Protected nVHE ...
	dmesg 2> /dev/null | sed -n 's/.*kvm \[[0-9]*\]: \(.*VHE.*\) mode initialized.*/\1/p' |
		fact kvm_mode -
	printf '"cpus": %d, ' "$(grep -c '^processor' /proc/cpuinfo)"
	# a kernel without NUMA has one node, and no folder for it
	find devices/system/node/node[0-9]* -prune 2> /dev/null |
		awk 'END { printf "\"nodes\": %d, ", NR ? NR : 1 }'
	printf '"memory_kib": %d' "$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)"
}

# Adds entries to the file, which is valid JSON at any time
add() {
	{ sed '$d' "$out" && sed 's/^/,/' && echo ']'; } > "$out.part" && mv "$out.part" "$out"
	# shellcheck disable=SC2181 # of all these commands
	[ $? = 0 ] || die "$out cannot be written"
}

run() {	# NUMBER DEVICE TOPIC COMMAND: adds an entry for each figure that the command prints
	eval "exec $4" > "$tmp/output" 2> "$tmp/errors" < /dev/null 3<&- &
	child=$!
	wait "$child"
	status=$?
	child=''
	sed 's/ /\t/' "$tmp/output" | awk -F '\t' -v job="$1" -v start="{\"kernel\": \"$kernel\", \
\"boot\": \"$boot\", \"topic\": \"$3\", \"device\": \"$2\", \"row\":" '
	NR == FNR { if ($1 == job) rows[$2] = $3; next }
	$1 in rows && $2 ~ /^[0-9.]+$/ { print start, rows[$1] ", \"value\": " $2 "}" }
	' "$here/rows" - > "$tmp/figures"
	[ ! -s "$tmp/figures" ] || add < "$tmp/figures"
	if [ "$status" != 0 ] || [ ! -s "$tmp/figures" ]; then
		failed=$(cat "$tmp/errors" "$tmp/output" | tail -n 1)
		echo "measure: $4: exit status $status: ${failed:=no figures}" >&2
	fi
}

while [ $# -gt 0 ]; do
	case $1 in
	--quick) repetitions=3 ;;
	--output) [ $# -gt 1 ] || die '--output needs a file'; out=$2 && shift ;;
	-h | --help) sed -n '3,/^set/s/^# \?//p' "$0" && exit ;;
	*:*:*.*) bdf=$1 ;;
	*) die "$1 is neither an option nor a BDF such as 0000:01:00.0 (--help)" ;;
	esac
	shift
done
[ "$(id -u)" = 0 ] || die 'root is needed: it sets huge pages, and counts interrupts'
# shellcheck disable=SC1091 # written by make hardware: base=, patched= and series=
. "$here/about"
case $(uname -r) in
"${base:?}") kernel=base ;;
"${patched:?}") kernel=patched ;;
*) die "the kernel $(uname -r) is neither $base nor $patched: install and boot them" ;;
esac
if [ ! -e "$out" ]; then
	(printf '[\n%s\n]\n' "${series:?}" > "$out") 2> /dev/null || die "$out cannot be written"
elif [ "$(sed -n 2p "$out")" != "${series:?}" ]; then
	die "$out has figures of another series: move it away"
fi
thp=$sys/kernel/mm/transparent_hugepage
huge=$sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
[ -e "$thp"/enabled ] || die "no huge pages: $thp is missing"
[ -e "$huge" ] || die "no huge pages: $huge is missing"
[ "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" -ge 2600 ] ||
	die 'not enough memory: 2.6 GiB must be free'
boot=$(cat /proc/sys/kernel/random/boot_id)
tmp=$(mktemp -d) || die 'no folder for temporary files'
find "$thp" "$huge" -type f -perm -200 | while read -r file; do
	printf '%s\t%s\n' "$file" "$(value_of "$file")"
done 2> /dev/null > "$tmp/saved"
trap restore EXIT
trap 'echo "measure: interrupted; $out has what was measured" >&2; exit 130' INT TERM HUP
modprobe -a vfio-pci vfio_iommu_type1 iommufd 2> /dev/null
if [ -n "$bdf" ]; then
	bind
else
	pin_span mock 2 4k > /dev/null 2>&1 || die 'no mock device in this kernel: a BDF is needed'
	echo "measure: without a BDF, iommufd's mock device is measured, and type1 is not"
fi
[ -e "$kvm" ] || ! grep -q '	kvm	' "$here/jobs" ||
	echo "measure: without $kvm, KVM is not measured"
! grep -q '\[never\]' "$thp/enabled" || echo madvise > "$thp/enabled"
pages=$(($(cat "$huge") + 513))
echo $pages > "$huge"
[ "$(cat "$huge")" = $pages ] ||
	die "no huge pages: $(cat "$huge") of $pages (2M) could be allocated"
printf '{"kernel": "%s", "boot": "%s", "facts": {%s}}\n' "$kernel" "$boot" "$(facts)" > "$tmp/facts"
add < "$tmp/facts"
round=0
while [ $((round += 1)) -le $repetitions ]; do
	echo "measure: $kernel, repetition $round of $repetitions"
	while IFS='	' read -r number device topic command <&3; do
		case $device,$bdf in
		any,*) run "$number" '' "$topic" "$command" ;;
		kvm,*) [ ! -e "$kvm" ] || run "$number" '' "$topic" "$command" ;;
		mock,) run "$number" mock "$topic" "$command" ;;
		device,?*) run "$number" "$bdf" "$topic" "$command" ;;
		esac
	done 3< "$here/jobs"
done
[ -z "$failed" ] || die "some programs failed; $out has the figures of the others"
echo "measure: $out has the figures of this kernel, $kernel"
