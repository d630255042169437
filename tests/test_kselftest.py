# SPDX-License-Identifier: GPL-2.0-only
"""KSELFTEST= and result files: a toy suite is built, and a fake guest runs it."""

import contextlib
import io
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from kit import cli
from kit.build import config, selftest
from kit.errors import KitError
from kit.model import Test, machine
from kit.paths import LINUX
from kit.source import user_tree
from kit.source.git import git
from kit.test import kselftest, results, test, verdict
from kit.vm import guest

KERNEL = 'VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 0\nEXTRAVERSION =\n'
# Has the variables of lib.mk. Each program is a shell script, copied by a rule of this Makefile.
MAKEFILE = """TEST_GEN_PROGS := ktap plain skips hangs
TEST_GEN_PROGS_EXTENDED := extra broken
TEST_PROGS := script.sh needs.pl
TEST_FILES := data
TEST_GEN_PROGS := $(patsubst %,$(OUTPUT)/%,$(TEST_GEN_PROGS))
TEST_GEN_PROGS_EXTENDED := $(patsubst %,$(OUTPUT)/%,$(TEST_GEN_PROGS_EXTENDED))
all: $(TEST_GEN_PROGS) $(TEST_GEN_PROGS_EXTENDED)
$(OUTPUT)/%: %.in
\tcp $< $@
\tchmod +x $@
"""
KTAP = """#!/bin/sh
echo TAP version 13
echo 1..3
echo ok 1 good
echo not ok 2 bad
echo 'ok 3 none # SKIP no such device'
exit 1
"""
FILES = {
    'Makefile': MAKEFILE,
    'config': 'CONFIG_NET=y\nCONFIG_ODD=m\n',
    'settings': 'timeout=1\n',
    'config.x86_64': 'CONFIG_HERE=y\n',
    'data/file': 'text\n',
    'ktap.in': KTAP,
    'plain.in': '#!/bin/sh\ncat data/file\n',
    'extra.in': '#!/bin/sh\nexit 3\n',
    'skips.in': '#!/bin/sh\necho no such thing here\nexit 4\n',
    'hangs.in': '#!/bin/sh\nexec sleep 30\n',
    'script.sh': '#!/bin/sh\n./plain\n',
    'needs.pl': '#!/usr/bin/env perl\n',
}


class Headers(unittest.TestCase):
    def test_objects_of_a_header_that_is_gone(self):
        top = Path(tempfile.mkdtemp(prefix='headers-'))
        self.addCleanup(shutil.rmtree, top)
        (top / 'here.h').touch()
        for name, header in (('new', 'here.h'), ('old', 'lib/gone.h')):
            (top / f'{name}.d').write_text(f'{name}.o: {name}.c \\\n {header}\n')
            (top / f'{name}.o').touch()
        selftest.forget_old_headers(top, top)
        self.assertEqual({path.name for path in top.iterdir()}, {'here.h', 'new.d', 'new.o'})


class Toy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='kselftest-')
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)
        self.tree = self.work / 'tree'
        self.suite = self.tree / selftest.BELOW / 'toy'
        for name, text in FILES.items():
            (self.suite / name).parent.mkdir(parents=True, exist_ok=True)
            (self.suite / name).write_text(text)
        (self.suite / 'script.sh').chmod(0o755)
        (self.tree / 'Makefile').write_text(KERNEL)
        git('init', '-q', cwd=self.tree)
        git('add', '-A', cwd=self.tree)
        git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'x', cwd=self.tree)
        self.kernels = []
        for target, fake in (
            (user_tree, {'BUILD': self.work / 'build'}),
            (kselftest, {'install_headers': lambda *_: None, 'PATIENCE': 5}),
            (kselftest.kernel, {'build': self.built}),
            (guest, {'run_guest': self.booted}),
        ):
            patch = mock.patch.multiple(target, **fake)
            patch.start()
            self.addCleanup(patch.stop)

    def built(self, *kernel):
        self.kernels.append(kernel)
        return self.work / 'image'

    def booted(self, _, image, job, files, options, on_line=None, **__):
        """Runs the job on the host instead of in a guest."""
        inside = self.work / 'guest'
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir()
        for file in files:
            shutil.copy(file, inside)
        job = job.replace('/tmp', str(inside)).replace('/job/', f'{inside}/')
        done = subprocess.run(
            ['sh', '-c', job], capture_output=True, text=True, check=False, timeout=60
        )
        for line in (done.stdout + done.stderr).splitlines():
            on_line(line)
        self.options = options
        return guest.Outcome(guest.OK, 'ok', '', 0, 'tcg', inside, 1.0, 1.0, None)

    def call(self, words, **given):
        """(exit status, output, results of the boot)"""
        said, kept = io.StringIO(), []
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = kselftest.main(words, linux=str(self.tree), tell=kept.append, **given)
            except KitError as error:
                status = f'died {error.code}'
                print(error)
        found = {
            result.name
            if result.name != result.program
            else result.program.split(':')[1]: result.word
            for boot in kept
            for result in boot.results
        }
        return status, said.getvalue(), found


