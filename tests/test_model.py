# SPDX-License-Identifier: GPL-2.0-only
"""guest/*.toml: machines, their command lines, architectures."""

import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import model
from kit.check.common import arch_of
from kit.errors import KitError
from kit.model import Options, archs, machine, usual_archs
from kit.setup import deps
from kit.vm import qemu
from tests.support import ARM64, TOP, boot


class CommandLine(unittest.TestCase):
    def words(self, arch, **options):
        return qemu.command_line(
            machine(arch), 'tcg', 'image', 'initrd', Options(**options), 'null'
        )

    def test_iommus(self):
        self.assertIn('intel-iommu,intremap=on,eim=on,caching-mode=on', self.words('x86_64'))
        words = self.words('x86_64', iommu='virtio')
        self.assertIn('virtio-iommu-pci', words)
        self.assertFalse([word for word in words if 'intel' in word])
        self.assertIn('iommu=smmuv3', self.words('arm64', iommu='smmuv3'))
        with self.assertRaises(KitError):
            self.words('arm64', iommu='intel')

    def test_devices_are_behind_an_iommu(self):
        for arch in 'arm64', 'riscv64', 'x86_64':
            self.assertNotIn('igb', self.words(arch, iommu='none'))
            for name in machine(arch).iommus:
                self.assertIn('igb', self.words(arch, iommu=name))
                self.assertNotIn('igb', self.words(arch, iommu=name, devices=()))

    def test_every_machine_has_a_command_line(self):
        for arch in archs():
            for name in machine(arch).known_iommus():
                self.assertIn('image', self.words(arch, iommu=name))

    def test_nodes_must_divide(self):
        words = self.words('x86_64', cpus=4, nodes=2)
        self.assertIn('node,nodeid=1,memdev=memory1,cpus=2-3', words)
        with self.assertRaises(KitError):
            self.words('x86_64', cpus=3, nodes=2)


class Architectures(unittest.TestCase):
    def test_the_guest_of_a_folder_of_arch(self):
        for path, arch in {
            'arch/x86/mm/init.c': 'x86_64',
            'arch/riscv/mm/init.c': 'riscv64',
            'arch/s390/mm/init.c': 's390',
            'mm/memory.c': 'x86_64',
            'tools/testing/selftests/riscv/abi/a.c': 'riscv64',
            'tools/testing/selftests/arm64/abi/a.c': 'arm64',
        }.items():
            self.assertEqual(arch_of(path), arch)

    def archs_of(self, arch=None, full=False):
        asked = [('x', boot([], arch='arm64')), ('x', boot([], arch='riscv64', full=True))]
        with mock.patch.object(deps.topics, 'boots', lambda: asked):
            return deps.archs_of('all', arch, full)

    def test_a_full_machine_has_to_be_asked_for(self):
        self.assertEqual(self.archs_of(), ['arm64', 'x86_64'])
        self.assertEqual(self.archs_of(full=True), ['arm64', 'riscv64', 'x86_64'])
        self.assertEqual(self.archs_of('riscv64'), ['riscv64'])
        self.assertEqual(usual_archs(), ['arm64', 'powerpc', 'x86_64'])


class Files(unittest.TestCase):
    """An error names the file and the key."""

    def loaded(self, change):
        """guest/arm64.toml with its text changed."""
        with tempfile.TemporaryDirectory() as folder:
            text = (TOP / 'guest/arm64.toml').read_text()
            Path(folder, 'arm64.toml').write_text(change(text))
            with mock.patch.object(model, 'GUEST', Path(folder)):
                return model.machine.__wrapped__('arm64')

    def refused(self, says, change):
        with self.assertRaisesRegex(KitError, says):
            self.loaded(change)

    def test_a_machine(self):
        self.assertEqual(self.loaded(lambda text: text), ARM64)
        self.refused(
            r'arm64\.toml: console: no such key \(known: ', lambda text: 'console = "x"\n' + text
        )
        self.refused(
            r'arm64\.toml: qemu is missing',
            lambda text: re.sub('^qemu = .*$', '', text, flags=re.M),
        )
        self.refused(
            r'arm64\.toml: memory: expected a string, not 3',
            lambda text: text.replace('memory = "3G"', 'memory = 3'),
        )
        self.refused(
            r'arm64\.toml: iommus\.virtio: word: no such key',
            lambda text: text.replace('[iommus.virtio]', '[iommus.virtio]\nword = 1'),
        )
        self.refused(r'arm64\.toml: .*line 1', lambda text: '= x\n' + text)

    def test_a_topic(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(model, 'SERIES', Path(folder)),
        ):
            file = Path(folder, 'x/topic.toml')
            file.parent.mkdir()
            for text, says in (
                ('later = []', r'x/topic\.toml: later: no such key'),
                ('after = "y"', r"x/topic\.toml: after: expected a list, not 'y'"),
                ('[front]\nrows = [{metric = "x"}]', r'front: rows\[0\]: text is missing'),
                ('[[boot]]\narch = "arm64"', r'x/topic\.toml: boot\[0\]: flavour is missing'),
                ('[[compile]]\nname = "x"\narch = "arm64"', r'compile\[0\]: symbols is missing'),
                ('[suites]\narm64 = [1]', r'suites\.arm64\[0\]: expected a string, not 1'),
            ):
                file.write_text(text)
                with self.assertRaisesRegex(KitError, says):
                    model.topic.__wrapped__('x')
