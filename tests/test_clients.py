# SPDX-License-Identifier: GPL-2.0-only
"""`make clients`: canned output of the programs and of cargo, and a package of a few files."""

import contextlib
import io
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

from kit import process
from kit.build.trees import OURS
from kit.clients import clients, crate, record, root
from kit.clients.settings import Client, Settings, check_client
from kit.errors import KitError
from kit.model import Options, Test, machine
from kit.paths import TOP
from kit.typed import load
from kit.vm import guest
from tests.support import HAS_LINUX


class Root(unittest.TestCase):
    LINKED = {
        'program': '[Requesting program interpreter: /lib64/ld.so]\n (NEEDED) x [libone.so.1]',
        'libone.so.1.2': '0x1 (NEEDED)  Shared library: [libtwo.so.2]',
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ('bin/program', 'lib64/ld.so', 'lib/x/libone.so.1.2', 'lib/x/libother.so.3'):
            self.file(name)
        (self.root / 'usr/lib/x/libone.so.1').symlink_to('libone.so.1.2')
        changed = mock.patch.object(
            root, 'output', lambda words: self.LINKED.get(words[-1].name, '')
        )
        changed.start()
        self.addCleanup(changed.stop)

    def file(self, name):
        path = self.root / 'usr' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'\x7fELF')

    def test_libraries_and_links(self):
        asked = root.chosen(self.root, ['usr/*/program'])
        with self.assertRaisesRegex(KitError, 'libone.so.1.2 needs libtwo.so.2, which no package'):
            root.with_libraries(self.root, asked)
        self.file('lib/x/libtwo.so.2')
        found = root.members(self.root, root.with_libraries(self.root, asked))
        self.assertEqual(
            sorted(name for name, *_ in found),
            [
                'lib',
                'lib64',
                'usr',
                'usr/bin',
                'usr/bin/program',
                'usr/lib',
                'usr/lib/x',
                'usr/lib/x/libone.so.1',
                'usr/lib/x/libone.so.1.2',
                'usr/lib/x/libtwo.so.2',
                'usr/lib64',
                'usr/lib64/ld.so',
            ],
        )
        self.assertIn(('usr/lib/x/libone.so.1', 0o120777, b'libone.so.1.2'), found)

    def test_a_file_that_no_package_has(self):
        with self.assertRaisesRegex(KitError, 'clients.toml: no package has usr/bin/none'):
            root.chosen(self.root, ['usr/bin/none'])


class Crate(unittest.TestCase):
    def obstacle(self, said='', host=True, found='/x', install=None):
        """The reason why the crate cannot be built, if `cargo --version` prints `said`."""
        with (
            mock.patch.object(crate, 'host_is', lambda _: host),
            mock.patch.object(crate, 'result', lambda _: process.Done(0, said, '')),
            mock.patch('shutil.which', lambda _: found),
            mock.patch('kit.setup.deps.install_missing', install or mock.Mock(side_effect=[])),
        ):
            return crate.obstacle(machine('x86_64'), 'rust-vmm')

    def test_versions(self):
        for said in ('cargo 1.88.0', 'cargo 1.100.1 (f2d3ce0bd 2026-03-21)\n', 'cargo 2.0.0'):
            self.assertEqual(self.obstacle(said), '')
        self.assertEqual(self.obstacle('cargo 1.85.0\n'), 'cargo 1.85.0: 1.88 is needed')
        self.assertEqual(self.obstacle(''), 'cargo has no version: 1.88 is needed')

    def test_other_hosts(self):
        self.assertEqual(self.obstacle(host=False), 'its crate is only built on x86_64')

    def test_a_missing_cargo_is_installed(self):
        install = mock.Mock()
        self.assertEqual(self.obstacle('cargo 1.88.0', found=None, install=install), '')
        install.assert_called_once_with('CARGO', options=['--no-remove'])
        install.side_effect = KitError('as root: apt-get install cargo-web')
        self.assertEqual(
            self.obstacle(found=None, install=install),
            'no cargo: as root: apt-get install cargo-web',
        )

    def test_the_build(self):
        with mock.patch.object(crate, 'step') as step:
            path = crate.program(machine('x86_64'), 'rust-vmm')
        self.assertEqual(path.parts[-3:], ('x86_64-unknown-linux-gnu', 'release', 'rust-vmm'))
        self.assertIn('--locked', step.call_args.args[1])
        self.assertTrue(path.is_relative_to(step.call_args.kwargs['env']['CARGO_TARGET_DIR']))

    def test_bad_settings(self):
        packages = {'packages': ('x',), 'files': ('usr/bin/x',)}
        crate_too = {'crate': 'rust-vmm', 'files': ('x',)}
        for wrong in ({}, {'packages': ('x',)}, {**packages, 'crate': 'rust-vmm'}, crate_too):
            with self.assertRaisesRegex(KitError, 'x: expected either crate, or packages and'):
                check_client(Client((), **wrong), 'x')
        with self.assertRaisesRegex(KitError, 'x: crate: no clients/none/Cargo.toml'):
            check_client(Client((), crate='none'), 'x')
        with self.assertRaisesRegex(KitError, r'x: no architecture arm \(known: arm64 .*\)'):
            check_client(Client((), arch='arm', **packages), 'x')
        check_client(Client((), **packages), 'x')


