# SPDX-License-Identifier: GPL-2.0-only
"""Measures arm64-stage2-unmap: the latency of a real-time task while KVM walks stage 2, and the
number of instructions that these walks take.

Every boot runs with -icount: the guest's time is the number of instructions executed (1 ns = 1
instruction). Boots that run at the same time therefore do not affect each other's figures.
"""

import re

from kit.bench.measure import Job, commands, digest, row
from kit.errors import KitError, fail
from kit.host import host_cpus
from kit.model import Limits, Options
from kit.paths import shown
from kit.process import Pool, say
from kit.vm import guest

ARCH = 'arm64'
PROGRAMS = [
    'arm64/stage2_unmap_perf',
    'arm64/stage2_unmap_nested',
    'kvm_page_table_test',
    'dirty_log_perf_test',
]
MODES = {  # {name: Options of its guests}; by default, a guest has 4 GiB and one CPU
    'vhe': {},
    'nvhe': {'append': 'kvm-arm.mode=nvhe'},
    'protected': {'append': 'kvm-arm.mode=protected'},
    'nested': {'append': 'kvm-arm.mode=nested'},
    'rt': {},
    # During the walk, three vCPUs take page faults. Each vCPU runs on a separate CPU.
    '3 vCPUs': {'cpus': 4},
    # The task runs on the CPU of a vCPU. The vCPU writes the memory, so it waits for mmu_lock.
    'waiter': {'cpus': 2},
}
FLAVOURS = {'rt': 'plain+rt'}
WORDS = {
    'delete': 'slot deleted',
    'discard': 'DONTNEED',
    'close': 'VM closed',
    'log': 'log on',
    'split': 'eager split',
    'get-log': 'log read',
    'clear-log': 'log cleared',
    'flush': 'set/way flush',
    'nested-log': 'log read, L2',
}
COSTS = {
    'unmap_instructions': 'unmap alone',
    'unmap_instructions_kvm': "unmap, KVM's part",
    'unmap_instructions_locked': 'unmap, lock held',
    'unmap_instructions_task': 'unmap, RT task',
    'nested_log_instructions': 'log read, L2',
    'nested_close_instructions': 'VM closed, L2',
    'dirty_log_instructions': 'dirty_log_perf_test',
    'page_table_test_instructions': 'page_table_test',
    'l2_progress': 'passes of an L2 guest',
    'range_invalidations': 'invalidations',
    'faulting_vcpus_time': 'total',
    'lock_handovers': 'walks',
    'faults_per_s': 'faults/s',
    'outside_retries': 'retries',
    'notifier_instructions': 'notifier',
    'table_free_instructions': 'tables freed',
}
HIGHER = ('l2_progress', 'faults_per_s')

# {kind: (metric, unit, options of stage2_unmap_perf, name of the figure in its output, factor)}
KINDS = {
    'latency': ('wakeup_latency_us', 'us', '-t', 'wakeup_latency_us', 1),
    'unmap': ('unmap_instructions', 'instructions', '', 'unmap_us', 1000),
    'task': ('unmap_instructions_task', 'instructions', '-t', 'unmap_us', 1000),
    'kvm': ('unmap_instructions_kvm', 'instructions', '-n', 'notifier_us', 1000),
    'locked': ('unmap_instructions_locked', 'instructions', '-l', 'locked_us', 1000),
    'waiter': ('wakeup_latency_us', 'us', '-w', 'wakeup_latency_us', 1),
    'page': ('notifier_instructions', 'instructions', '-n -d 1', 'notifier_us', 1000),
    'block': ('notifier_instructions', 'instructions', '-n -d 512', 'notifier_us', 1000),
    'small': ('unmap_instructions', 'instructions', '', 'unmap_us', 1000),
    'free': ('table_free_instructions', 'instructions', '-F', 'free_us', 1000),
    'retries': ('outside_retries', 'count', '-f 3 -c', 'retries', 1),
    'walk': ('operation_instructions', 'instructions', '', 'unmap_us', 1000),
    'time': ('faulting_vcpus_time', 'instructions', '-f 3 -c', 'unmap_us', 1000),
    'walks': ('lock_handovers', 'count', '-f 3 -c', 'walks', 1),
    'flushes': ('range_invalidations', 'count', '-f 3 -c', 'range_invalidations', 1),
    'faults': ('faults_per_s', 'faults/s', '-f 3 -c', 'faults', 10**6),  # see reader()
}

