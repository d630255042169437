/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What TCG plugins use of version 4 of QEMU's interface (QEMU 10), whose header is
 * in no Debian package.
 */
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_VCPUS 256

typedef uint64_t plugin_id;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct counter {
	void *scoreboard;
	size_t offset;
};

enum { CB_NO_REGS = 0, INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
					   void (*cb)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int, void *), int flags,
					    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int, void *), int flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
						       struct counter counter, uint64_t add);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
int qemu_plugin_num_vcpus(void);
void *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_get(struct counter counter, unsigned int vcpu);

typedef void (*vcpu_callback)(unsigned int vcpu, void *data);

/*
 * Call what callback_of() returns at each instruction that it returns something for.
 * @data is how many instructions of the block are not executed yet: a counter that
 * is registered for the block has them already.
 */
static inline void call_at_insns(struct qemu_plugin_tb *tb,
				 vcpu_callback (*callback_of)(const struct qemu_plugin_insn *))
{
	size_t nr_insns = qemu_plugin_tb_n_insns(tb);

	for (size_t i = 0; i < nr_insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		vcpu_callback callback = callback_of(insn);

		if (callback)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, CB_NO_REGS,
							       (void *)(nr_insns - i));
	}
}

#endif
