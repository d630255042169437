# SPDX-License-Identifier: GPL-2.0-only
"""make hardware: the archive, the script's errors, and the figures of a machine."""

import contextlib
import io
import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest
from itertools import product
from pathlib import Path
from unittest import mock

from kit import topics
from kit.bench import measure, provenance
from kit.bench.measure import TREES
from kit.errors import KitError
from kit.hardware import build, machine
from kit.mail import mail
from tests.support import ARM64, X86_64

FACTS = dict.fromkeys(machine.FACTS, 'some') | {'cpu': 'A CPU', 'nodes': 2, 'cpus': 64}
FACTS['memory_kib'] = 128 << 20
# VFIO_NOIOMMU selects GENERIC_PT, without which arm64 has no mock device
ARM64_ALSO = dict.fromkeys(('VFIO_NOIOMMU', 'VIRTUALIZATION', 'KVM'), 'y')
ARM64_ALSO |= dict.fromkeys(('FUNCTION_TRACER', 'FUNCTION_GRAPH_TRACER', 'DYNAMIC_FTRACE'), 'y')
ARM64_CPU = ('processor', 0), ('CPU implementer', '0x41'), ('CPU part', '0xd99')


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Jobs(InFolder):
    def test_their_rows_are_those_of_the_records(self):
        bench = mock.Mock(selftest=lambda *_: Path('test'), program=lambda *_: Path('program'))
        for topic, arch in product(topics.measured(), build.ARCHS):
            module, record = topics.benchmark(topic), measure.load(topic)
            if not hasattr(module, 'hardware') or not record:
                continue
            known = [machine.key_of(row) for row in record['rows']]
            programs, jobs = module.hardware(bench, arch)
            self.assertEqual(bool(programs), bool(jobs))
            for job in jobs:
                device = 'device' if '$' in job.command else 'mock'
                self.assertIn(job.device, ('any', 'kvm', device))
                for row in job.rows.values():
                    self.assertEqual(known.count(machine.key_of(row)), 1, row)
                    self.assertIn(row['unit'], ('s', 'ns', 'us', 'IPIs'))
                    self.assertEqual(row.get('arch', arch), arch)
            places = [(j.device, machine.key_of(row)) for j in jobs for row in j.rows.values()]
            self.assertEqual(len(places), len(set(places)))

    def test_arm64_has_rows_of_its_own_topic(self):
        bench = mock.Mock(selftest=lambda *_: Path('test'))
        stage2 = topics.benchmark('arm64-stage2-unmap')
        self.assertEqual(stage2.hardware(bench, 'x86_64'), ([], []))
        jobs = {job.command: job for job in stage2.hardware(bench, 'arm64')[1]}
        latency = jobs['stage2_unmap_perf -o delete -m 1024 -s 1 -b -t']
        self.assertEqual(latency.device, 'kvm')
        row = latency.rows['wakeup_latency_us']
        self.assertEqual((row['metric'], row['mode']), ('wakeup_latency_us', 'vhe'))
        unmap = jobs['stage2_unmap_perf -o discard -m 256 -s 1 -b'].rows['unmap_us']
        self.assertEqual((unmap['metric'], unmap['unit']), ('unmap_instructions', 'us'))

    def test_the_archive(self):
        jobs = [('one', measure.Job('program $BDF', {'map': {'metric': 'x', 'unit': 's'}}))]
        lines, rows = build.tables(jobs)
        self.assertEqual(lines, '1\tany\tone\tprogram $BDF\n')
        self.assertEqual(rows, '1\tmap\t{"metric": "x", "unit": "s"}\n')
        path, program = self.folder / 'some/a.tar', self.folder / 'program'
        program.write_text('x')
        build.pack(path, {'measure': program, 'a.deb': program}, {'jobs': lines})
        with tarfile.open(path) as archive:
            self.assertEqual(
                {each.name: each.mode for each in archive.getmembers()},
                {'hardware/measure': 0o755, 'hardware/a.deb': 0o644, 'hardware/jobs': 0o644},
            )
            self.assertEqual(archive.extractfile('hardware/jobs').read().decode(), lines)
        self.assertNotIn("'", build.code())
        self.assertEqual(list(json.loads(build.code())['series']), topics.order())


