# SPDX-License-Identifier: GPL-2.0-only
"""How boots are merged, followed and judged: canned logs, and shell scripts in QEMU's place."""

import contextlib
import datetime
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))
from kit.bench import bench, measure, table  # noqa: E402
from kit.build import kernel, reproducer  # noqa: E402
from kit.build.trees import Tree  # noqa: E402
from kit.check import check  # noqa: E402
from kit.check.common import arch_of  # noqa: E402
from kit.errors import TERMINATED, KitError, fail  # noqa: E402
from kit.model import Boot, Limits, Options, Skip, Test, archs, boot_of, machine, usual_archs  # noqa: E402
from kit.paths import LINUX  # noqa: E402
from kit.setup import deps  # noqa: E402
from kit.soak import differ, races, record, soak  # noqa: E402
from kit.source.git import git  # noqa: E402
from kit.test import plan, test, verdict  # noqa: E402
from kit.vm import console, guest, qemu  # noqa: E402

RULES = [console.compiled('here', r'\bBUG: ')], []


X86_64, ARM64 = machine('x86_64'), machine('arm64')


def boot(tests, **more):
    """A [[boot]] of a topic.toml."""
    return boot_of({'arch': 'x86_64', 'flavour': 'debug', 'test': tests, **more}, 'x')


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
        later = plan.on_base([('x', boot(tests, base_full=True))])
        self.assertEqual([each.full for each in found + later], [False, False, True])

    def test_unknown_keys(self):
        for tests, more, says in (
            ([], {'cpu': 1}, 'x: cpu: no such key (known: alone append'),
            ([], {'cpus': '4'}, "x: cpus: a number is meant, not '4'"),
            ([], {'icount': 1}, 'x: icount: true or false is meant, not 1'),
            ([], {'devices': ['a', 1]}, 'x: devices[1]: a string is meant, not 1'),
            ([], {'variants': [{'flavour': 'x'}]}, 'x: variants: flavour: no such key'),
            ([{'kunit': 'a', 'skip': []}], {}, 'x: test[0]: skip: no such key'),
            ([{'kunit': 'a', 'skips': [{'test': 'a'}]}], {}, 'skips[0]: reason is missing'),
            ([{'kunit': 'a', 'program': 'b'}], {}, 'a test is one of'),
            ([{}], {}, 'one of'),
        ):
            with self.assertRaises(KitError) as error:
                boot(tests, **more)
            self.assertIn(says, str(error.exception))


class Reproducers(unittest.TestCase):
    def test_programs_and_modules(self):
        with (
            tempfile.TemporaryDirectory() as top,
            mock.patch.object(reproducer, 'SERIES', Path(top)),
        ):
            folder = Path(top) / 'x/reproduce'
            (folder / 'b').mkdir(parents=True)
            for name in ('a.c', 'b/b.c'):
                (folder / name).touch()
            asked = [{'reproducer': 'a', 'arguments': '$BDF'}, {'reproducer': 'b'}]
            found = plan.tests_of('x', boot(asked))
            self.assertEqual(
                [verdict.command_of(test) for test in found],
                ['plain a /job/a $BDF', 'plain b insmod /job/b.ko'],
            )
            with self.assertRaises(KitError):
                plan.tests_of('x', boot([{'reproducer': 'c'}]))


class Failing(unittest.TestCase):
    def counts_of(self, said, console):
        results = verdict.Failing([Test(name='a', base=r'KASAN: .* in x')])
        for line in ('## begin 0', *said, '## end 0 1'):
            results.line(line)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return results.verdict_of(console), out.getvalue()

    def test_the_console_shows_the_bug(self):
        counts, said = self.counts_of(['ok 1 a'], 'up\n[1] BUG: KASAN: use-after-free in x\ndown')
        self.assertEqual((counts['passed'], counts['failed']), (1, 0))
        self.assertIn('a fails on the base: [1] BUG: KASAN: use-after-free in x\n', said)

    def test_the_program_shows_it(self):
        self.assertEqual(self.counts_of(['# KASAN: as if in x'], '')[0]['passed'], 1)

    def test_the_base_without_the_bug(self):
        counts, said = self.counts_of(['not ok 1 a'], 'BUG: KASAN: in y')
        self.assertEqual((counts['passed'], counts['failed']), (0, 1))
        self.assertIn('nothing on the base is like base =', said)