TRACED = re.compile(' -[nlF]( |$)')  # options that print the time of a traced function

# {kind: further fields of a row, besides its operation and size}
FIELDS = {
    'latency': {'cpu_of': 'holder'},
    'waiter': {'cpu_of': 'waiter'},
    'page': {'pages': 1},
    'block': {'pages': 512},
    'small': {'host_pages': '4k'},
}

# {(mode, CPU) of a boot: its measurements}. A measurement is (kind, operation, MiB of memory), or
# (kind, operation, MiB, number of memslots). The costs of an unmap are measured with the operation
# `discard`: those of `delete` would include a grace period.
BOOTS = {
    ('vhe', 'max'): [
        ('latency', 'delete', 128),
        ('latency', 'delete', 512),
        ('latency', 'delete', 1024),
        ('latency', 'delete', 2048),
        ('latency', 'discard', 1024),
        ('latency', 'discard', 2048),
        ('latency', 'discard', 2048, 4),
        ('latency', 'close', 1024),
        ('latency', 'log', 1024),
        ('latency', 'split', 1024),
        ('latency', 'get-log', 1024),
        ('latency', 'clear-log', 1024),
        ('unmap', 'discard', 256),
        ('task', 'discard', 256),
        ('walk', 'log', 256),
        ('walk', 'split', 256),
        ('walk', 'get-log', 256),
        ('walk', 'clear-log', 256),
        ('kvm', 'discard', 256),
        ('locked', 'discard', 1024),
        ('page', 'discard', 16),
        ('block', 'discard', 16),
        ('small', 'discard', 256),
        ('free', 'discard', 256),
    ],
    ('nvhe', 'max'): [
        ('latency', 'delete', 128),
        ('latency', 'delete', 1024),
        ('latency', 'log', 1024),
        ('latency', 'split', 1024),
        ('latency', 'get-log', 256),
        ('latency', 'clear-log', 1024),
        ('unmap', 'discard', 16),
        ('task', 'discard', 16),
    ],
    ('vhe', 'cortex-a76'): [
        ('latency', 'delete', 128),
        ('latency', 'delete', 1024),
        ('latency', 'flush', 1024),
        ('unmap', 'discard', 16),
        ('task', 'discard', 16),
        ('walk', 'flush', 64),
        ('page', 'discard', 16),
        ('block', 'discard', 16),
    ],
    ('nvhe', 'cortex-a76'): [
        ('latency', 'delete', 128),
        ('latency', 'flush', 1024),
        ('unmap', 'discard', 16),
        ('task', 'discard', 16),
    ],
    ('protected', 'max'): [
        ('latency', 'delete', 128),
        ('latency', 'delete', 1024),
        ('latency', 'log', 1024),
        ('latency', 'get-log', 256),
        ('latency', 'clear-log', 1024),
        ('unmap', 'discard', 16),
        ('task', 'discard', 16),
        ('walk', 'log', 64),
    ],
    ('rt', 'max'): [
        ('latency', 'delete', 1024),
        ('latency', 'discard', 1024),
        ('latency', 'log', 1024),
        ('latency', 'get-log', 256),
        ('latency', 'clear-log', 1024),
        ('unmap', 'discard', 16),
        ('task', 'discard', 16),
    ],
    ('nested', 'max'): [],
    ('waiter', 'max'): [
        ('waiter', 'log', 1024),
        ('waiter', 'split', 1024),
        ('waiter', 'get-log', 1024),
        ('waiter', 'clear-log', 1024),
    ],
    ('waiter', 'cortex-a76'): [('waiter', 'delete', 128)],
    # FWB without range TLBI
    ('vhe', 'neoverse-v1'): [
        ('latency', 'delete', 1024),
        ('unmap', 'discard', 256),
        ('locked', 'discard', 1024),
    ],
    ('3 vCPUs', 'max'): [
        (kind, operation, 1024)
        for operation in ('discard', 'delete')
        for kind in ('time', 'walks', 'flushes', 'faults', 'retries')
    ],
}


def one(pattern, times=1):
    """Reads the lowest of the figures that the output has in such lines."""
    line = re.compile(rf'^(?:# )?{pattern} ([\d.]+)$', re.M)
    return lambda text: times * min(map(float, line.findall(text)))


def instructions(text):
    """The sum of all times that an upstream test prints, in ns."""
    found = re.findall(r'time: (\d+)\.(\d{9})s', text)
    return sum(int(seconds) * 10**9 + int(ns) for seconds, ns in found) or fail(
        'an upstream test printed no times'
    )


