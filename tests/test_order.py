# SPDX-License-Identifier: GPL-2.0-only
"""The order in which `make test` boots and builds."""

import time
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from kit.model import Boot, Options
from kit.test import test
from kit.vm import guest
from tests.support import X86_64


class Order(unittest.TestCase):
    @staticmethod
    def named(name, alone=False):
        return Boot(machine=X86_64, flavour=name, options=Options(), tests=(), alone=alone)

    def events(self, *planned, soaks=()):
        """Returns the order in which `make test` builds kernels, and runs the planned boots and
        soak tests. A parallel boot ends only after all parallel boots and all builds have begun, so
        the order does not depend on the load of the host."""
        found, beside = [], [boot.flavour for boot in planned if not boot.alone]
        meanwhile = {
            *(f'boot {name}' for name in (*beside, *soaks)),
            *(f'build {boot.flavour}' for boot in planned),
        }

        def run(each, *_):
            found.append(f'boot {each.flavour}')
            time.sleep(0.1)
            deadline = time.monotonic() + 10
            while not meanwhile <= set(found) and time.monotonic() < deadline:
                time.sleep(0.01)
            found.append(f'end {each.flavour}')
            return Counter(), guest.OK

        with (
            mock.patch.multiple(
                test,
                run_boot=run,
                run_soak=lambda arch, _: run(self.named(arch)),
                prepare=lambda each, _: found.append(f'build {each.flavour}') or ('', []),
            ),
            ThreadPoolExecutor(2) as pool,
        ):
            self.assertEqual(
                len(list(test.run_all(planned, soaks, pool))), len(planned) + len(soaks)
            )
        return found

    def test_side_by_side_while_others_are_built(self):
        found = self.events(
            self.named('x', True), self.named('a'), self.named('y', True), self.named('b')
        )
        self.assertLess(found.index('boot b'), found.index('end a'))
        self.assertLess(found.index('build b'), found.index('end a'))
        self.assertLess(found.index('build y'), found.index('end a'))
        self.assertEqual(found[-4:], ['boot x', 'end x', 'boot y', 'end y'])

    def test_a_soak_is_beside_others_but_not_beside_those_alone(self):
        found = self.events(self.named('x', True), self.named('a'), soaks=['arm64'])
        self.assertLess(found.index('boot a'), found.index('end arm64'))
        self.assertEqual(found[-2:], ['boot x', 'end x'])