class Bench(unittest.TestCase):
    def test_the_next_one_goes_on_where_the_last_was_interrupted(self):
        booted = []

        def boot(*given):
            booted.append(given[-1])
            return {'x': [1.0]}, 'tcg'

        with tempfile.TemporaryDirectory() as folder, mock.patch('kit.bench.measure.boot', boot):
            image = Path(folder) / 'image'
            image.write_text('one')
            for names in (['first'], ['first', 'second']):
                here = measure.Bench(journal=measure.Journal(Path(folder) / 'journal'))
                for what in names:
                    figures, accelerator = here.figures_of(
                        'x86_64', image, 'job', [], Options(), what
                    )
                    self.assertEqual((figures, accelerator), ({'x': [1.0]}, 'tcg'))
                with open(Path(folder) / 'journal', 'a', encoding='ascii') as file:
                    file.write('[["hal\n')  # killed while it wrote
            self.assertEqual(booted, ['first', 'second'])
            image.write_text('other')
            here.figures_of('x86_64', image, 'job', [], Options(), 'second')
            self.assertEqual(booted, ['first', 'second', 'second'])


class Build(unittest.TestCase):
    def test_half_an_object_is_made_anew(self):
        with tempfile.TemporaryDirectory() as top:
            whole, half = Path(top) / 'whole.o', Path(top) / 'arch' / 'half.o'
            half.parent.mkdir()
            whole.write_text('an object')
            half.touch()
            kernel.drop_halves(Path(top))
            self.assertEqual((whole.exists(), half.exists()), (True, False))

    def test_a_kernel_that_was_kept_is_not_built_again(self):
        with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as changed:
            bisected = Tree('bisect-x86_64', Path(top) / 'bisect-x86_64')
            patched = Tree('patched', Path(top) / 'patched')
            folders = {tree.name: tree.out('x86_64', 'plain') for tree in (bisected, patched)}
            image, made = X86_64.image, []

            def make(what, *_, **__):
                made.append(what)
                folder = folders[what.split()[1]]
                (folder / image).parent.mkdir(parents=True, exist_ok=True)
                for name in (image, 'vmlinux', 'System.map'):
                    (folder / name).write_text(what)

            for name, fake in {
                'KEPT': Path(top) / 'kept',
                'source': lambda tree: tree.linux,
                'step': make,
                'make': lambda *_: ([], {}),
                'state': lambda src: 'the same',
                'configure': lambda *_: None,
                # each tree has the file of a suite of its own
                'fragments': lambda *words: [(words[-1] / 'config', {'SMP': 'y'})],
            }.items():
                changed.enter_context(mock.patch.object(kernel, name, fake))
            kernel.build(X86_64, 'plain', bisected)
            kernel.keep(X86_64, 'plain', bisected)
            built = kernel.build(X86_64, 'plain', patched)
            self.assertEqual(built.read_text(), 'build bisect-x86_64 x86_64 plain')
            shutil.rmtree(folders['bisect-x86_64'])
            kernel.build(X86_64, 'plain', bisected)  # its objects are wanted
            changed.enter_context(mock.patch.object(kernel, 'state', lambda src: 'another'))
            kernel.build(X86_64, 'plain', patched)
            self.assertEqual(
                made, ['build bisect-x86_64 x86_64 plain'] * 2 + ['build patched x86_64 plain']
            )

    def test_the_base_begins_with_the_objects_of_the_patched_kernel(self):
        with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as changed:
            tree = Tree('patched', Path(top) / 'patched')
            other = Tree('base', Path(top) / 'base', begins_as=tree)
            outs = {each.name: each.out('x86_64', 'plain') for each in (tree, other)}
            for name, fake in {
                'source': lambda tree: tree.linux,
                'fragments': lambda *_: [],
                'KEPT': Path(top) / 'kept',
            }.items():
                changed.enter_context(mock.patch.object(kernel, name, fake))
            patched, base = tree.linux, other.linux
            patched.mkdir(parents=True)
            git('init', '-q', cwd=patched)
            for name in ('same.c', 'other.c'):
                (patched / name).write_text('base')
            git('add', '.', cwd=patched)
            git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'base', cwd=patched)
            git('worktree', 'add', '-q', '--detach', base, cwd=patched)
            (patched / 'other.c').write_text('uncommitted')
            outs['patched'].mkdir(parents=True)
            for name, text in {
                '.config': '',
                '.stamp': 'of another state',
                'other.o': 'an object',
                '.other.o.cmd': f'{patched}/other.c {outs["patched"]}/x',
            }.items():
                (outs['patched'] / name).write_text(text)
            for name in ('same.c', 'other.c'):
                os.utime(base / name, (1, 1))

            kernel.begin_as(tree, X86_64, 'plain', base, outs['base'])
            self.assertFalse(outs['base'].exists(), 'objects of what is not there any more')
            now = kernel.asked(X86_64, 'plain', tree)[1]
            (outs['patched'] / '.stamp').write_text(now)
            kept = Path(top) / 'kept/x86_64-plain/.stamp'
            kept.parent.mkdir(parents=True)
            kept.write_text(now)
            kernel.begin_as(tree, X86_64, 'plain', base, outs['base'])
            self.assertFalse(outs['base'].exists(), 'the kernel is a copy, not of these objects')
            kept.unlink()
            kernel.begin_as(tree, X86_64, 'plain', base, outs['base'])
            self.assertEqual(
                (outs['base'] / '.other.o.cmd').read_text(), f'{base}/other.c {outs["base"]}/x'
            )
            self.assertFalse((outs['base'] / '.stamp').exists(), 'it is not built')
            self.assertFalse((outs['base'] / '.config').exists(), 'it would not begin again')
            self.assertEqual((base / 'same.c').stat().st_mtime, 1)
            self.assertGreater((base / 'other.c').stat().st_mtime, 1)

            # a copy that was interrupted has no .config
            (outs['patched'] / 'source').symlink_to(patched)
            (outs['base'] / 'source').symlink_to(patched)
            kernel.begin_as(tree, X86_64, 'plain', base, outs['base'])
            self.assertTrue((outs['base'] / 'source').is_symlink())