@unittest.skipUnless((LINUX / 'tools/testing/kunit').exists(), 'no linux/ here')
class Kselftest(Toy):
    def test_one_program(self):
        status, said, found = self.call('toy:plain', arch='x86_64', iommu='virtio', cpus=3)
        self.assertEqual((status, found), (guest.OK, {'plain': 'passed'}), said)
        self.assertEqual(
            [(machine.arch, flavour, tree.root) for machine, flavour, tree in self.kernels],
            [('x86_64', 'plain@toy', self.work / 'build/own')],
        )
        self.assertEqual((self.options.iommu, self.options.cpus), ('virtio', 3))
        self.assertEqual(said.splitlines()[-1], '1 passed, 0 failed, 0 skipped')
        made = self.work / 'build/own/build/x86_64-kselftest/toy'
        self.assertFalse((made / 'ktap').exists(), 'more was built than was asked for')

    def test_a_whole_suite(self):
        status, said, found = self.call('toy')
        self.assertEqual(
            found,
            {
                'good': 'passed',
                'bad': 'failed',
                'none': 'skipped',
                'plain': 'passed',
                'skips': 'skipped',
                'hangs': 'failed',
                'script.sh': 'passed',
            },
            said,
        )
        self.assertEqual(status, guest.FAILED)
        for line in (
            'FAILED toy:hangs: timed out',
            'FAILED toy:ktap: bad: failure',
            'cannot run toy:needs.pl: the guest has no perl',
            'was not built completely',
        ):
            self.assertIn(line, said)
        self.assertNotIn('toy:extra', said)  # it is built, but not run

    def test_programs_that_the_makefile_does_not_run(self):
        self.assertEqual(self.call('toy:extra')[::2], (guest.FAILED, {'extra': 'failed'}))
        status, said, _ = self.call('toy:broken')
        self.assertEqual((status, self.kernels[1:]), ('died 1', []), said)
        self.assertIn('cannot run toy:broken: it was not built', said)
        self.assertIn('has no program none (it has: broken', self.call('toy:none')[1])
        self.assertIn('no suite no', self.call('no:ktap')[1])

    def test_a_suite_of_other_architectures(self):
        (self.suite / 'Makefile').write_text(
            f'ifeq ($(ARCH),x86_64)\n{MAKEFILE}else\nall:\nendif\n'
        )
        self.assertEqual(self.call('toy:plain')[0], guest.OK)
        status, said, _ = self.call('toy', arch='arm64')
        self.assertEqual(status, 'died 1')
        self.assertIn('cannot run toy: its Makefile has no programs for arm64', said)

    def test_what_was_built_of_other_sources_is_not_run(self):
        self.call('toy:plain')
        (self.suite / 'plain.in').unlink()
        self.assertEqual(self.call('toy:plain')[0], 'died 1')


class Kernel(Toy):
    def test_symbols_of_the_suite_win_and_topics_are_left_out(self):
        wanted = {}
        with mock.patch.object(config.topics, 'order', self.fail):
            for _, symbols in config.fragments(machine('x86_64'), 'plain@toy', self.tree):
                wanted |= symbols
        self.assertEqual([wanted[name] for name in ('NET', 'ODD', 'HERE')], ['y', 'y', 'y'])
        self.assertEqual(wanted['BLOCK'], 'n')
        self.assertEqual(config.parts_of('plain+rt@mm,net'), ('plain', ['rt'], ['mm', 'net']))
        self.assertEqual(config.parts_of('plain')[2], None)

    def test_symbols_that_cannot_be_set_are_named(self):
        for flavour, dies in ('plain@toy', False), ('plain', True):
            folder = self.work / 'out'
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / '.config').write_text('')
            said = io.StringIO()
            with (
                mock.patch.multiple(
                    config,
                    source=lambda _: self.tree,
                    inputs=lambda *_: '',
                    generate=lambda *_: {'ODD': 'n'},
                    known_symbols=lambda *_: {'ODD'},
                    fragments=lambda *_: [(self.suite / 'config', {'ODD': 'y'})],
                ),
                contextlib.redirect_stderr(said),
            ):
                with self.assertRaises(KitError) if dies else contextlib.nullcontext():
                    config.configure(
                        machine('x86_64'), flavour, mock.Mock(**{'out.return_value': folder})
                    )
            self.assertIn(
                'CONFIG_ODD=y was requested but is n (its dependencies?)', said.getvalue()
            )


