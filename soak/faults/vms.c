// SPDX-License-Identifier: GPL-2.0-only
/* Scenes of VMs: creation, faults of the guest, memslots that change or are deleted. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/kvm.h>

#include "faults.h"
#include "lib/vm.h"

static int vm = -1, vcpu = -1;
static struct kvm_run *run = MAP_FAILED;
static char *code;
static bool stored, discarded;	/* the vCPU has written its memory; the memory was discarded */

static const char *missing_vms(void)
{
	return has_vms() ? NULL : "no VMs";
}

static void begin(void)
{
	make_memory();
	code = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		err(1, "mmap");
	memcpy(code, vm_code, vm_code_size);
	__builtin___clear_cache(code, code + page);
}

static void close_vm(void)
{
	if (run != MAP_FAILED)
		munmap(run, page);
	if (vcpu >= 0)
		close(vcpu);
	if (vm >= 0)
		close(vm);
	run = MAP_FAILED;
	vcpu = vm = -1;
	stored = discarded = false;
}

static int set_slot(uint32_t flags, size_t size)
{
	return vm_set_slot(vm, VM_RAM_SLOT, flags, VM_RAM, size, memory) ? errno : 0;
}

/* Makes KVM split blocks when dirty logging starts; only arm64 has this setting */
static int split_eagerly(void)
{
#ifdef __aarch64__
	struct kvm_enable_cap cap = {
		.cap = KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE,
		.args = { 2 * MIB },
	};

	return ioctl(vm, KVM_ENABLE_CAP, &cap);
#else
	return 0;
#endif
}

static bool open_vm(void)
{
	vm = vm_open();
	if (vm < 0 || split_eagerly() ||
	    vm_set_slot(vm, VM_CODE_SLOT, 0, VM_CODE, page, code) ||
	    set_slot(0, playing->size))
		return false;
	vcpu = vm_add_vcpu(vm, 0, VM_RAM, VM_RAM + playing->size);
	if (vcpu < 0)
		return false;
	run = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	return run != MAP_FAILED;
}

static int create(void)
{
	int error = open_vm() ? 0 : errno;

	if (error)
		close_vm();
	return error;
}

/*
 * Runs until the end of a round. If x86's KVM cannot copy an instruction, it
 * treats it as unknown and injects an exception into the guest. The guest is then
 * started again.
 */
static int run_round(void)
{
	if (ioctl(vcpu, KVM_RUN, 0))
		return errno;
	if (run->exit_reason == KVM_EXIT_MMIO) {
		stored = true;
		return 0;
	}
	printf("# %s: exit reason %u\n", playing->name, run->exit_reason);
	vm_set_registers(vm, vcpu, VM_RAM, VM_RAM + playing->size);
	return EIO;
}

static const char *wrong_memory(void)
{
	for (size_t at = 0; stored && !discarded && at < playing->size; at += VM_STRIDE)
		if (*(uint32_t *)(memory + at) != VM_RAM + at)
			return "the vCPU's memory has other data than it wrote";
	return NULL;
}

static void prepare_vm(void)
{
	drop_memory();
	errno = create();
	if (errno)
		err(1, "a VM");
}

static void prepare_run(void)
{
	prepare_vm();
	errno = run_round();
	if (errno)
		err(1, "KVM_RUN");
}

static void prepare_log(void)
{
	prepare_run();
	errno = set_slot(KVM_MEM_LOG_DIRTY_PAGES, playing->size);
	if (errno)
		err(1, "KVM_MEM_LOG_DIRTY_PAGES");
}

static int delete_slot(void)
{
	return set_slot(0, 0);
}

static int start_log(void)
{
	return set_slot(KVM_MEM_LOG_DIRTY_PAGES, playing->size);
}

static int stop_log(void)
{
	return set_slot(0, playing->size);
}

static int read_log(void)
{
	static uint64_t dirty[64 * MIB / 4096 / 64];
	struct kvm_dirty_log log = { .slot = VM_RAM_SLOT, .dirty_bitmap = dirty };

	return ioctl(vm, KVM_GET_DIRTY_LOG, &log) ? errno : 0;
}

/* KVM must also unmap the discarded pages from the VM */
static int discard(void)
{
	discarded = true;
	return madvise(memory, playing->size, MADV_DONTNEED) ? errno : 0;
}

static int close_call(void)
{
	close_vm();
	return 0;
}

static void nothing(void)
{
}

#define SCENE .missing = missing_vms, .begin = begin, .undo = close_vm, .wrong = wrong_memory
#define SMALL_2M .backing = SMALL, .size = 2 * MIB
#define HUGE_4M .backing = THP, .size = 4 * MIB

const struct scene vms_scenes[] = {
	/* sparse: most of the operations that can fail here create the VM's debugfs files */
	{ "vm: made", SCENE, .prepare = nothing, .call = create, SMALL_2M, .sparse = 16 },
	{ "vm: runs", SCENE, .prepare = prepare_vm, .call = run_round, SMALL_2M,
	  .with_thread = true, .sparse = 16 },
	{ "vm: runs in absent memory", SCENE, .prepare = prepare_vm, .call = run_round,
	  .backing = ABSENT, .size = MIB / 2, .with_thread = true, .sparse = 16 },
	{ "vm: runs while dirty pages are logged", SCENE, .prepare = prepare_log,
	  .call = run_round, HUGE_4M },
	{ "vm: its memslot deleted", SCENE, .prepare = prepare_run, .call = delete_slot, SMALL_2M },
	{ "vm: its memslot deleted, huge pages", SCENE, .prepare = prepare_run,
	  .call = delete_slot, HUGE_4M },
	{ "vm: dirty pages logged", SCENE, .prepare = prepare_run, .call = start_log, HUGE_4M },
	{ "vm: dirty pages read", SCENE, .prepare = prepare_log, .call = read_log, SMALL_2M,
	  .may_be_done = true },
	{ "vm: dirty pages not logged any more", SCENE, .prepare = prepare_log,
	  .call = stop_log, HUGE_4M },
	{ "vm: its memory discarded", SCENE, .prepare = prepare_run, .call = discard, SMALL_2M },
	{ "vm: closed", SCENE, .prepare = prepare_run, .call = close_call, SMALL_2M },
	{}
};