class Differ(unittest.TestCase):
    def test_first_difference_of_each_path(self):
        base = ['100 type1 a 0', '200 type1 b 0', '100 iommufd c 0']
        self.assertEqual(differ.compare(base, base), {'type1': None, 'iommufd': None})
        found = differ.compare(base, [base[0], '200 type1 x 0', '100 iommufd y 1'])
        self.assertIn('base 200 type1 b 0, patched 200 type1 x 0', found['type1'])
        self.assertIn('patched 100 iommufd y 1', found['iommufd'])
        # a kernel that stops halfway tells less
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
        """(exit status, recorded row or None) when the guest says that."""

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

    @unittest.skipUnless((LINUX / 'tools/testing/kunit').exists(), 'no linux/ here')
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
        # where there are devices nothing may be skipped
        self.assertEqual(
            self.run_with([*tap[:-2], 'ok 1 type1 happened # SKIP why', tap[-1]])[0], guest.FAILED
        )
        failed = [*self.FAULTS[:-1], 'not ok 1 type1: 4K mapped']
        self.assertEqual(self.run_with(tap, faults=failed)[0], guest.FAILED)
        status, row = self.run_with(tap, 'BUG: bad\nWARNING: bad\n')
        self.assertEqual((status, row['splats']), (guest.SPLAT, 2))
        self.assertEqual(self.run_with(tap, lost=True), (guest.LOST, None))

    @unittest.skipUnless((LINUX / 'tools/testing/kunit').exists(), 'no linux/ here')
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


