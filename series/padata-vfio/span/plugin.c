// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A TCG plugin: the instructions that each vCPU executes between two markers.
 *
 * The marker is "xchg %r15, %r15" in the guest.  At each of them a line goes to
 * out=FILE: what every vCPU has executed since the last one.  Their sum is the
 * work, the largest is the span: no number of CPUs makes the job shorter.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "qemu_plugin.h"

EXPORT int qemu_plugin_version = 4;

static struct counter executed;
static uint64_t seen[MAX_VCPUS];
static FILE *out;

static void at_marker(unsigned int vcpu, void *data)
{
	int nr_vcpus = qemu_plugin_num_vcpus();

	for (int i = 0; i < nr_vcpus && i < MAX_VCPUS; i++) {
		uint64_t now = qemu_plugin_u64_get(executed, i);

		fprintf(out, "%" PRIu64 "%c", now - seen[i], i + 1 < nr_vcpus ? ' ' : '\n');
		seen[i] = now;
	}
	fflush(out);
}

static bool is_marker(const struct qemu_plugin_insn *insn)
{
	static const char xchg_r15_r15[] = { 0x4d, 0x87, 0xff };
	char bytes[3];

	return qemu_plugin_insn_data(insn, bytes, 3) == 3 && !memcmp(bytes, xchg_r15_r15, 3);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t nr_insns = qemu_plugin_tb_n_insns(tb);

	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD_U64, executed, nr_insns);
	for (size_t i = 0; i < nr_insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_marker(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_marker, CB_NO_REGS, NULL);
	}
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