@unittest.skipUnless((LINUX / 'tools/testing/kunit').exists(), 'no linux/ here')
class Results(unittest.TestCase):
    LINES = [
        'TAP version 13',
        '1..4',
        '# why # it is',
        'not ok 1 bad',
        'ok 2 good',
        'ok 3 none # SKIP no device',
        'ok 4 <odd> & "names"',
    ]

    def boots(self):
        tests = [Test(name='mm:a', tap=None, skips=kselftest.SKIPS), Test(name='b')]
        said = verdict.Report(tests)
        with contextlib.redirect_stdout(io.StringIO()):
            for line in [
                '## begin 0',
                *self.LINES,
                '## end 0 1',
                '## begin 1',
                'TAP version 13',
                '1..1',
                'ok 1 b',
                '## end 1 3',
            ]:
                said.line(line)
        lost = guest.Outcome(guest.LOST, 'guest lost', '  the console', None, 'tcg', '', 1, 1, None)
        return [results.ended_of('x86_64 plain', 'x86_64', said, lost)]

    def test_ktap_is_read_by_the_kernel_as_it_was_meant(self):
        parsed, status = verdict.parse(results.ktap(self.boots()).splitlines())
        found = [(path.split('.', 1)[1], each.status) for path, each in verdict.leaves(parsed)]
        self.assertEqual(parsed.counts.errors, 0)
        self.assertEqual(
            found,
            [
                ('mm:a.bad', status.FAILURE),
                ('mm:a.good', status.SUCCESS),
                ('mm:a.none', status.SKIPPED),
                ('mm:a.<odd> & "names"', status.SUCCESS),
                ('b.the program', status.SUCCESS),
                ('b.the program', status.FAILURE),
                ('guest', status.FAILURE),
            ],
        )

    def test_junit(self):
        (suite,) = ElementTree.fromstring(results.junit(self.boots()))
        self.assertEqual(
            suite.attrib, {'name': 'x86_64 plain', 'tests': '7', 'failures': '3', 'skipped': '1'}
        )
        cases = [
            (case.get('classname'), case.get('name'), [each.tag for each in case]) for case in suite
        ]
        self.assertEqual(cases[0], ('mm:a', 'bad', ['failure']))
        self.assertEqual(
            cases[2:4], [('mm:a', 'none', ['skipped']), ('mm:a', '<odd> & "names"', [])]
        )
        self.assertEqual(
            cases[-3:],
            [
                ('b', 'the program', []),
                ('b', 'the program', ['failure']),
                ('guest', 'the program', ['failure']),
            ],
        )

    def test_kernelci(self):
        whole = json.loads(results.kernelci(self.boots()))
        (program,) = [
            each for each in whole['sub_groups'][0]['sub_groups'] if each['name'] == 'mm:a'
        ]
        self.assertEqual(
            [each['status'] for each in program['test_cases']], ['FAIL', 'PASS', 'SKIP', 'PASS']
        )
        self.assertEqual((whole['arch'], whole['misc']['failed']), ('x86_64', 3))

    def test_a_file_of_results_is_written_whatever_the_boots_gave(self):
        def boot_all(asked, tell, _):
            self.assertEqual(asked, test.Asked(full=True))
            for boot in self.boots():
                tell(boot)
            return guest.LOST

        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(test, 'boot_all', boot_all),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            for suffix in results.WRITERS:
                path = cli.results_file(f'{folder}/x{suffix}')
                self.assertEqual(test.main(full=True, results=path), guest.LOST)
                self.assertTrue(path.read_text())
            for wrong in f'{folder}/x.txt', f'{folder}/none/x.xml':
                with self.assertRaises(cli.argparse.ArgumentTypeError):
                    cli.results_file(wrong)