class Order(unittest.TestCase):
    @staticmethod
    def named(name, alone=False):
        return Boot(machine=X86_64, flavour=name, options=Options(), tests=(), alone=alone)

    def events(self, *planned, soaks=()):
        """What `make test` does with these boots and soaks, in its order. However busy the host is,
        a boot beside others ends when all that is to go on meanwhile has begun."""
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
        self.assertIn('iommu=smmuv3', self.words('arm64', iommu='smmuv3', devices=['igb']))
        with self.assertRaises(KitError):
            self.words('arm64', iommu='intel')

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
        # it expires where it belongs; boots go on
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


class Races(unittest.TestCase):
    BASE = {
        'iova.c': """static int pop(struct depot *d,
\t\t       int n)
{
\treturn d->n - n;
}

int get(struct depot *d)
{
\treturn pop(d, 1);
}

int others(struct depot *d)
{
\treturn d->n;
}
""",
        'gone.c': """int shrinks(void)
{
\tlock();
\treturn 0;
}
""",
        'tick.c': """int tick(void)
{
\treturn 0;
}
""",
        'arch/arm64/pop.c': """int arm_get(void)
{
\treturn pop(0, 1);
}
""",
    }
    PATCHED = {
        'iova.c': BASE['iova.c'].replace('d->n - n', 'READ_ONCE(d->n) - n'),
        'gone.c': BASE['gone.c'].replace('\tlock();\n', ''),
        'walk.h': """static inline int do_walk(int a)
{
\treturn a;
}
PT_MAKE_LEVELS(walk, do_walk);

int NS(runs)(int a)
{
\treturn walk(a);
}
""",
    }
    SYMBOLS = 'get others shrinks walk0.constprop.0 x86_64_runs tick runs_of_others arm_get'
    # of a console; {0} and {1} are where the two accesses are, {2} and {3} what has called them
    REPORT = """[    9.1] BUG: KCSAN: data-race in {0} / {1}
[    9.1]
[    9.1] write to 0xffff888103a4c0f8 of 8 bytes by task 71 on cpu 2:
[    9.1]  {0}+0x23/0x70
[    9.1]  {2}+0x11/0x40
[    9.1] hrtimer: interrupt took 81000 ns
[    9.1]
[    9.1] read to 0xffff888103a4c0f8 of 8 bytes by task 72 on cpu 0:
[    9.1]  {1}+0x5/0x10
[    9.1]  {3}+0x11/0x40
[    9.1]
[    9.1] value changed: 0x0000000000000001 -> 0x0000000000000002
[    9.1]
[    9.1] Reported by Kernel Concurrency Sanitizer on:
"""

    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.folder = Path(top.name)
        git('init', '-q', cwd=self.folder)
        self.commit(self.BASE)
        git('tag', 'base', cwd=self.folder)
        self.commit(self.PATCHED)
        (self.folder / 'System.map').write_text(
            ''.join(f'ffffffff81000000 t {name}\n' for name in self.SYMBOLS.split())
        )
        self.built_from('iova.c', 'gone.c', 'tick.c', 'walk.h')
        patch = mock.patch.multiple(
            races, source=lambda _: self.folder, PATCHED=mock.Mock(out=lambda *_: self.folder)
        )
        patch.start()
        self.addCleanup(patch.stop)

    def built_from(self, *files):
        (self.folder / '.vmlinux.o.cmd').write_text(
            ''.join(f'  ../../linux/{name} \\\n' for name in files)
        )

    def commit(self, files):
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        git('add', '-A', cwd=self.folder)
        git(
            'commit',
            '-q',
            '-m',
            'x',
            cwd=self.folder,
            env={'GIT_AUTHOR_NAME': 'x', 'GIT_AUTHOR_EMAIL': 'x@localhost'},
        )

    def test_symbols_stand_for_what_is_changed(self):
        # pop() is inlined; do_walk(), too, in what a macro makes
        self.assertEqual(
            races.changed_functions(X86_64, 'kcsan'), ['get', 'shrinks', 'walk0', 'x86_64_runs']
        )
        # of what another architecture has, or a driver that is not built, nothing is in this kernel
        self.built_from('iova.c', 'gone.c', 'arch/arm64/pop.c', 'walk.h')
        self.assertEqual(
            races.changed_functions(ARM64, 'kcsan'),
            ['arm_get', 'get', 'shrinks', 'walk0', 'x86_64_runs'],
        )

    def test_what_is_not_committed_counts(self):
        self.assertNotIn('tick', races.changed_functions(X86_64, 'kcsan'))
        (self.folder / 'tick.c').write_text(self.BASE['tick.c'].replace('0', '1'))
        self.assertIn('tick', races.changed_functions(X86_64, 'kcsan'))

    def found(self, text, names):
        return len(console.splats(text, console.splat_rules('x86_64', [races.elsewhere(names)])))

    def test_one_of_the_two_accesses_counts(self):
        names = races.changed_functions(X86_64, 'kcsan')
        for sides, counts in (
            (('get', 'tick'), 1),
            (('tick', 'get'), 1),
            (('get', 'get'), 1),
            (('tick', 'walk0.constprop.0'), 1),
            (('tick', 'others'), 0),
            (('runs_of_others', 'tick'), 0),
            (('get_not', 'tick'), 0),
        ):
            text = self.REPORT.format(*sides, 'get', 'get')
            self.assertEqual(self.found(text, names), counts, sides)
            # without the judgement each would
            self.assertEqual(len(console.splats(text, console.splat_rules('x86_64'))), 1, sides)

    def test_other_lines_fail_a_run_as_ever(self):
        names = races.changed_functions(X86_64, 'kcsan')
        self.assertEqual(self.found('BUG: KCSAN: assert: race in tick / tick\n', names), 1)
        self.assertEqual(
            self.found('BUG: sleeping function called from invalid context\n', names), 1
        )

    def test_what_the_series_calls_on_both_sides_is_told(self):
        text = ''.join(
            self.REPORT.format(*each)
            for each in (
                ('others', 'tick', 'get', 'walk0'),
                ('others', 'tick', 'get', 'get'),
                ('others', 'tick', 'get', 'idle'),
                ('get', 'tick', 'get', 'get'),
            )
        )
        names = races.changed_functions(X86_64, 'kcsan')
        self.assertEqual(races.below(text, names), {'others / tick': 2})
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            soak.tell_races(text, names)
        self.assertEqual(
            said.getvalue().splitlines(),
            ['soak: 3 races elsewhere', '  2 called by the series on both sides: others / tick'],
        )

    def test_a_series_that_changes_no_function_is_an_error(self):
        git('tag', '-f', 'base', cwd=self.folder)
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KitError):
            races.changed_functions(X86_64, 'kcsan')