NESTED = {'operation': 'nested-log', 'mib': 1024, 'slots': 1}
LOGGED = 'stage2_unmap_nested -t what_l2_writes_is_logged'
UPSTREAM = {'operation': 'upstream test'}
# measurements with other commands, in the form that jobs() returns
OTHERS = {
    ('vhe', 'max'): [
        *(
            (
                'range_invalidations',
                'count',
                {'operation': 'delete', 'mib': 2048, 'slots': 1, 'mapped_pages': mapped},
                f'stage2_unmap_perf -o delete -m 2048 -p {pages} -c',
                one('range_invalidations'),
            )
            for mapped, pages in ((0, 0), (1, 1000000))
        ),
        (
            'dirty_log_instructions',
            'instructions',
            UPSTREAM,
            'dirty_log_perf_test -m 3 -v 1 -b 16M -i 2',
            instructions,
        ),
        (
            'page_table_test_instructions',
            'instructions',
            UPSTREAM,
            'kvm_page_table_test -m 3 -v 1 -b 16M',
            instructions,
        ),
    ],
    ('nested', 'max'): [
        (
            'l2_progress',
            'passes',
            {'operation': 'discard', 'mib': 4, 'slots': 1},
            'stage2_unmap_nested -t l2_gets_on_while_the_host_unmaps',
            one('l2_passes'),
        ),
        ('wakeup_latency_us', 'us', NESTED, LOGGED, one('wakeup_latency_us')),
        ('nested_log_instructions', 'instructions', NESTED, LOGGED, one('dirty_log_us', 1000)),
        ('nested_close_instructions', 'instructions', NESTED, LOGGED, one('close_us', 1000)),
    ],
}


def perf(mode, operation, mib, slots, more=''):
    # The option -b maps blocks and splits them, which is faster than mapping pages. It is not used
    # if the split itself is measured, in protected mode (the hypervisor does not split), and with
    # PREEMPT_RT (there are no transparent huge pages).
    split = '' if mode in ('protected', 'rt') or operation == 'split' else '-b '
    return f'stage2_unmap_perf -o {operation} -m {mib} -s {slots} {split}{more}'.rstrip()


def reader(kind):
    *_, line, times = KINDS[kind]
    if kind == 'faults':
        return lambda text: one(line, times)(text) / one('unmap_us')(text)
    return one(line, times)


def jobs(mode, cpu, *operations):
    """[(metric, unit, fields of the row, command, function that reads its output)] of a boot. If
    `operations` are given, only those."""
    found = []
    for kind, operation, mib, *several in BOOTS[mode, cpu]:
        metric, unit, more, *_ = KINDS[kind]
        (slots,) = several or (1,)
        command = perf(mode, operation, mib, slots, more)
        where = {'operation': operation, 'mib': mib, 'slots': slots, **FIELDS.get(kind, {})}
        if kind in ('small', 'page'):  # -b would give the host huge pages, not pages of 4K
            command = command.replace(' -b', '')
        found.append((metric, unit, where, command, reader(kind)))
    found += OTHERS.get((mode, cpu), [])
    return [job for job in found if not operations or job[2]['operation'] in operations]


def boot(bench, tree, image, files, mode, cpu, *operations):
    """Boots one kernel. Returns (figures of jobs(mode, cpu, *operations), accelerator)."""
    planned = jobs(mode, cpu, *operations)
    script, commands = ['#!/bin/sh'], list(dict.fromkeys(command for *_, command, _ in planned))
    for number, command in enumerate(commands):
        # A traced function may be interrupted by a tick, so it is traced three times.
        times = 3 if TRACED.search(command) else 1
        script.append(f'echo "## {number}"' + f'; {command} || exit' * times)
    job = '\n'.join([*script, ''])
    files = [file for file in files if file.name in job]
    options = Options(
        memory='4G',
        icount=True,
        qemu=() if cpu == 'max' else ('-cpu', cpu),
        limits=Limits(silence=900, total=3600),
        **MODES[mode],
    )

    what = f'{tree}, {mode}, {cpu}'

    def measured():
        ended = bench.run_guest(ARCH, image, job, files, options, name='bench', what=what)
        if ended.status != guest.OK:
            say(ended.detail)
            raise KitError(f'{what}: {ended.message}', ended.status)
        texts = dict(re.findall(r'^## (\d+)\n(.*?)(?=^## |\Z)', ended.results(), re.M | re.S))
        figures = []
        for metric, *_, command, read in planned:
            try:
                figures.append(read(texts[str(commands.index(command))]))
            except (KeyError, ValueError):
                raise KitError(
                    f'{what}: no {metric} of `{command}` in {shown(ended.folder / "results")}'
                ) from None
        return figures, ended.accelerator

    return bench.journaled(what, (repr(options), job, digest(image, *files)), measured)


