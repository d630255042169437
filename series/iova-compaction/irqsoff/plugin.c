// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A TCG plugin for x86: the most instructions that a vCPU executes with interrupts
 * off, of sections that pass through code=BEGIN-END, between two markers. A section
 * is from cli to sti; the marker is "xchg %r15, %r15". What is executed in
 * wait=BEGIN-END does not count: for how long vCPUs wait for one another depends on
 * when the host runs them.
 *
 * Not with -icount: QEMU 10.0 takes all vCPUs that share a thread for one of them.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

EXPORT int qemu_plugin_version = 4;

struct range {
	uint64_t begin, end;
};

static struct counter executed;
static struct range code, wait;
static uint64_t since[MAX_VCPUS], longest;
static bool off[MAX_VCPUS], passed[MAX_VCPUS], watching;
static const char *out;

/* @later: instructions of the block that are counted already and not executed yet */
static uint64_t now(unsigned int vcpu, void *later)
{
	return qemu_plugin_u64_get(executed, vcpu) - (uintptr_t)later;
}

static void at_cli(unsigned int vcpu, void *later)
{
	if (off[vcpu])
		return;
	off[vcpu] = true;
	since[vcpu] = now(vcpu, later);
	passed[vcpu] = false;
}

static void at_sti(unsigned int vcpu, void *later)
{
	if (watching && off[vcpu] && passed[vcpu]) {
		uint64_t took = now(vcpu, later) - since[vcpu];

		if (took > longest)
			longest = took;
	}
	off[vcpu] = false;
}

static void at_code(unsigned int vcpu, void *data)
{
	passed[vcpu] = true;
}

/* iret and sysret: the flags are those of before */
static void at_return(unsigned int vcpu, void *later)
{
	off[vcpu] = false;
}

static void at_marker(unsigned int vcpu, void *later)
{
	FILE *file;

	watching = !watching;
	if (watching)
		return;
	file = fopen(out, "w");
	if (!file)
		abort();
	fprintf(file, "%" PRIu64 "\n", longest);
	fclose(file);
}

static vcpu_callback callback_of(const struct qemu_plugin_insn *insn)
{
	unsigned char bytes[4] = {};
	size_t size = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));

	if (size == 1 && bytes[0] == 0xfa)
		return at_cli;
	if (size == 1 && bytes[0] == 0xfb)
		return at_sti;
	if (size == 2 && !memcmp(bytes, "\x48\xcf", 2))
		return at_return;
	if (size == 3 && !memcmp(bytes, "\x48\x0f\x07", 3))
		return at_return;
	if (size == 3 && !memcmp(bytes, "\x4d\x87\xff", 3))
		return at_marker;
	return NULL;
}

static bool within(uint64_t at, struct range range)
{
	return at >= range.begin && at < range.end;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t nr_insns = qemu_plugin_tb_n_insns(tb);
	uint64_t at = qemu_plugin_tb_vaddr(tb);

	if (!within(at, wait))
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, executed,
								  nr_insns);
	if (within(at, code))
		qemu_plugin_register_vcpu_tb_exec_cb(tb, at_code, CB_NO_REGS, NULL);
	call_at_insns(tb, callback_of);
}

static bool read_range(const char *word, const char *format, struct range *range)
{
	return sscanf(word, format, &range->begin, &range->end) == 2;
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			out = strdup(argv[i] + 4);
		else if (!read_range(argv[i], "code=%" SCNx64 "-%" SCNx64, &code) &&
			 !read_range(argv[i], "wait=%" SCNx64 "-%" SCNx64, &wait))
			return -1;
	}
	if (!code.end || !wait.end || !out)
		return -1;
	executed.scoreboard = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