class Config(InFolder):
    def test_the_users_configuration(self):
        path = self.folder / 'config'
        with self.assertRaisesRegex(KitError, 'config: no such file; CONFIG='):
            build.read_given(X86_64, path)
        path.write_bytes(b'\x7fELF\xff')
        with self.assertRaisesRegex(KitError, 'not the configuration of a kernel for x86_64'):
            build.read_given(X86_64, path)
        path.write_text('# x\nCONFIG_X86_64=y\nCONFIG_VFIO=m\n')
        with self.assertRaisesRegex(KitError, 'not the configuration of a kernel for arm64'):
            build.read_given(ARM64, path)
        given = build.read_given(X86_64, path)
        wanted = {'VFIO': 'y', 'GUP_TEST': 'y', 'LOCALVERSION': '""'}
        self.assertEqual(build.added(given, wanted), {**wanted, 'VFIO': 'm'})

    def test_architectures(self):
        wanted = build.wanted_for(X86_64)
        self.assertEqual((wanted['IOMMUFD'], wanted.get('KVM')), ('y', None))
        self.assertEqual(build.wanted_for(ARM64), {**wanted, **ARM64_ALSO})
        path = self.folder / 'config'
        path.write_text('\nCONFIG_ARM64=y\n')
        self.assertIn('ARM64', build.read_given(ARM64, path))
        with self.assertRaisesRegex(KitError, 'ARCH=powerpc: known are x86_64 and arm64'):
            build.main(arch='powerpc')

    def configured(self, final):
        folder = self.folder / 'out'
        wanted = {'A': 'y', 'B': 'y', 'C': 'n', 'D': '""'}

        def step(*_, **__):
            (folder / '.config').write_text(final)

        with (
            mock.patch.object(build, 'step', step),
            mock.patch.object(build, 'make', lambda *_: ([], {})),
            mock.patch.object(build, 'wanted_for', lambda _: wanted),
        ):
            build.configure(X86_64, self.folder, folder, '\nCONFIG_A=m\n')

    def test_a_symbol_that_cannot_be_set(self):
        good = 'CONFIG_A=m\nCONFIG_B=y\nCONFIG_D=""\n'
        self.configured(good)
        self.configured(good.replace('CONFIG_A=m', 'CONFIG_A=y').replace('CONFIG_D=""\n', ''))
        for bad in (
            good.replace('CONFIG_B=y', '# CONFIG_B is not set'),
            good.replace('D=""', 'D="-mine"'),
            good + 'CONFIG_C=y\n',
        ):
            with self.subTest(bad), self.assertRaisesRegex(KitError, 'cannot be set'):
                self.configured(bad)