def measured(bench, *wheres):
    """(rows, accelerator) of these boots. Each kernel boots once, as -icount gives the same figures
    every time."""
    files = [bench.selftest(ARCH, f'kvm/{program}') for program in PROGRAMS]
    keys = [(tree, *where) for where in wheres for tree in ('base', 'patched')]
    images = {
        (tree, mode): bench.build(ARCH, FLAVOURS.get(mode, 'plain'), tree)
        for tree, mode, *_ in keys
    }
    with Pool(host_cpus()) as pool:
        boots = {
            key: pool.submit(boot, bench, key[0], images[key[:2]], files, *key[1:]) for key in keys
        }
        found = {key: each.result() for key, each in boots.items()}
    rows = []
    for mode, cpu, *operations in wheres:
        for number, (metric, unit, fields, *_) in enumerate(jobs(mode, cpu, *operations)):
            before, after = (
                [[found[tree, mode, cpu, *operations][0][number]]] for tree in ('base', 'patched')
            )
            better = 'higher' if metric in HIGHER else 'lower'
            rows.append(row(metric, before, after, unit, better, **fields, mode=mode, cpu=cpu))
            # the base frees tables during the walk, so this cost cannot be measured separately
            if metric == 'table_free_instructions':
                rows[-1] |= dict.fromkeys(('base', 'ratio', 'min', 'max'))
    return rows, found[keys[0]][1]


def part(where):
    return lambda bench, **_: measured(bench, where)


# {value of PART=: a boot with some of its operations}. The bench.json of each posting has these
# parts:
#     posting 01: alone-01
#     posting 02: alone-02, vhe-cortex-a76, vhe-neoverse-v1, protected-max
#     posting 03: alone-03
#     posting 04: alone-04, waiter-max
#     posting 05: protected-max
ALONE = {
    'alone-01': ('vhe', 'max', 'discard', 'delete', 'close'),
    'alone-02': ('vhe', 'max', 'log'),
    'alone-03': ('3 vCPUs', 'max', 'discard'),
    'alone-04': ('vhe', 'max', 'log', 'split', 'get-log', 'clear-log'),
}
# other values of PART=: vhe-max, 3-vCPUs-max ...
PARTS = {'-'.join(where).replace(' ', '-'): part(where) for where in BOOTS} | {
    name: part(where) for name, where in ALONE.items()
}


def measure(bench, **_):
    return measured(bench, *BOOTS)


def hardware(bench, arch):
    """A machine's times are compared with the guests' instructions in the modes `vhe` and `waiter`
    on the CPU `max`, whichever mode and CPU the machine has. Left out: more than 1 GiB of memory,
    which the machine may lack; the time to free tables, which the base does not have; programs that
    print no figures."""
    if arch != ARCH:
        return [], []
    found, cpu = [], 'max'
    for mode in ('vhe', 'waiter'):
        for (kind, *_), (metric, _, where, command, _) in zip(BOOTS[mode, cpu], jobs(mode, cpu)):
            if where['mib'] <= 1024 and kind != 'free':
                fields = {'metric': metric, **where, 'mode': mode, 'cpu': cpu, 'unit': 'us'}
                found.append(Job(command, {KINDS[kind][3]: fields}, 'kvm'))
    return [bench.selftest(ARCH, f'kvm/{PROGRAMS[0]}')], found


HEAD = ['what', 'mode', 'CPU']


def size(each):
    return f'{each["mib"] // 1024}G' if each['mib'] >= 1024 else f'{each["mib"]}M'


