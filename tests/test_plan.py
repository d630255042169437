# SPDX-License-Identifier: GPL-2.0-only
"""The boots that topics request, and the boots that are made."""

import contextlib
import io
import unittest
from unittest import mock

from kit.errors import KitError
from kit.model import Test
from kit.test import plan, test
from tests.support import boot


class Merging(unittest.TestCase):
    def test_the_same_boot_twice_is_one(self):
        one, other = {'kunit': 'a'}, {'kunit': 'b'}
        found = plan.merged([('x', boot([one], cpus=2)), ('y', boot([other, one], cpus=2))])
        self.assertEqual([[test.name for test in each.tests] for each in found], [['a', 'b']])

    def test_a_default_is_no_difference(self):
        self.assertEqual(
            len(
                plan.merged(
                    [('x', boot([{'kunit': 'a'}])), ('y', boot([{'kunit': 'b'}], append=''))]
                )
            ),
            1,
        )

    def test_others_stay_apart(self):
        asked = [
            boot([{'kunit': 'a'}]),
            boot([{'kunit': 'a'}], iommu='virtio'),
            boot([{'kunit': 'a'}], full=True),
            boot([{'kunit': 'a'}], qemu=['-cpu', 'max']),
        ]
        self.assertEqual(len(plan.merged([('x', each) for each in asked])), 4)

    def test_variants_and_programs(self):
        variants = [{}, {'cpus': 4}]
        found = plan.merged([('x', boot([], programs=['mm/a'], variants=variants))])
        self.assertEqual([each.options.cpus for each in found], [0, 4])
        self.assertEqual(found[0].tests, (Test(program='mm/a', tap=False, name='a'),))

    def test_what_has_to_fail_on_the_base(self):
        tests = [{'kunit': 'a', 'base': 'WARNING'}, {'kunit': 'b'}]
        found = plan.on_base(
            [('x', boot(tests, variants=[{}, {'cpus': 4}])), ('y', boot([{'kunit': 'b'}]))]
        )
        self.assertEqual(
            [
                (each.on_base, each.options.cpus, [test.name for test in each.tests])
                for each in found
            ],
            [(True, 0, ['a']), (True, 4, ['a'])],
        )
        self.assertEqual([each.full for each in found], [True, True])

    def test_unknown_keys(self):
        for tests, more, says in (
            ([], {'cpu': 1}, 'x: cpu: no such key (known: alone append'),
            ([], {'cpus': '4'}, "x: cpus: expected a number, not '4'"),
            ([], {'icount': 1}, 'x: icount: expected true or false, not 1'),
            ([], {'devices': ['a', 1]}, 'x: devices[1]: expected a string, not 1'),
            ([], {'variants': [{'flavour': 'x'}]}, 'x: variants: flavour: no such key'),
            ([{'kunit': 'a', 'skip': []}], {}, 'x: test[0]: skip: no such key'),
            ([{'kunit': 'a', 'skips': [{'test': 'a'}]}], {}, 'skips[0]: reason is missing'),
            ([{'kunit': 'a', 'program': 'b'}], {}, 'exactly one of program, kunit, reproducer'),
            ([{}], {}, 'exactly one of'),
        ):
            with self.assertRaises(KitError) as error:
                boot(tests, **more)
            self.assertIn(says, str(error.exception))


class Planned(unittest.TestCase):
    def planned(self, *more, **given):
        asked = [
            *more,
            ('x', boot([{'program': 'a', 'skips': [{'test': 'b', 'reason': 'c'}]}])),
            ('y', boot([{'program': 'a'}, {'program': 'd'}], cpus=6, nodes=2)),
        ]
        with (
            mock.patch.object(plan.topics, 'boots', lambda: asked),
            mock.patch.object(test, 'elsewhere', lambda: ''),
        ):
            return test.boots_of(test.Asked(**given))

    def cpus(self, **given):
        return [
            (each.options.cpus, each.options.nodes, len(each.tests))
            for each in self.planned(**given)
        ]

    def test_as_the_topics_say_or_as_many_cpus_as_are_given(self):
        self.assertEqual(self.cpus(), [(0, 1, 1), (6, 2, 2)])
        self.assertEqual(self.cpus(cpus=4), [(4, 1, 1), (4, 2, 2)])
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KitError):
            self.cpus(iommu='none of these')

    def test_tests_of_full_are_named(self):
        slow = ('z', boot([{'program': 'slow'}], full=True))
        with (
            mock.patch.object(plan.topics, 'boots', lambda: [slow]),
            mock.patch.object(test, 'elsewhere', lambda: ''),
            self.assertRaisesRegex(KitError, r'no test matches \(1 more with FULL=1\)'),
        ):
            test.main(test='slow')

    def test_an_iommu_that_one_architecture_has(self):
        arm64 = ('z', boot([{'program': 'a'}], arch='arm64'))
        self.assertEqual([each.arch for each in self.planned(arm64, iommu='smmuv3')], ['arm64'])
        self.assertEqual(
            [each.arch for each in self.planned(arm64, iommu='amd')], ['x86_64', 'x86_64']
        )

    def test_boots_that_become_one_and_may_skip(self):
        self.assertEqual(self.cpus(cpus=17), [(17, 1, 2)])
        self.assertEqual(self.planned(cpus=17)[0].tests[0].skips, (plan.ELSEWHERE,))

    def soaked(self, **given):
        with mock.patch.object(test, 'elsewhere', lambda: ''):
            return sorted(test.soaked(test.Asked(**{'full': True, **given})))

    def test_every_architecture_is_soaked_unless_something_else_is_asked_for(self):
        self.assertEqual(self.soaked(), ['arm64', 'powerpc', 'x86_64'])
        self.assertEqual(self.soaked(arch='arm64', flavour='debug', test='soak'), ['arm64'])
        for given in (
            {'full': False},
            {'flavour': 'plain'},
            {'test': 'iova'},
            {'cpus': 3},
            {'iommu': 'amd'},
        ):
            self.assertEqual(self.soaked(**given), [])
