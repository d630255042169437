# SPDX-License-Identifier: GPL-2.0-only
"""The command line: valid words, invalid words, and --help, which has no effects."""

import contextlib
import importlib
import inspect
import io
import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from kit import cli
from kit.errors import KitError
from tests.support import TOP


def function_of(verb):
    module, _, name = verb.function.rpartition('.')
    return getattr(importlib.import_module(f'kit.{module}'), name)


class CommandLine(unittest.TestCase):
    def call(self, *words, **env):
        """(exit status, output, [(verb's function, options)], [arguments of cli.prepare()])"""
        said, called, prepared = io.StringIO(), [], []
        with (
            mock.patch.object(sys, 'argv', ['kit', *words]),
            mock.patch.dict('os.environ', env, clear=True),
            mock.patch.object(cli, 'prepare', lambda *given: prepared.append(given)),
            mock.patch.object(
                cli, 'call', lambda verb, given: called.append((verb.function, given))
            ),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(said),
        ):
            try:
                cli.main()
                status = 0
            except SystemExit as error:  # argparse exits after --help
                status = error.code
            except KitError as error:
                status = error.code
                said.write(str(error))
        return status, said.getvalue(), called, prepared

    def options(self, *words, **env):
        status, said, called, _ = self.call(*words, **env)
        self.assertEqual(status, 0, said)
        return called[0][1]

    def refused(self, *words, says, **env):
        status, said, called, prepared = self.call(*words, **env)
        self.assertEqual((status, called, prepared), (2, [], []), said)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn(says, said)

    def test_help_does_nothing(self):
        for name, verb in cli.VERBS.items():
            status, said, called, prepared = self.call(name, '--help', TEST='(', FULL='x', TO='x')
            self.assertEqual((status, called, prepared), (0, [], []), name)
            for option in verb.names():
                self.assertIn(f'--{option}', said)
        status, said, called, prepared = self.call('--help')
        self.assertEqual((status, called, prepared), (0, [], []))
        self.assertFalse(set(cli.VERBS) - set(re.findall(r'^    (\w+)', said, re.M)))

    def test_what_is_unknown_is_refused(self):
        self.refused(says='required: VERB')
        self.refused('frobnicate', says="'frobnicate'")
        self.refused('tree', 'keep', says='unrecognized arguments: keep')
        self.refused('tree', '--no-keep', says='unrecognized arguments: --no-keep')
        self.refused('test', '--frob', '3', says='unrecognized arguments: --frob 3')
        self.refused('test', '--flav', 'debug', says='unrecognized')  # no abbreviations
        self.refused('bench', '--flavour', 'debug', says='unrecognized arguments: --flavour')
        self.refused('boot', 'x86_64', says='required')
        self.refused('run', '--runs', 'many', says='many: expected a positive number')
        self.refused('run', '--runs', '0', says='0: expected a positive number')
        self.refused('test', '--test', '(', says='(')

    def test_options_and_variables_are_the_same(self):
        wanted = {'topic': 'x', 'runs': 3, 'full': True}
        self.assertEqual(self.options('bench', '--topic', 'x', '--runs', '3', '--full'), wanted)
        self.assertEqual(self.options('bench', TOPIC='x', RUNS='3', FULL='1', PART=''), wanted)
        self.assertEqual(self.options('bench', '--runs', '4', RUNS='3'), {'runs': 4})
        self.assertEqual(self.options('bench', FULL='0'), {'full': False})
        self.assertEqual(self.options('tree', '--keep', KEEP='1'), {'keep': True})
        self.refused('run', says='RUNS=many: expected a positive number', RUNS='many')
        self.refused('test', says='TEST=(: ', TEST='(')
        self.refused('test', says='FULL=yes: expected 1', FULL='yes')
        self.refused('bench', says='FLAVOUR= is not an option of bench (known: TOPIC', FLAVOUR='x')

    def test_names_that_a_shell_may_have(self):
        made = {'ARCH': 'arm64', 'MAKEFLAGS': 's -- TEST=a\\ SEED=b ARCH=arm64'}
        self.assertEqual(self.options('test', **made), {'arch': 'arm64'})
        self.refused('tree', says='ARCH= is not an option of tree', **made)
        self.assertEqual(self.options('tree', ARCH='arm64', SEED='1', MEM='x'), {})
        self.assertEqual(self.options('tree', SEED='1', MAKEFLAGS=made['MAKEFLAGS'], ARCH=''), {})
        self.refused('shell', says='MEM=x is exported: use `make shell MEM=x` or --mem x', MEM='x')
        self.assertEqual(self.options('shell', '--mem', '4G', MEM='x'), {'mem': '4G'})
        self.assertEqual(self.options('export', STABLE_GIT='x'), {})

    def test_a_kselftest_of_a_tree(self):
        wanted = {'kselftest': 'timers:posix_timers', 'linux': '~/linux', 'arch': 'arm64'}
        self.assertEqual(
            self.options(
                'test', '--tree', '~/linux', '--arch', 'arm64', '--kselftest', 'timers:posix_timers'
            ),
            wanted,
        )
        self.assertEqual(
            self.options(
                'test',
                KSELFTEST='timers:posix_timers',
                LINUX='~/linux',
                ARCH='arm64',
                MAKEFLAGS=' -- ARCH=arm64',
            ),
            wanted,
        )
        self.refused(
            'test', '--kselftest', 'mm', '--full', says='FULL= cannot be combined with KSELFTEST='
        )
        self.refused('test', '--results', 'x.txt', says='one of .ktap .xml .json')

    def test_a_boot_mixes_files_and_options(self):
        given = self.options('boot', 'x86_64', 'plain', 'base', 'job', '--cpus', '3', 'file')
        self.assertEqual((given['cpus'], given['files']), (3, [Path('file')]))
        self.assertNotIn('files', self.options('boot', 'x86_64', 'plain', 'base', 'job'))

    def test_a_table_with_a_machine(self):
        for word in '--with', '--machine':
            given = self.options('table', 'topic', word, 'file')
            self.assertEqual(given, {'topic': 'topic', 'machine': 'file'})

    def test_verbs_take_what_they_are_given(self):
        for name, verb in cli.VERBS.items():
            known = inspect.signature(function_of(verb)).parameters
            if any(each.kind == each.VAR_KEYWORD for each in known.values()):
                continue
            given = {*verb.words, *(option.replace('-', '_') for option in verb.options.split())}
            if not verb.needs:  # without preparation, the function gets all options
                given |= {option.replace('-', '_') for option in verb.setup.split()}
            self.assertFalse(given - set(known), name)

    def test_no_other_module_reads_the_command_line(self):
        for path in {*TOP.glob('kit/**/*.py'), *TOP.glob('series/*/measure.py')} - {
            TOP / 'kit/cli.py'
        }:
            text = path.read_text()
            self.assertNotIn('argv', text, path)
            read = set(re.findall(r"""environ(?:\.get\(|\[)['"](\w+)""", text))
            self.assertEqual(read & set(cli.VARIABLES), set(), path)

    def test_make_has_the_verbs(self):
        named = re.search(r'^VERBS := (.*)$', (TOP / 'Makefile').read_text(), re.M)[1].split()
        self.assertEqual(named, [name for name, verb in cli.VERBS.items() if verb.make])


