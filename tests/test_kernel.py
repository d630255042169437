# SPDX-License-Identifier: GPL-2.0-only
"""Kernels are built only once."""

import contextlib
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.build import kernel
from kit.build.trees import Tree
from kit.source.git import git
from tests.support import X86_64


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
                # in each tree, the suite's config file has another path
                'fragments': lambda *words: [(words[-1] / 'config', {'SMP': 'y'})],
            }.items():
                changed.enter_context(mock.patch.object(kernel, name, fake))
            kernel.build(X86_64, 'plain', bisected)
            kernel.keep(X86_64, 'plain', bisected)
            built = kernel.build(X86_64, 'plain', patched)
            self.assertEqual(built.read_text(), 'build bisect-x86_64 x86_64 plain')
            shutil.rmtree(folders['bisect-x86_64'])
            kernel.build(X86_64, 'plain', bisected)  # builds again, as the objects are needed
            changed.enter_context(mock.patch.object(kernel, 'state', lambda src: 'another'))
            kernel.build(X86_64, 'plain', patched)
            self.assertEqual(
                made, ['build bisect-x86_64 x86_64 plain'] * 2 + ['build patched x86_64 plain']
            )

    def test_modules_for_a_kernel_that_was_kept(self):
        with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as changed:
            bisected = Tree('bisect-x86_64', Path(top) / 'bisect-x86_64')
            patched = Tree('patched', Path(top) / 'patched')
            built, folder = (tree.out('x86_64', 'plain') for tree in (bisected, patched))
            configured, goals = [], []
            for name, fake in {
                'KEPT': Path(top) / 'kept',
                'source': lambda tree: tree.linux,
                'step': lambda *_, **__: None,
                'make': lambda machine, folder, src, goal: (goals.append(goal), {}),
                'configure': lambda machine, flavour, tree: configured.append(tree.name),
            }.items():
                changed.enter_context(mock.patch.object(kernel, name, fake))
            for name in (X86_64.image, 'vmlinux', 'System.map', '.stamp', 'vmlinux.symvers'):
                (built / name).parent.mkdir(parents=True, exist_ok=True)
                (built / name).write_text(name)

            kernel.keep(X86_64, 'plain', bisected)
            kernel.copy_kernel(X86_64, Path(top) / 'kept/x86_64-plain', folder)
            kernel.prepare_modules(X86_64, 'plain', patched)
            self.assertEqual((configured, goals), (['patched'], ['modules_prepare']))
            self.assertEqual((folder / 'Module.symvers').read_text(), 'vmlinux.symvers')
            (folder / 'vmlinux.o').touch()  # the kernel was built in this folder
            kernel.prepare_modules(X86_64, 'plain', patched)
            self.assertEqual((configured, goals), (['patched'], ['modules_prepare', 'modules']))

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

            # an interrupted copy has no .config
            (outs['patched'] / 'source').symlink_to(patched)
            (outs['base'] / 'source').symlink_to(patched)
            kernel.begin_as(tree, X86_64, 'plain', base, outs['base'])
            self.assertTrue((outs['base'] / 'source').is_symlink())
