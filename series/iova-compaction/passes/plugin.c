// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A TCG plugin for x86: how many instructions each section took, a line each in
 * out=FILE. A section is what a vCPU executes from "xchg %r14, %r14" to
 * "xchg %r13, %r13"; one that ends on another vCPU does not count.
 *
 * Not with -icount: QEMU 10.0 takes all vCPUs that share a thread for one of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "qemu_plugin.h"

EXPORT int qemu_plugin_version = 4;

static struct counter executed;
static uint64_t since[MAX_VCPUS];
static FILE *out;

/* @later: instructions of the block that are counted already and not executed yet */
static uint64_t now(unsigned int vcpu, void *later)
{
	return qemu_plugin_u64_get(executed, vcpu) - (uintptr_t)later;
}

static void at_begin(unsigned int vcpu, void *later)
{
	since[vcpu] = now(vcpu, later);
}

static void at_end(unsigned int vcpu, void *later)
{
	if (since[vcpu])
		fprintf(out, "%" PRIu64 "\n", now(vcpu, later) - since[vcpu]);
	fflush(out);
	since[vcpu] = 0;
}

static vcpu_callback callback_of(const struct qemu_plugin_insn *insn)
{
	unsigned char bytes[3] = {};

	if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) != sizeof(bytes))
		return NULL;
	if (!memcmp(bytes, "\x4d\x87\xf6", 3))
		return at_begin;
	if (!memcmp(bytes, "\x4d\x87\xed", 3))
		return at_end;
	return NULL;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, executed,
							  qemu_plugin_tb_n_insns(tb));
	call_at_insns(tb, callback_of);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4))
		return -1;
	out = fopen(argv[0] + 4, "w");
	if (!out)
		return -1;
	executed.scoreboard = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
