# SPDX-License-Identifier: GPL-2.0-only
"""The figures of a machine, in tables and letters."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import topics
from kit.bench import measure, provenance
from kit.bench.measure import TREES
from kit.errors import KitError
from kit.hardware import machine
from kit.mail import mail

FACTS = dict.fromkeys(machine.FACTS, 'some') | {'cpu': 'A CPU', 'nodes': 2, 'cpus': 64}
FACTS['memory_kib'] = 128 << 20


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


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
