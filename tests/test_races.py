# SPDX-License-Identifier: GPL-2.0-only
"""Tests which of the data races that KCSAN reports count for the series."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit.errors import KitError
from kit.soak import races, soak
from kit.source.git import git
from kit.vm import console
from tests.support import ARM64, X86_64


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
    # Console lines. {0} and {1}: the functions of the two accesses. {2} and {3}: their callers.
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
        # pop() is inlined into get(), and do_walk() into walk0(), which a macro defines
        self.assertEqual(
            races.changed_functions(X86_64, 'kcsan'), ['get', 'shrinks', 'walk0', 'x86_64_runs']
        )
        # Files that are not built are ignored. For arm64, arch/arm64/pop.c is built.
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
        return len(console.splats(text, console.splat_rules('x86_64', [races.of_others(names)])))

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
            # without the rules of races.py, each report would count
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
            [
                'soak: 3 races in code that the series does not change',
                '  2 with functions of the series in the stacks of both accesses: others / tick',
            ],
        )

    def test_a_series_that_changes_no_function_is_an_error(self):
        git('tag', '-f', 'base', cwd=self.folder)
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KitError):
            races.changed_functions(X86_64, 'kcsan')
