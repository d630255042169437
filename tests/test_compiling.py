# SPDX-License-Identifier: GPL-2.0-only
"""The checks that run a compiler: which files they compile, which messages they report."""

import contextlib
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.check import compiling
from kit.check.common import Failed
from kit.model import Compile
from kit.process import Done
from tests.support import X86_64


class Compiling(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        self.changed = contextlib.ExitStack()
        self.addCleanup(self.changed.close)

    def patch(self, **names):
        self.changed.enter_context(mock.patch.multiple(compiling, **names))

    def write(self, name, text=''):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class Lines(Compiling):
    def test_lines_of_gcc_are_paths_of_the_tree(self):
        self.patch(linux_of=lambda _: self.top)
        log = self.write(
            'log',
            f'  CC      mm/a.o\n{self.top}/mm/a.c:1:2: warning: x\n'
            '../../linux/mm/b.h:3: error: y\nmm/c.c:1: note: z\n',
        )
        self.assertEqual(
            compiling.gcc_says(log, 'x86_64'), ['mm/a.c:1:2: warning: x', 'mm/b.h:3: error: y']
        )

    def test_a_commit_with_a_warning_of_ours_fails_and_is_compiled_again(self):
        said, known, built = ['mm/of_others.c:1: warning: x'], set(), []
        self.patch(
            build_key=lambda *_: '',
            passed_before=known.__contains__,
            passed_now=known.add,
            checkout=lambda *_: None,
            subject=lambda _: 'x',
            flavour_of=lambda _: 'plain',
            gcc_says=lambda *_: said,
            series=lambda: mock.Mock(files=['mm/ours.c']),
            say=lambda _: None,
        )
        with mock.patch.object(compiling.kernel, 'build', lambda *words: built.append(words[-1])):
            said.append('mm/ours.c:1: warning: x')
            for _ in range(2):
                with self.assertRaisesRegex(Failed, 'mm/ours.c:1: warning'):
                    compiling.build_commit('one', 'commit', 'x86_64', ['mm/ours.o'])
            said.pop()
            for _ in range(2):
                compiling.build_commit('one', 'commit', 'x86_64', ['mm/ours.o'])
        self.assertEqual(built, [['mm/ours.o']] * 3)


class Objects(Compiling):
    """The objects to compile for a patch that changes mm/ours.c and a header. drivers/user.c
    includes the header."""

    def objects(self, touched, listed):
        series = mock.Mock(
            topic_files={'topic': ['mm/ours.c', 'mm/later.c']},
            kernel_files=lambda files: [path for path in files if path.endswith('.c')],
        )
        self.patch(
            touched=lambda *_: touched,
            series=lambda: series,
            users=lambda: {'linux/ours.h': ['drivers/user.c']},
            bisected=lambda _: mock.Mock(out=lambda *_: self.top),
            flavour_of=lambda _: 'plain',
            git=lambda *words: '\n'.join(path for path in listed if path in words),
        )
        for name in ('mm/ours', 'mm/later', 'drivers/user'):
            folder, base = name.split('/')
            self.write(f'{folder}/.{base}.o.cmd', f'savedcmd_{name}.o := gcc\n')
        return compiling.objects_of('topic', 'commit', 'below', 'x86_64')

    def test_what_a_patch_changes_and_who_includes_it(self):
        present = ['mm/ours.c', 'mm/later.c', 'drivers/user.c']
        found = self.objects(['mm/ours.c', 'include/linux/ours.h'], present)
        self.assertEqual(found, ['drivers/user.o', 'mm/later.o', 'mm/ours.o'])
        self.assertEqual(self.objects(['mm/ours.c'], ['mm/ours.c']), ['mm/ours.o'])

    def test_architectures_for_which_a_patch_must_compile(self):
        files = ['mm/a.c', 'arch/arm64/b.c', 'arch/powerpc/c.c']
        self.patch(
            series=lambda: mock.Mock(topic_files={'fixes': files, 'topic': files[:2]}),
            topics=mock.Mock(is_single=lambda topic: topic == 'fixes'),
        )
        self.assertEqual(compiling.archs_of('fixes', files[2:]), {'powerpc'})
        self.assertEqual(compiling.archs_of('topic', files[:1]), {'x86_64', 'arm64'})

    def test_an_object_of_another_folder_s_makefile(self):
        self.objects([], [])
        self.assertTrue(compiling.made_by_its_folder(self.top, 'mm/ours'))
        self.assertFalse(compiling.made_by_its_folder(self.top, 'mm/absent'))
        self.write('mm/.ours.o.cmd', 'savedcmd_mm/vhe/../ours.o := gcc\n')
        self.assertFalse(compiling.made_by_its_folder(self.top, 'mm/ours'))

    def test_headers_are_known_by_what_includes_them(self):
        for path in ('include/linux/x.h', 'arch/x86/include/linux/x.h'):
            self.assertEqual(compiling.header_name(path), 'linux/x.h')


class Small(Compiling):
    """Small configurations."""

    CONFIG = Compile(
        name='up', arch='x86_64', symbols='64BIT', topic='topic', without=('drivers/',)
    )

    def test_files_that_such_a_kernel_has(self):
        files = ['mm/a.c', 'drivers/b.c', 'arch/x86/c.c', 'arch/arm64/d.c']
        series = mock.Mock(topic_files={'topic': files}, kernel_files=lambda files: files)
        self.patch(series=lambda: series)
        self.assertEqual(compiling.files_for(self.CONFIG), ['mm/a.c', 'arch/x86/c.c'])

    def test_findings_of_the_base_are_not_the_series(self):
        of_base, ours = 'mm/a.c:1: warning: old', 'mm/a.c:9: warning: new'
        said = {'base': (0, [of_base], self.top), 'tip': (0, ['mm/a.c:2: warning: old'], self.top)}
        self.patch(
            compile_touched=lambda config, commit, files: said[commit],
            base_file=lambda _: b'',
            subject=lambda _: 'the subject',
            TOP=self.top,
        )
        self.assertEqual(compiling.compile_new(self.CONFIG, 'tip', ['mm/a.c']), [])
        said['tip'] = 0, [*said['tip'][1], ours], self.top
        self.assertEqual(
            compiling.compile_new(self.CONFIG, 'tip', ['mm/a.c']), ['topic up, the subject:', ours]
        )
        said['tip'] = 2, [], self.top / 'log'
        self.assertIn('make ends with 2: log', compiling.compile_new(self.CONFIG, 'tip', []))

    def test_what_linking_would_find(self):
        self.write('a.o')
        undefined = ['__divdi3', 'absent', 'there', '__this_module', '__SCT__x']
        self.patch(
            exported_symbols=lambda _: {'there'}, result=lambda _: Done(0, '\n'.join(undefined), '')
        )

        def unresolved(flags):
            self.write('.a.o.cmd', f'savedcmd_a.o := gcc {flags} -o a.o a.c\n')
            return compiling.unresolved(self.top, ['a.o', 'gone.o'], X86_64, 'tip')

        built_in = ['a.o: __divdi3']
        self.assertEqual(unresolved("-DKBUILD_BASENAME='a' -DKBUILD_MODNAME='a'"), built_in)
        module = "-DMODULE -DKBUILD_BASENAME='a' -DKBUILD_MODNAME='{}'"
        not_there = [f'a.o: {name} is not exported' for name in undefined[:2]]
        self.assertEqual(unresolved(module.format('a')), built_in + not_there)
        # another object of the module may define it
        self.assertEqual(unresolved(module.format('b')), built_in)