def describe(each):
    """The cells that identify a row."""
    if each['metric'] == 'wakeup_latency_us':
        slots = f', {each["slots"]} slots' if each['slots'] > 1 else ''
        what = f'{WORDS[each["operation"]]}, {size(each)}{slots}, us'
    else:
        what = COSTS.get(each['metric'], each['metric'].replace('_', ' '))
        if each['metric'] == 'operation_instructions':
            what = WORDS[each['operation']]
        if 'mib' in each and each['metric'].startswith(('unmap', 'operation')):
            what += f', {size(each)}'
        if each['mode'] == '3 vCPUs':
            what = f'{WORDS[each["operation"]]} {size(each)} {what}'
        if 'mapped_pages' in each:
            what += f', {each["mapped_pages"]} mapped'
        if 'host_pages' in each:
            what += f', host pages of {each["host_pages"].upper()}'
        if 'pages' in each:
            what += f', {each["pages"]} pages' if each['pages'] > 1 else ', a page'
    return [what, each['mode'], each['cpu']]


LATENCY = 'wakeup_latency_us'
# {number of a posting, or '' for the whole topic: rows of its cover letter}, at most six
COVER = {
    '': [
        (LATENCY, 'close', 'vhe', 'max'),
        (LATENCY, 'discard', 'vhe', 'max'),
        ('unmap_instructions_locked', 'discard', 'vhe', 'max'),
        (LATENCY, 'delete', 'vhe', 'cortex-a76'),
        (LATENCY, 'delete', 'protected', 'max'),
        (LATENCY, 'get-log', 'waiter', 'max'),
    ],
    '01': [
        (LATENCY, 'close', 'vhe', 'max'),
        ('notifier_instructions', 'discard', 'vhe', 'max'),  # two rows: 1 and 512 pages
        ('unmap_instructions', 'discard', 'vhe', 'max'),  # two rows: huge and 4K pages of the host
        ('unmap_instructions_locked', 'discard', 'vhe', 'max'),
    ],
    '02': [
        ('notifier_instructions', 'discard', 'vhe', 'cortex-a76'),  # two rows: 1 and 512 pages
        (LATENCY, 'log', 'vhe', 'max'),
        (LATENCY, 'delete', 'protected', 'max'),
        (LATENCY, 'delete', 'vhe', 'cortex-a76'),
        (LATENCY, 'delete', 'vhe', 'neoverse-v1'),
    ],
    '03': [
        ('faulting_vcpus_time', 'discard', '3 vCPUs', 'max'),
        ('faults_per_s', 'discard', '3 vCPUs', 'max'),
        ('outside_retries', 'discard', '3 vCPUs', 'max'),
    ],
    '04': [
        (LATENCY, 'get-log', 'vhe', 'max'),
        (LATENCY, 'clear-log', 'waiter', 'max'),
        (LATENCY, 'clear-log', 'vhe', 'max'),
        (LATENCY, 'get-log', 'waiter', 'max'),
        (LATENCY, 'split', 'waiter', 'max'),
        (LATENCY, 'split', 'vhe', 'max'),
    ],
    '05': [
        ('unmap_instructions', 'discard', 'protected', 'max'),
        ('unmap_instructions_task', 'discard', 'protected', 'max'),
        (LATENCY, 'delete', 'protected', 'max'),
    ],
}


def cover(each):
    """Does the cover letter of the posting have this row? It has a latency only if the size is
    1 GiB, or if the latency has become longer."""
    posting = re.search(r'TOPIC=[\w-]+/(\d+)', each.get('command', ''))
    where = each['metric'], each.get('operation'), each['mode'], each['cpu']
    return where in COVER[posting[1] if posting else ''] and (
        each['metric'] != LATENCY or each['mib'] == 1024 or each['patched'] > each['base']
    )


def drawn(each):
    """Does the picture have this row? It has latencies for 1 GiB of memory, and costs in three of
    the modes."""
    if each['metric'] == 'wakeup_latency_us':
        return each['mib'] == 1024
    if each['unit'] == 'count' or each['cpu'] != 'max' or each['base'] is None:
        return False
    return each['mode'] in ('vhe', 'nested', '3 vCPUs')


def note(data):
    return (
        f'Base {data["base"]}, accelerator {data["accelerator"]} with -icount (1 ns = 1 '
        'instruction). The host has two CPUs in the mode "waiter", four in the mode "3 vCPUs", and '
        'one in all other modes. Memory is in 4K pages. Rows in us (microseconds) show the worst '
        'wake-up latency of a SCHED_FIFO task with a period of 200 us. The task runs on the CPU '
        'that walks; in the mode "waiter", it runs on the CPU of a vCPU. Other rows are in '
        'instructions, or in the unit that they state. ratio = base/patched. For numbers of passes '
        'or faults, ratio = patched/base. log: the dirty log. L2: the VM runs a nested guest. '
        f'{commands(data)}'
    )