class Clients(unittest.TestCase):
    def run_with(
        self, figures, word='ok', status=guest.OK, client='qemu', case='type1 absent 1024', **given
    ):
        """(exit status, recorded rows, tables) if the boots print these figures, in this order."""
        left = iter(figures)

        def run_guest(*_, on_line, name, **__):
            said = ['## begin 0', 'TAP version 13', '1..1', f'# monitor {next(left)}', '# x: 2.5']
            for line in [*said, f'{word} 1 {case}', '## end 0 0']:
                on_line(line)
            self.assertRegex(name, f'clients-{client}-(base|patched)')
            (folder / 'results').write_text('version 10.0.13\n')
            return guest.Outcome(status, 'message', '', 0, 'tcg', folder, 1.0, 1.0, True)

        with (
            tempfile.TemporaryDirectory() as top,
            mock.patch.object(record, 'PATH', Path(top) / 'clients.json'),
            mock.patch.object(root, 'archive', lambda *_: Path()),
            mock.patch('kit.bench.measure.warn_if_busy'),
            mock.patch('kit.bench.pages.write'),
            mock.patch('kit.build.kernel.build'),
            mock.patch('kit.vm.guest.run_guest', run_guest),
            mock.patch('kit.setup.deps.install_missing'),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            folder = Path(top)
            found = clients.main(test=f'{client} {case}', **given)
            return found, record.load(record.PATH), record.tables()

    @unittest.skipUnless(HAS_LINUX, 'no linux/ here')
    def test_what_is_recorded(self):
        status, rows, table = self.run_with(['0.60', '0.20'], runs=2)
        self.assertEqual((status, len(rows)), (guest.OK, 1))
        known = {
            'client': 'qemu',
            'version': '10.0.13',
            'iommu': 'intel',
            'case': 'type1 absent 1024',
            'metric': 'monitor',
            'base': 0.6,
            'patched': 0.2,
            'ratio': 3.0,
            'runs': 1,
        }
        self.assertEqual(known, {key: rows[0][key] for key in known})
        self.assertIn('| monitor, billion instructions | 0.600 | 0.200 | 3.000 | 1 |', table)
        self.assertEqual(self.run_with(['1.0'] * 2, word='not ok')[:2], (guest.FAILED, []))
        self.assertEqual(self.run_with('11', status=guest.SPLAT)[:2], (guest.SPLAT, []))

    @unittest.skipUnless(HAS_LINUX, 'no linux/ here')
    def test_times_of_several_boots_are_recorded(self):
        status, rows, table = self.run_with(
            ['3.00', '2.00', '2.00', '1.00'], client='socat', case='lazy', runs=2
        )
        self.assertEqual((status, rows[0]['base'], rows[0]['patched']), (guest.OK, 2.5, 1.5))
        self.assertIn('| monitor, s | 2.500 | 1.500 | 1.667 | 2 | 1.500', table)

    def test_figures_with_a_unit(self):
        said = mock.Mock(
            tests=[Test(name='kvm', arguments='kill')],
            output=[['# boot 500.0', '# latency 8.0 us', '# x 1.0 GB', '# y 3']],
        )
        found = clients.figures_of(said)
        boot, latency = ('kill', 'boot', ''), ('kill', 'latency', 'us')
        self.assertEqual(found, {boot: 500.0, latency: 8.0})
        rows = clients.rows_of([found], [{boot: 1000.0, latency: 4.0}], 's', client='kvm')
        self.assertEqual(
            [(row['metric'], row['unit'], row['ratio']) for row in rows],
            [('boot', 's', 0.5), ('latency', 'us', 2.0)],
        )
        self.assertEqual(clients.rows_of([found], [{}], 's'), [])

    def test_a_crate_that_cannot_be_built_is_skipped(self):
        said = io.StringIO()
        with (
            mock.patch.object(crate, 'obstacle', lambda *_: 'no cargo: x'),
            mock.patch('kit.setup.deps.install_missing'),
            mock.patch.object(clients, 'boot', mock.Mock(side_effect=[])),
            contextlib.redirect_stderr(said),
        ):
            counts, status, rows = clients.run('rust-vmm .* absent')
        self.assertEqual((counts, status, rows), ({'skipped': 2}, guest.OK, []))
        self.assertEqual(said.getvalue(), 'clients: rust-vmm is skipped: no cargo: x\n')

    def test_bad_input(self):
        with self.assertRaisesRegex(
            KitError,
            r'no client matches TEST=x.* \(known: qemu testpmd rust-vmm fio socat kvm collapse\)',
        ):
            clients.run('xyz')
        with self.assertRaisesRegex(KitError, r'\(known with amd: qemu rust-vmm\)'):
            clients.run('testpmd', 'amd')
        with self.assertRaisesRegex(KitError, r'\(known with virtio: qemu testpmd rust-vmm\)'):
            clients.run('kvm', 'virtio')
        with self.assertRaisesRegex(KitError, r'no IOMMU arm \(known: intel amd virtio smmuv3\)'):
            clients.run('', 'arm')

    def test_the_guest_of_a_client(self):
        common = Options(memory='4G', append='a=1', qemu=('-one',))
        self.assertEqual(Client(()).guest(common), common)
        own = Client((), append='b=2', qemu=('-two', 'x'))
        self.assertEqual(
            own.guest(common), Options(memory='4G', append='a=1 b=2', qemu=('-one', '-two', 'x'))
        )
        self.assertEqual(own.guest(Options()).append, 'b=2')

    def test_the_kernel_of_a_client(self):
        client = Client(('a',), ('x',), ('usr/bin/x',), flavour='plain+y', append='b=2')
        other = replace(client, arch='arm64')
        asked = Settings(
            'trixie', {'x86_64': Options(memory='4G')}, {'fio': client, 'other': other}
        )
        build, run_guest = mock.Mock(), mock.Mock(side_effect=KitError('not started'))
        with (
            mock.patch.object(clients, 'settings', lambda: asked),
            mock.patch.object(root, 'archive', lambda *_: Path()),
            mock.patch('kit.build.kernel.build', build),
            mock.patch('kit.vm.guest.run_guest', run_guest),
        ):
            with self.assertRaisesRegex(KitError, 'not started'):
                clients.boot('fio', OURS.base, ('a',), 'intel')
            build.assert_called_once_with(machine('x86_64'), 'plain+y', OURS.base)
            options = run_guest.call_args.args[4]
            self.assertEqual(
                (options.memory, options.append, options.iommu), ('4G', 'b=2', 'intel')
            )
            with self.assertRaisesRegex(KitError, 'not started'):
                clients.boot('other', OURS.base, ('a',), 'none')
        build.assert_called_with(machine('arm64'), 'plain+y', OURS.base)
        options = run_guest.call_args.args[4]
        self.assertEqual((options.memory, options.append, options.iommu), ('', 'b=2', 'none'))

    def test_the_iommu_of_a_client(self):
        x86_64, arm64 = Client((), without=('amd',)), Client((), arch='arm64', without=('virtio',))
        names = ('', 'intel', 'amd', 'virtio', 'smmuv3')
        self.assertEqual(
            [[each.runs_behind(name) for name in names] for each in (x86_64, arm64)],
            [[True, True, False, True, False], [True, False, False, False, True]],
        )
        self.assertFalse(Client((), without=('intel',)).runs_behind(''))

    def test_bad_keys(self):
        for key, value, says in (
            ('flavour', ['plain'], 'flavour: expected a string'),
            ('append', ['a'], 'append: expected a string'),
            ('qemu', '-device x', 'qemu: expected a list'),
            ('arch', 1, 'arch: expected a string'),
            ('kernel', 'plain', 'kernel: no such key'),
        ):
            with self.assertRaisesRegex(KitError, f'x: {says}'):
                load(Client, {'cases': ['a'], key: value}, 'x')

    def test_small_figures(self):
        found = [record.number(value) for value in (1234.5, 0.5, 0.0123, 0.000097)]
        self.assertEqual(found, ['1,234.500', '0.500', '0.012300', '0.000097'])

    def test_each_client_has_a_script(self):
        for name in clients.settings().clients:
            self.assertTrue((TOP / 'clients' / f'{name}.sh').exists())
