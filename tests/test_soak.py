# SPDX-License-Identifier: GPL-2.0-only
"""`make soak` and `make differ`, with canned output of their programs."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.errors import KitError
from kit.soak import differ, record, soak
from kit.vm import guest
from tests.support import HAS_LINUX


class Differ(unittest.TestCase):
    def test_first_difference_of_each_path(self):
        base = ['100 type1 a 0', '200 type1 b 0', '100 iommufd c 0']
        self.assertEqual(differ.compare(base, base), {'type1': None, 'iommufd': None})
        found = differ.compare(base, [base[0], '200 type1 x 0', '100 iommufd y 1'])
        self.assertIn('base 200 type1 b 0, patched 200 type1 x 0', found['type1'])
        self.assertIn('patched 100 iommufd y 1', found['iommufd'])
        # a kernel that stops early prints fewer lines
        self.assertIn('nothing', differ.compare(base, base[:2])['iommufd'])

    def test_longer_run_stays_recorded(self):
        with tempfile.TemporaryDirectory() as top:
            path = Path(top) / 'soak.json'
            row = {'arch': 'arm64', 'flavour': 'debug', 'minutes': 60, 'seed': 1}
            for minutes, kept in ((20, 20), (60, 60), (5, 60)):
                record.record([{**row, 'minutes': minutes}], path)
                self.assertEqual([each['minutes'] for each in record.load(path)], [kept])
            record.record([{'arch': 'arm64', 'iommu': 'smmuv3', 'calls_compared': 7}], path)
            self.assertEqual(len(record.load(path)), 2)


class Soak(unittest.TestCase):
    FAULTS = ['# count injections 4', 'TAP version 13', '1..1', 'ok 1 type1: 4K mapped']

    def run_with(self, said, splat='', faults=FAULTS, flavour='debug', lost=False):
        """(exit status, recorded row or None) for this output of the guest."""

        def run_guest(*_, on_line=None, **__):
            for number, lines in enumerate((faults, said) if flavour == 'debug' else (said,)):
                for line in [f'## begin {number}', *lines, f'## end {number} 0']:
                    on_line(line)
            (folder / 'console').write_text(splat)
            status = guest.LOST if lost else guest.SPLAT if splat else guest.OK
            return guest.Outcome(status, '', '', 0, 'tcg', folder, 1.0, 1.0, True)

        with (
            tempfile.TemporaryDirectory() as top,
            mock.patch('kit.soak.races.changed_functions', lambda *_: ['get']),
            mock.patch.multiple(soak, built=lambda *_: ''),
            mock.patch.multiple(record, PATH=Path(top) / 'soak.json'),
            mock.patch('kit.bench.pages.write'),
            mock.patch('kit.build.kernel.build'),
            mock.patch('kit.vm.guest.run_guest', run_guest),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            folder = Path(top)
            status = soak.main(minutes=1, seed=7, flavour=flavour)
            return status, next(iter(record.load()), None)

    @unittest.skipUnless(HAS_LINUX, 'no linux/ here')
    def test_what_counts(self):
        tap = [
            '# count type1 3',
            '# count kill 2',
            '# count hotplug 1',
            '# leaks 0',
            'TAP version 13',
            '1..2',
            'ok 1 type1 happened',
            'ok 2 no page is pinned',
        ]
        status, row = self.run_with(tap)
        self.assertEqual(
            (status, row['operations'], row['kills'], row['hotplugs'], row['leaks']),
            (guest.OK, {'type1': 3}, 2, 1, 0),
        )
        self.assertEqual(
            (row['arch'], row['minutes'], row['seed'], row['splats'], row['failed']),
            ('x86_64', 1, 7, 0, 0),
        )
        self.assertEqual(row['injections'], 4)
        self.assertEqual(self.run_with([*tap[:-1], 'not ok 2 no page is pinned'])[0], guest.FAILED)
        # on machines with devices, no result may be skipped
        self.assertEqual(
            self.run_with([*tap[:-2], 'ok 1 type1 happened # SKIP why', tap[-1]])[0], guest.FAILED
        )
        failed = [*self.FAULTS[:-1], 'not ok 1 type1: 4K mapped']
        self.assertEqual(self.run_with(tap, faults=failed)[0], guest.FAILED)
        status, row = self.run_with(tap, 'BUG: bad\nWARNING: bad\n')
        self.assertEqual((status, row['splats']), (guest.SPLAT, 2))
        self.assertEqual(self.run_with(tap, lost=True), (guest.LOST, None))

    @unittest.skipUnless(HAS_LINUX, 'no linux/ here')
    def test_what_counts_of_data_races(self):
        tap = [
            'TAP version 13',
            '1..2',
            'ok 1 type1 happened',
            'ok 2 kmemleak finds nothing # SKIP not in this kernel',
        ]
        status, row = self.run_with(
            tap,
            'BUG: KCSAN: data-race in get / tick\nBUG: KCSAN: data-race in tick / tick\n',
            flavour='kcsan',
        )
        self.assertEqual(
            (status, row['splats'], row['flavour'], row['command']),
            (guest.SPLAT, 1, 'kcsan', 'make soak MINUTES=1 ARCH=x86_64 FLAVOUR=kcsan SEED=7'),
        )
        self.assertEqual(self.run_with(tap, flavour='kcsan')[0], guest.OK)

    def test_other_kernels_are_not_for_it(self):
        for given in (
            {'flavour': 'plain'},
            {'flavour': 'kcsan', 'arch': 'powerpc'},
            {'arch': 'vax'},
        ):
            with mock.patch('kit.soak.soak.run', self.fail), self.assertRaises(KitError):
                soak.main(**given)

    def test_rows_from_before_a_column(self):
        self.assertEqual(
            [record.cell(value) for value in (None, 0, 1234, {'a': 1, 'b': 2})],
            ['-', '0', '1,234', '3'],
        )