class Watch(unittest.TestCase):
    LIMITS = {'boot': 1, 'silence': 1, 'total': 2, 'shutdown': 1}

    def watch(self, script, **limits):
        folder = Path(tempfile.mkdtemp(prefix='watch-'))
        self.addCleanup(shutil.rmtree, folder)
        lines = []
        limits = Limits(**{**self.LIMITS, **limits})
        ended = guest.watch(['sh', '-c', script], folder, limits, RULES, on_line=lines.append)
        return ended, lines

    def check(self, script, status, says, **limits):
        ended, _ = self.watch(script, **limits)
        self.assertEqual(ended.status, status, ended.message)
        self.assertIn(says, ended.message)

    def test_good_and_failed(self):
        ended, lines = self.watch(
            'echo up > status; printf "a\\r\\nb\\nhalf" > results; '
            'echo debug_locks 0 >> status; echo exit 0 >> status'
        )
        self.assertEqual((ended.status, ended.lockdep, lines), (guest.OK, False, ['a', 'b']))
        self.check('echo up > status; echo exit 3 >> status', guest.FAILED, 'exit status 3')

    def test_splats_and_panics(self):
        done = 'echo up > status; echo exit 0 >> status'
        self.check(f'echo "BUG: here" > console; {done}', guest.SPLAT, '1 line(s)')
        self.check('echo up > status; echo "Kernel panic" > console', guest.LOST, 'panicked')

    def test_lost(self):
        self.check('echo no such device >&2; exit 1', guest.LOST, 'QEMU: no such device')
        self.check('echo up > status', guest.LOST, 'without an exit status')
        self.check('sleep 9', guest.LOST, 'did not reach its init')
        self.check('echo up > status; sleep 9', guest.LOST, 'was silent')
        self.check(
            'echo up > status; while sleep 0.1; do echo x >> results; done',
            guest.LOST,
            'did not finish its job',
        )
        self.check(
            'echo up > status; echo exit 0 >> status; sleep 9', guest.LOST, 'did not power off'
        )