class Script(InFolder):
    """./measure in a temporary folder. The test's own programs replace id, uname, pin_span and
    modprobe, and a folder replaces sysfs."""

    DEVICE, OTHER = '0000:01:00.0', '0000:01:00.1'

    def setUp(self):
        super().setUp()
        # the script's folder is the first in its PATH
        self.program('id', 'echo 0')
        self.program('uname', 'echo 7-base')
        self.program('pin_span', 'echo map 12')
        self.program('modprobe', 'exit 1')
        about = 'base=\'7-base\'\npatched=\'7-patched\'\nseries=\'{"series": {"a": "1"}}\'\n'
        self.write('about', about)
        self.write('jobs', '1\tany\ta\tpin_span 1\n2\tmock\ta\tpin_span mock\n3\tdevice\ta\tno\n')
        rows = '{"metric": "x", "unit": "ns"}', '{"metric": "y", "unit": "s"}'
        self.write('rows', f'1\tmap\t{rows[0]}\n2\tmap\t{rows[1]}\n')
        (self.folder / 'measure').symlink_to(build.HERE / 'measure.sh')
        self.mm, self.pci = Path('sys/kernel/mm'), Path('sys/bus/pci/devices')
        self.thp = self.write(self.mm / 'transparent_hugepage/enabled', 'always madvise [never]\n')
        huge = self.mm / 'hugepages/hugepages-2048kB/nr_hugepages'
        self.huge = self.write(huge, '7\n')
        self.write('sys/devices/system/cpu/vulnerabilities/one', 'Not "affected"\n')

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name, text):
        self.write(name, f'#!/bin/sh\n{text}\n').chmod(0o755)

    def start(self, *words):
        return subprocess.Popen(
            ['sh', self.folder / 'measure', *words],
            cwd=self.folder,
            env={
                **os.environ,
                'MEASURE_SYS': str(self.folder / 'sys'),
                'MEASURE_KVM': str(self.folder / 'kvm'),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_it(self, *words):
        with self.start(*words) as script:
            said, errors = script.communicate()
        return script.returncode, said, errors

    def fails(self, says, *words):
        status, _, errors = self.run_it(*words)
        self.assertRegex(errors, f'^measure: .*{says}.*\n$')
        self.assertEqual(status, 1)

    def entries(self):
        return json.loads((self.folder / 'machine.json').read_text())

    def restored(self):
        self.assertEqual(self.huge.read_text(), '7\n')
        # in a real file, the kernel would move the brackets back to the word `never`
        self.assertIn(self.thp.read_text(), ('always madvise [never]\n', 'never\n'))

    def test_it_adds_to_one_file(self):
        for name in 'base', 'patched':
            self.program('uname', f'echo 7-{name}')
            status, said, errors = self.run_it('--quick')
            self.assertEqual((status, errors), (0, ''))
            self.assertIn('machine.json has the figures of this kernel', said)
            self.restored()
        head, *entries = self.entries()
        self.assertEqual(head, {'series': {'a': '1'}})
        facts = [each['facts'] for each in entries if 'facts' in each]
        self.assertEqual(set(facts[0]), set(machine.FACTS))
        self.assertEqual((len(facts), facts[0]['mitigations']), (2, 'one: Not "affected";'))
        figures = [each for each in entries if 'value' in each]
        self.assertEqual(len(figures), 2 * 3 * 2)
        self.assertEqual({each['device'] for each in figures}, {'', 'mock'})
        self.assertEqual({each['value'] for each in figures}, {12})
        known = machine.load(self.folder / 'machine.json')
        self.assertEqual(
            set(known.figures), {('a', (('metric', 'x'),), ''), ('a', (('metric', 'y'),), 'mock')}
        )

    def test_a_kernel_without_numa_has_one_node(self):
        for nodes in 1, 2:
            self.assertEqual(self.run_it('--quick')[0], 0)
            facts = [each['facts'] for each in self.entries() if 'facts' in each]
            self.assertEqual(facts[-1]['nodes'], nodes)
            for number in range(2):
                node = self.folder / f'sys/devices/system/node/node{number}'
                node.mkdir(parents=True, exist_ok=True)

    def test_a_machine_with_a_device_tree(self):
        self.write('sys/firmware/devicetree/base/model', 'Board "2"\0')
        self.assertEqual(self.run_it('--quick')[0], 0)
        facts = [each['facts'] for each in self.entries() if 'facts' in each]
        self.assertEqual(facts[-1]['product'], 'Board "2"')

    def test_a_cpu_without_a_name_has_its_numbers(self):
        lines = ''.join(f'{name} : {value}\n' for name, value in ARM64_CPU)
        file = self.write('cpuinfo', lines + lines)
        self.program('cat', f'[ "$1" != /proc/cpuinfo ] || set -- {file}; exec /bin/cat "$@"')
        for name, shown in ('Cortex-X9', 'Cortex-X9'), ('-', 'CPU implementer 0x41 CPU part 0xd99'):
            self.program('lscpu', f"echo 'Model name:   {name}'")
            self.assertEqual(self.run_it('--quick')[0], 0)
            facts = [each['facts'] for each in self.entries() if 'facts' in each]
            self.assertEqual(facts[-1]['cpu'], shown)

    def test_the_mode_of_kvm(self):
        for line, mode in (
            ('[    0.391170] kvm [1]: Hyp nVHE mode initialized successfully', 'Hyp nVHE'),
            ('kvm [1]: VHE+NV2 mode initialized successfully', 'VHE+NV2'),
            ('kvm [1]: nv: 570 coarse grained trap handlers', ''),
        ):
            self.program('dmesg', f"echo '{line}'")
            self.assertEqual(self.run_it('--quick')[0], 0)
            facts = [each['facts'] for each in self.entries() if 'facts' in each]
            self.assertEqual(facts[-1]['kvm_mode'], mode)

    def test_kvm(self):
        self.write('jobs', '1\tany\ta\tpin_span 1\n2\tkvm\tb\tpin_span mock\n')
        _, said, errors = self.run_it('--quick')
        self.assertEqual(errors, '')
        self.assertIn('/kvm, KVM is not measured\n', said)
        self.assertEqual({each['topic'] for each in self.entries() if 'value' in each}, {'a'})
        self.write('kvm', '')
        _, said, errors = self.run_it('--quick')
        self.assertNotIn('KVM is not measured', said)
        figures = [each for each in self.entries() if each.get('topic') == 'b']
        self.assertEqual([each['device'] for each in figures], [''] * 3)

    def test_signals(self):
        self.program(
            'pin_span', '[ "$1" = mock ] || { echo map 5; exit; }; [ "$3" ] || exec sleep 60'
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A background job inherits ignored signals, and a shell cannot trap such signals.
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_DFL))
            with self.start('--quick') as script:
                path = self.folder / 'machine.json'
                while not path.exists() or '"value"' not in path.read_text():
                    time.sleep(0.01)
                script.send_signal(number)
                errors = script.communicate()[1]
            self.assertEqual(script.returncode, 130)
            self.assertEqual(errors, 'measure: interrupted; machine.json has what was measured\n')
            self.assertEqual(self.entries()[-1]['value'], 5)
            self.restored()
            path.unlink()

    def test_a_program_that_fails(self):
        self.program('pin_span', 'echo map 3; [ "$1" = mock ] || { echo why >&2; exit 2; }')
        status, _, errors = self.run_it('--quick')
        self.assertEqual(status, 1)
        self.assertEqual(errors.count('measure: pin_span 1: exit status 2: map 3\n'), 3)
        self.assertIn('some programs failed; machine.json has the figures of the others', errors)
        self.restored()

    def test_errors(self):
        self.fails('--slow is neither an option nor a BDF', '--slow')
        self.fails('--output needs a file', '--output')
        self.program('id', 'echo 1000')
        self.fails('root is needed')
        self.program('id', 'echo 0')
        self.program('uname', 'echo 6.12-amd64')
        self.fails('the kernel 6.12-amd64 is neither 7-base nor 7-patched')
        self.program('uname', 'echo 7-patched')
        self.write('machine.json', '[\n{"series": {"a": "2"}}\n]\n')
        self.fails('machine.json has figures of another series')
        self.fails('no/such/file cannot be written', '--output', 'no/such/file')
        (self.folder / 'machine.json').unlink()
        self.program('pin_span', 'exit 1')
        self.fails('no mock device in this kernel: a BDF is needed')
        self.restored()
        self.thp.unlink()
        self.fails('no huge pages: .*transparent_hugepage is missing')

    def test_no_huge_pages(self):
        self.huge.unlink()
        self.huge.symlink_to('/dev/null')  # keeps no number
        self.program(
            'cat', '[ "${1##*/}" != nr_hugepages ] || { echo 3; exit; }; exec /bin/cat "$@"'
        )
        self.fails(r'no huge pages: 3 of 516 \(2M\) could be allocated')

    def test_devices(self):
        self.fails('no PCI device 0000:01:00.0', self.DEVICE)
        for name in self.DEVICE, self.OTHER:
            self.write(self.pci / name / 'class', '0x020000\n')
        self.write(self.pci / self.OTHER / 'class', '0x060100\n')
        self.fails(f'{self.OTHER} is a bridge, .*: choose another device', self.OTHER)
        self.fails('no IOMMU for 0000:01:00.0: enable it', self.DEVICE)
        group = self.folder / 'sys/kernel/iommu_groups/5/devices'
        group.mkdir(parents=True)
        for name in self.DEVICE, self.OTHER:
            (group / name).symlink_to(self.folder / self.pci / name)
        (self.folder / self.pci / self.DEVICE / 'iommu_group').symlink_to(group.parent)
        driver = self.folder / self.pci / self.OTHER / 'driver'
        driver.symlink_to('../drivers/igb')
        self.fails(
            f'device in use: {self.OTHER} in the IOMMU group of .* has a driver, igb', self.DEVICE
        )
        self.restored()
        driver.rename(self.folder / self.pci / self.DEVICE / 'driver')
        self.fails(f'device in use: {self.DEVICE} has a driver, igb', self.DEVICE)
        (self.folder / self.pci / self.DEVICE / 'driver').unlink()
        override = self.write(self.pci / self.DEVICE / 'driver_override', '(null)\n')
        self.fails(f'vfio-pci does not accept {self.DEVICE}', self.DEVICE)
        self.assertEqual(override.read_text(), '\n')

    def test_help(self):
        status, said, _ = self.run_it('--help')
        self.assertRegex(said, r'^usage: ./measure .*\[BDF\]\n')
        self.assertNotIn('set -u', said)
        self.assertEqual(status, 0)


def recorded(metric, unit, **more):
    return measure.row(metric, [[9]], [[3]], unit, **more)


class Figures(InFolder):
    """A topic with three rows in the record, and a file with them."""

    RECORD = {
        'topic': 'one/01-first',
        'rows': [
            recorded('map', 'instructions', path='type1'),
            recorded('unmap', 'instructions', path='type1'),
            recorded('prefault', 's'),
            recorded('ipis', 'IPIs', cpus=8),
            recorded('elsewhere', 's'),
        ],
    }

    def setUp(self):
        super().setUp()
        benchmark = mock.Mock(
            HEAD=['what', 'CPUs'],
            describe=lambda row: [f'{row["metric"]}, {row["unit"]}', str(row.get('cpus', ''))],
            cover=lambda row: row['metric'] != 'prefault',
        )
        for changed in (
            mock.patch.object(topics, 'benchmark', lambda _: benchmark),
            mock.patch.object(topics, 'after', lambda _: ['below']),
            mock.patch.object(provenance, 'code_of', lambda name: f'code of {name}'),
            mock.patch.object(measure, 'load', lambda name: self.RECORD if 'one' in name else None),
        ):
            changed.start()
            self.addCleanup(changed.stop)
        series = {name: f'code of {name}' for name in ('below', 'one', 'two')}
        self.path = self.folder / 'machine.json'
        self.entries = [{'series': series, 'base': '7.3.4'}]
        self.entries += [{'kernel': kernel, 'boot': 'x', 'facts': FACTS} for kernel in TREES]
        # the kernels differ in size
        self.entries[1] = {**self.entries[1], 'facts': {**FACTS, 'memory_kib': 1}}
        self.add('base', '0000:01:00.0', 'map', 'ns', 2e6, 2.2e6, 1.8e6)
        self.add('patched', '0000:01:00.0', 'map', 'ns', 1e6, 1e6, 1e6)
        self.add('base', 'mock', 'unmap', 'ns', 1000)
        self.add('patched', 'mock', 'unmap', 'ns', 2000)
        self.add('base', '', 'prefault', 's', 2, 3, 4)
        self.add('patched', '', 'prefault', 's', 1, 3)  # interrupted in the third repetition
        self.add('base', '', 'ipis', 'IPIs', 63)
        self.add('patched', '', 'ipis', 'IPIs', 0)
        self.add('base', '', 'elsewhere', 's', 1)

    def add(self, kernel, device, metric, unit, *values):
        row = next(each for each in self.RECORD['rows'] if each['metric'] == metric)
        fields = {'unit': unit, **dict(machine.key_of(row))}
        entry = {'kernel': kernel, 'boot': 'x', 'topic': 'one', 'device': device, 'row': fields}
        self.entries += [{**entry, 'value': value} for value in values]

    def write(self):
        self.path.write_text(json.dumps(self.entries))
        return str(self.path)

    def shown(self, topic='one'):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            machine.show(topic, self.write())
        return said.getvalue()

    def letter(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            text = 'It is slow.\n\nNo hardware.\n\nCosts: none.\n\nIs it right?'
            found = machine.in_letter('one/01-first', ('subject', text), self.write())
        return *found, said.getvalue()

    def test_side_by_side(self):
        lines = self.shown().splitlines()
        words = [line.split() for line in lines]
        self.assertEqual(
            words[0],
            'what CPUs base patched ratio machine: base patched ratio min–max unit'.split(),
        )
        # the machine's regression comes first
        self.assertEqual(
            words[1], 'unmap, instructions 9 3 3.000 1,000 2,000 0.500 0.500–0.500 ns'.split()
        )
        self.assertEqual(
            words[2], 'map, instructions 9 3 3.000 2,000,000 1,000,000 2.000 1.800–2.200 ns'.split()
        )
        self.assertEqual(words[4], 'ipis, IPIs 8 9 3 3.000 63 0 - ∞–∞ IPIs'.split())
        self.assertEqual(words[5], [])
        said = ' '.join(lines)
        self.assertIn('A CPU, 64 CPUs, 2 NUMA node(s), 128 GiB; medians of 1 to 3 rep', said)
        self.assertIn('iommufd: its mock device', said)
        self.assertIn('command_line: some', said)
        self.assertNotIn('Stale', said)

    def test_an_interrupted_run(self):
        found = machine.pairs(self.RECORD, machine.load(Path(self.write())))
        here = next(here for each, here, _ in found if each['metric'] == 'prefault')
        self.assertEqual((here['base'], here['patched'], here['ratio']), (3, 2, 1.5))
        self.assertEqual((here['min'], here['max'], here['runs']), (1, 2, 2))

    def test_one_repetition(self):
        seen = set()
        for entry in tuple(self.entries):
            place = json.dumps([entry.get(name) for name in ('kernel', 'device', 'row')])
            if 'value' in entry and place in seen:
                self.entries.remove(entry)
            seen.add(place)
        said = ' '.join(self.shown().split())
        self.assertIn('128 GiB; one repetition. The patched kernel', said)

    def test_a_device_goes_before_the_mock_device(self):
        for kernel in TREES:
            self.add(kernel, '0000:02:00.0', 'unmap', 'ns', 7)
        found = machine.pairs(self.RECORD, machine.load(Path(self.write())))
        self.assertEqual({device for *_, device in found}, {'0000:01:00.0', '0000:02:00.0', ''})

    def test_bad_files(self):
        good = self.entries

        def fails(says, entries, topic='one'):
            self.entries = entries
            with self.subTest(says), self.assertRaisesRegex(KitError, says):
                self.shown(topic)

        fails('no figures of the patched kernel', [e for e in good if e.get('kernel') != 'patched'])
        fails('no figures of one', good[:3])
        fails('figures of another series, without one', [{'series': {'two': ''}}, *good[1:]])
        other = {**good[1], 'facts': {**FACTS, 'cpu': ''}}
        fails('different machines: cpu differs', [*good, other])
        for bad in (
            [],
            {},
            ['x'],
            [good[0], {}],
            [good[0], {**good[1], 'kernel': 'third'}],
            [good[0], {**good[1], 'facts': {}}],
            [*good[:-1], {**good[-1], 'row': {}}],
        ):
            fails('machine.json: not a file of ./measure', bad)
        for text in '', '[', 'text':
            self.path.write_text(text)
            with self.assertRaisesRegex(KitError, 'not a file of ./measure'):
                machine.load(self.path)
        with self.assertRaisesRegex(KitError, 'missing.json: No such file'):
            machine.load(self.folder / 'missing.json')
        with self.assertRaisesRegex(KitError, 'no record of topic two: make bench'):
            machine.show('two', str(self.path))

    def test_other_code_is_stale(self):
        self.entries[0]['series'] |= {'below': 'older', 'two': 'older'}
        self.assertIn('Stale: it ran other code of below.', self.shown())

    def test_the_letter(self):
        subject, text, said = self.letter()
        self.assertIn('mentions hardware: is that still right?', said)
        self.assertEqual(subject, 'subject')
        before, _, after = text.partition('On a machine: A CPU, 64 CPUs')
        self.assertEqual(before, 'It is slow.\n\nNo hardware.\n\n')
        own, _, after = after.partition('\n\nCosts: none.')
        self.assertEqual(after, '\n\nIs it right?')
        rows = own.partition('\n\n')[2].splitlines()
        self.assertTrue(all(line.startswith('    ') and len(line) <= 75 for line in rows))
        self.assertEqual(
            [line.split() for line in rows],
            [
                'what CPUs base patched ratio'.split(),
                'unmap, ns 1,000 2,000 0.500'.split(),
                'map, ns 2,000,000 1,000,000 2.000'.split(),
                'ipis, IPIs 64 63 0 -'.split(),  # not the eight CPUs of the guest
            ],
        )

    def test_the_letter_does_not_name_the_cpu_of_the_guest(self):
        rows = [recorded('wakeup', 'us', cpu='max'), *self.RECORD['rows']]
        topics.benchmark('one').describe = lambda row: [row['metric'], row.get('cpu', '')]
        self.RECORD = {**self.RECORD, 'rows': rows}
        for kernel in TREES:
            self.add(kernel, '', 'wakeup', 'us', 7)
        line = next(line for line in self.letter()[1].splitlines() if 'wakeup' in line)
        self.assertEqual(line.split(), 'wakeup machine 7 7 1.000 us'.split())

    def test_the_letter_names_the_mode_of_kvm_on_the_machine(self):
        rows = [recorded('wakeup', 'us', mode=mode) for mode in ('vhe', 'waiter')]
        topics.benchmark('one').describe = lambda row: [row['metric'], row['mode'].replace(' ', '')]
        self.RECORD = {**self.RECORD, 'rows': rows}
        for row in rows:
            fields = dict(machine.key_of(row), unit='us')
            for kernel in TREES:
                entry = {'kernel': kernel, 'boot': 'x', 'topic': 'one', 'device': '', 'value': 7}
                self.entries.append({**entry, 'row': fields})
        for mode, shown in ('Hyp nVHE', 'HypnVHE'), ('', 'unknown'):
            for entry in self.entries[1:3]:
                entry['facts'] = {**FACTS, 'kvm_mode': mode}
            lines = [line.split() for line in self.letter()[1].splitlines() if 'wakeup' in line]
            self.assertEqual([line[1] for line in lines], [shown, 'waiter'])

    def test_a_row_that_is_named_after_its_unit(self):
        row = self.RECORD['rows'][0]
        topics.benchmark('one').describe = lambda row: [row['unit'], 'x86_64']
        self.assertEqual(machine.described(self.RECORD, row, 'ns'), ['time', 'x86_64'])
        self.assertEqual(
            machine.described(self.RECORD, row, 'instructions'), ['instructions', 'x86_64']
        )

    def test_only_some_letters_of_a_topic_get_a_table(self):
        parts = ['one/01-first', 'one/02-second']
        path = self.write()
        with (
            mock.patch.object(topics, 'is_single', lambda _: False),
            mock.patch.object(topics, 'parts_of', lambda _: parts),
            mock.patch.object(mail, 'whole', lambda *given: given),
            mock.patch.object(machine, 'rows_of_letter', lambda part, _: (None, have[part])),
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            have = {parts[0]: ['a row'], parts[1]: []}
            self.assertEqual(mail.postings('one', '', path), [(parts[0], path), (parts[1], '')])
            self.assertIn(f'no row of the table in the letter of {parts[1]}', said.getvalue())
            have[parts[0]] = []  # each letter then says that it has no row
            self.assertEqual(mail.postings('one', '', path), [(part, path) for part in parts])

    def test_letters_without_a_table(self):
        with self.assertRaisesRegex(KitError, 'MACHINE=x: one has no cover letter'):
            machine.in_letter('one', None, 'x')
        self.entries = [e for e in self.entries if e.get('device') in (None, '')]
        self.entries = [e for e in self.entries if e.get('row', {}).get('unit') != 'IPIs']
        with self.assertRaisesRegex(KitError, 'no row of the table in the cover letter of one'):
            self.letter()
        with (
            mock.patch.object(topics, 'is_single', lambda _: True),
            self.assertRaisesRegex(KitError, 'MACHINE=x: one has no cover letter'),
        ):
            mail.postings('one', '', 'x')