class Ends(unittest.TestCase):
    """The exit status and output of a program, for each way in which it can end."""

    def ended(self, body):
        script = (
            'import errno, os, sys\nfrom kit import cli\nfrom kit.errors import KitError\n'
            f'def main():\n    {body}\ncli.guarded(main, "verb")\nprint("goes on")\n'
        )
        done = subprocess.run(
            [sys.executable, '-B', '-c', script],
            cwd=TOP,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def test_an_error_is_one_line(self):
        self.assertEqual(self.ended('raise KitError("no", 3)'), (3, '', 'verb: no\n'))
        full = self.ended('raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a")')
        self.assertEqual(full, (1, '', 'verb: a: No space left on device\n'))

    def test_a_bug_shows_where(self):
        for body in 'open("/no/such/file")', '1 / 0':
            status, _, said = self.ended(body)
            self.assertEqual(status, 1)
            self.assertIn('Traceback', said)

    def test_statuses(self):
        self.assertEqual(self.ended('pass'), (0, 'goes on\n', ''))
        self.assertEqual(self.ended('sys.exit(2)'), (2, '', ''))
        self.assertEqual(self.ended('raise KeyboardInterrupt'), (130, '', ''))

    def test_importing_has_no_effects(self):
        script = (
            'import importlib, pkgutil, signal, sys\nimport kit\n'
            'before = signal.getsignal(signal.SIGTERM), sys.excepthook, list(sys.path)\n'
            'for found in pkgutil.walk_packages(kit.__path__, "kit."):\n'
            '    importlib.import_module(found.name)\n'
            'assert before == (signal.getsignal(signal.SIGTERM), sys.excepthook, list(sys.path))\n'
        )
        subprocess.run([sys.executable, '-B', '-c', script], cwd=TOP, check=True)