@unittest.skipUnless((LINUX / 'tools/testing/kunit').exists(), 'no linux/ here')
class Judge(unittest.TestCase):
    def judge(self, text, code=0, **test):
        passed, skipped, failures = verdict.judge(Test(name='t', **test), text.splitlines(), code)
        return passed, skipped, [why for _, why, _ in failures]

    def test_results(self):
        head = 'TAP version 13\n1..2\n'
        self.assertEqual(self.judge(f'{head}ok 1 a\nok 2 b\n'), (2, 0, []))
        self.assertEqual(self.judge(f'{head}ok 1 a\nnot ok 2 b\n', 1), (1, 0, ['failure']))
        skipping = f'{head}ok 1 a\nok 2 b # SKIP no device\n'
        self.assertEqual(self.judge(skipping, skips=(Skip('b', 'x'),)), (1, 1, []))
        self.assertIn('skipped without a reason', self.judge(skipping)[2][0])

    def test_what_passes_for_nothing_fails(self):
        self.assertEqual(verdict.judge(Test(name='t'), None, None)[2][0][1], 'did not run')
        self.assertEqual(verdict.judge(Test(name='t'), [], None)[2][0][1], 'did not end')
        self.assertTrue(self.judge('')[2])
        self.assertTrue(self.judge('TAP version 13\n1..1\nok 1 a\n', 1)[2])
        self.assertTrue(self.judge('TAP version 13\n1..2\nok 1 a\n')[2])
        self.assertTrue(self.judge('TAP version 13\n1..0 # SKIP no device\n', 4)[2])

    def test_a_program_twice(self):
        results = verdict.Report([Test(name='same'), Test(name='same')])
        for number, word in enumerate(('ok', 'not ok')):
            for line in (
                f'## begin {number}',
                'TAP version 13',
                '1..1',
                f'{word} 1 a',
                '',
                f'## end {number} {number}',
            ):
                results.line(line)
        self.assertEqual(dict(results.verdict()), {'passed': 1, 'failed': 1})


