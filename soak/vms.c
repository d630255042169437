// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual machines whose vCPUs write to their memory. Meanwhile the process
 * discards parts of the memory, protects it, forks, deletes and adds the memslot,
 * and reads the dirty log. A VM ends when its process exits or is killed. A page
 * is zero or contains its guest physical address.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <linux/kvm.h>

#include "soak.h"
#include "lib/vm.h"

#define MIB (1UL << 20)
#define MEMORY (96 * MIB)
#define HUGE_SIZE (2 * MIB)
#define VCPUS 2

static int vm;
static char *memory;
static unsigned long page;

static void set_slot(uint32_t slot, uint32_t flags, uint64_t gpa, uint64_t size, void *at)
{
	if (vm_set_slot(vm, slot, flags, gpa, size, at))
		err(1, "memslot %u", slot);
}

/* A store outside of all slots returns as MMIO. EFAULT: the page is read-only at the moment. */
static void *run(void *arg)
{
	int vcpu = *(int *)arg;

	while (!ioctl(vcpu, KVM_RUN, 0) || errno == EFAULT || errno == EINTR || errno == ENOMEM)
		;
	err(1, "KVM_RUN");
}

/* Checks a random page; returns whether a vCPU has written to it */
static bool look(void)
{
	uint64_t at = rnd(MEMORY / VM_STRIDE) * VM_STRIDE;
	uint64_t value = __atomic_load_n((uint64_t *)(memory + at), __ATOMIC_RELAXED);

	if (value && value != VM_RAM + at) {
		add(&shared->foreign, 1);
		printf("# guest page %#lx has %#lx\n", VM_RAM + at, value);
	}
	return value;
}

static void child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (!pid) {
		for (int i = 0; i < 16; i++)
			memory[rnd(MEMORY / page) * page] = 1;
		_exit(0);
	}
	counted(FORK);
	waitpid(pid, NULL, 0);
}

static void change(uint32_t *flags)
{
	static uint64_t dirty[MEMORY / 4096 / 64];
	struct kvm_dirty_log log = { .slot = VM_RAM_SLOT, .dirty_bitmap = dirty };
	uint64_t pages = 1 + rnd(1UL << rnd(14)), from = rnd(MEMORY / page - pages + 1) * page;

	switch (rnd(8)) {
	case 0:
		from = 0;
		pages = MEMORY / page;
		/* fallthrough */
	case 1:
	case 2:
		madvise(memory + from, pages * page, MADV_DONTNEED);
		break;
	case 3:
		if (mprotect(memory + from, pages * page, PROT_READ) ||
		    mprotect(memory + from, pages * page, PROT_READ | PROT_WRITE))
			err(1, "mprotect");
		break;
	case 4:
		set_slot(VM_RAM_SLOT, 0, VM_RAM, 0, memory);
		rest(2);
		set_slot(VM_RAM_SLOT, *flags, VM_RAM, MEMORY, memory);
		break;
	case 5:
		*flags ^= KVM_MEM_LOG_DIRTY_PAGES;
		set_slot(VM_RAM_SLOT, *flags, VM_RAM, MEMORY, memory);
		break;
	case 6:
		if (*flags && ioctl(vm, KVM_GET_DIRTY_LOG, &log))
			err(1, "KVM_GET_DIRTY_LOG");
		break;
	default:
		child();
	}
}

static void make_memory(void)
{
	char *code = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memory = mmap(NULL, MEMORY + HUGE_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (code == MAP_FAILED || memory == MAP_FAILED)
		err(1, "mmap");
	memory = (char *)(((uintptr_t)memory + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	madvise(memory, MEMORY, rnd(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memcpy(code, vm_code, vm_code_size);
	__builtin___clear_cache(code, code + page);
	set_slot(VM_CODE_SLOT, 0, VM_CODE, page, code);
	set_slot(VM_RAM_SLOT, 0, VM_RAM, MEMORY, memory);
}

static void vm_main(void *arg)
{
	static int vcpus[VCPUS];
	uint32_t flags = 0;
	unsigned int written = 0;
	pthread_t thread;

	seed_random((uintptr_t)arg);
	page = sysconf(_SC_PAGESIZE);
	vm = vm_open();
	if (vm < 0)
		err(1, "/dev/kvm");
	make_memory();
	for (int i = 0; i < VCPUS; i++) {
		uint64_t from = VM_RAM + i * (MEMORY / VCPUS);

		vcpus[i] = vm_add_vcpu(vm, i, from, from + MEMORY / VCPUS);
		if (vcpus[i] < 0)
			err(1, "vCPU %d", i);
		if (pthread_create(&thread, NULL, run, &vcpus[i]))
			errx(1, "pthread_create");
	}
	for (int changes = 20 + rnd(200); changes && !over(); changes--) {
		change(&flags);
		written += look();
		rest(100);
	}
	if (written)
		counted(VM);
	/* The caller exits, which ends the vCPUs */
}

void vms_director(const char *bdf, int slot)
{
	uint64_t stream = (slot + 1) * 1000000UL;

	(void)bdf;
	while (!over()) {
		for (int i = 0; i < VMS; i++)
			if (!shared->victims[slot + i].pid || reaped(slot + i))
				spawn(slot + i, false, vm_main, (void *)stream++);
		usleep(20000);
	}
	for (int i = 0; i < VMS; i++)
		while (!reaped(slot + i))
			usleep(20000);
}
