# SPDX-License-Identifier: GPL-2.0-only
"""The console lines that fail a run."""

import datetime
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.check import check
from kit.errors import KitError
from kit.vm import console
from tests.support import TOP


class Splats(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='splats-'))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / 'splats').write_text((TOP / 'guest/splats').read_text())

    def rules(self, arch='powerpc', day='2026-01-01', line='', expected=()):
        (self.folder / 'splats.allowed').write_text(f'{line}\n')
        return console.splat_rules(arch, expected, self.folder, datetime.date.fromisoformat(day))

    def test_what_fails_a_run(self):
        for line in (
            '[ 1.0] BUG: KASAN: slab-use-after-free',
            '[ 1.0] WARNING: x.c:1 at f+0x1',
            'DMAR: [DMA Write NO_PASID] Request device [00:02.0] fault addr 0x1000',
            'DMAR: DRHD: handling fault status reg 2',
            'AMD-Vi: Event logged [IO_PAGE_FAULT',
            'irq 16: nobody cared (try booting with the "irqpoll" option)',
            'rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:',
        ):
            self.assertTrue(console.splats(line, self.rules()), line)
        for line in ('DMAR: IOMMU enabled', 'vfio-pci 0000:00:02.0: reset', 'debug: BUGS: none'):
            self.assertFalse(console.splats(line, self.rules()), line)

    def test_an_exception_is_of_one_architecture_and_expires(self):
        line = r'powerpc | WARNING: x\.c | a reason | a link | 2026-02-01'
        self.assertFalse(console.splats('WARNING: x.c:3', self.rules(line=line)))
        self.assertTrue(console.splats('WARNING: y.c:3', self.rules(line=line)))
        self.assertTrue(console.splats('WARNING: x.c:3', self.rules('x86_64', line=line)))
        # only its own architecture is affected; boots still work
        self.assertTrue(console.splats('WARNING: x.c:3', self.rules('powerpc', '2026-02-02', line)))
        self.assertFalse(console.splats('booted', self.rules('x86_64', '2026-02-02', line)))
        self.assertFalse(
            console.splats('WARNING: x.c:3', self.rules('powerpc', '2026-02-01', line))
        )
        for wrong in ('x | y', 'vax | a | b | c | 2026-02-01', 'powerpc | ( | b | c | 2026-02-01'):
            with self.assertRaises(KitError):
                self.rules(line=wrong)

    def test_an_expired_exception_fails_the_check(self):
        lines = '\n'.join(
            [
                '# a comment',
                r'powerpc | x\.c | a reason | a link | 2026-02-01',
                'arm64 | y | another | a link | 2026-02-02',
            ]
        )
        (self.folder / 'splats.allowed').write_text(lines)
        for day, places in (('2026-02-01', []), ('2026-02-02', [2]), ('2026-02-03', [2, 3])):
            found = console.expired(self.folder, datetime.date.fromisoformat(day))
            self.assertEqual([int(line.split(':')[1]) for line in found], places)
        self.assertEqual(
            console.expired(self.folder, datetime.date(2026, 2, 2)),
            ['guest/splats.allowed:2: expired on 2026-02-01 (powerpc): a reason'],
        )
        with mock.patch.object(check.files.console, 'expired', lambda: found):
            self.assertEqual(check.outcome(check.files.exceptions), ('failed', '\n'.join(found)))

    def test_a_boot_expects_lines_of_its_own(self):
        rules = self.rules(expected=['fault addr 0x80000000 '])
        for address, found in (('0x80000000', 0), ('0x90000000', 1)):
            line = f'DMAR: [DMA Read NO_PASID] Request device [00:02.0] fault addr {address} [x'
            self.assertEqual(len(console.splats(line, rules)), found)
