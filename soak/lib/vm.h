/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual machines whose vCPUs write to their memory in rounds. A round writes the
 * guest physical address to the first bytes of each 4K. It ends with a store
 * outside of all memslots, which returns to user space.
 */
#ifndef SOAK_VM_H
#define SOAK_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Guest physical addresses: the program, its memory, and an address without memory */
#define VM_CODE (1UL << 30)
#define VM_RAM (2UL << 30)
#define VM_MMIO (3UL << 30)
#define VM_STRIDE 4096

/* Memslots */
enum { VM_CODE_SLOT, VM_RAM_SLOT };

bool has_vms(void);

/* Both return a file descriptor, or -1 with errno */
int vm_open(void);
int vm_add_vcpu(int vm, int number, uint64_t from, uint64_t to);

/* Size 0 deletes the slot. Returns 0, or -1 with errno */
int vm_set_slot(int vm, uint32_t slot, uint32_t flags, uint64_t gpa, uint64_t size, void *at);

/* Defined by vm_ARCH.c. An architecture without such a file has no VMs. */
extern const char vm_code[];
extern const size_t vm_code_size;
bool vm_set_registers(int vm, int vcpu, uint64_t from, uint64_t to);

#endif