class Checks(unittest.TestCase):
    def test_a_die_fails_the_check_and_a_signal_ends_all(self):
        def dies():
            fail('on purpose')

        def is_terminated():
            sys.exit(TERMINATED)

        self.assertEqual(check.outcome(dies)[0], 'failed')
        with self.assertRaises(SystemExit):
            check.outcome(is_terminated)

    def lanes(self, reading, compiling):
        """`make check` of one check that reads and one that compiles: lines of Python."""
        script = (
            'import os, signal, threading, time\n'
            'from kit import cli\nfrom kit.check import check\n'
            'from kit.errors import fail\nfrom kit.process import output\n'
            'event = threading.Event()\n'
            f'def reads():\n    """a"""\n    {reading}\n'
            f'def compiles():\n    """b"""\n    {compiling}\n'
            'cli.guarded(lambda: print(check.run([{"r": reads}, {"c": compiles}],'
            ' lambda: None)), "check")\n'
        )
        # the test may have been started with nohup
        return subprocess.run(
            [sys.executable, '-B', '-c', script],
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def test_lanes_run_side_by_side(self):
        done = self.lanes('assert event.wait(20)', 'event.set(); fail("on purpose")')
        self.assertEqual(done.stdout.splitlines()[-1], "{'c': 'failed', 'r': 'passed'}", done)

    def test_a_signal_ends_both_lanes(self):
        self.ends_both_lanes('SIGTERM')

    def test_a_closed_terminal_ends_both_lanes(self):
        self.ends_both_lanes('SIGHUP')

    def ends_both_lanes(self, name):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, 'pid')
            done = self.lanes(
                f'output(["sh", "-c", "echo $$ >{file}.new; mv {file}.new {file}; exec sleep 60"])',
                f'while not os.path.exists("{file}"): time.sleep(0.1)\n'
                f'    os.kill(os.getpid(), signal.{name}); time.sleep(20)',
            )
            self.assertEqual(done.returncode, TERMINATED, done)
            child = Path('/proc', file.read_text().strip(), 'cmdline')
        # it was sent its signal: a busy machine takes a while to end it
        for _ in range(200):
            try:
                if not child.read_bytes():  # dead, nobody has asked for its status
                    return
            except OSError:
                return
            time.sleep(0.1)
        self.fail(f'{child} goes on')


class Tables(unittest.TestCase):
    def test_worse_rows_come_first(self):
        rows = [
            {'base': 2, 'patched': 1, 'ratio': 2, 'better': 'lower'},
            {'base': 1, 'patched': 2, 'ratio': 0.5, 'better': 'lower'},
            {'base': 2, 'patched': 1, 'ratio': 0.5, 'better': 'higher'},
            {'base': 1, 'patched': 0, 'ratio': None, 'better': 'lower'},
        ]
        self.assertEqual([table.better(row) for row in rows], [1, 0.5, 0.5, 1])

    def test_a_part_takes_the_place_of_its_rows(self):
        def row(metric, base):
            return measure.row(metric, [[base]], [[1]])

        topic = mock.Mock(PARTS={'locks': lambda *_: ([row('lock', 5)], 'tcg')})
        record = {'command': 'make bench', 'rows': [row('lock', 3), row('time', 2)]}
        with (
            mock.patch('kit.topics.benchmark', lambda _: topic),
            mock.patch('kit.bench.measure.load', lambda _: record),
        ):
            data = bench.with_part('x', 'locks', measure.Bench(), {}, 'make bench PART=locks')
            self.assertEqual(
                [(each['metric'], each['base']) for each in data['rows']],
                [('time', 2), ('lock', 5)],
            )
            self.assertEqual(measure.commands(data), '`make bench`; `make bench PART=locks`')
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KitError):
                bench.with_part('x', 'time', measure.Bench(), {}, '')

    def test_a_ratio_is_within_its_range(self):
        # of all figures together patched is faster than of either boot by itself
        row = measure.row('x', [[1, 1, 9], [4, 9, 9]], [[1, 1, 1], [1, 4, 9]])
        self.assertEqual((row['ratio'], row['min'], row['max']), (6.5, 1, 6.5))
        self.assertFalse(table.outside(row))
        self.assertTrue(table.outside({**row, 'max': 2}))


if __name__ == '__main__':
    unittest.main()
