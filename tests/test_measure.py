# SPDX-License-Identifier: GPL-2.0-only
"""Records: resumed measurements, parts, tables."""

import contextlib
import fcntl
import io
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kit import topics
from kit.bench import bench, measure, table
from kit.errors import KitError
from kit.model import Options


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
                    file.write('[["hal\n')  # a process was killed while it wrote this line
            self.assertEqual(booted, ['first', 'second'])
            image.write_text('other')
            here.figures_of('x86_64', image, 'job', [], Options(), 'second')
            self.assertEqual(booted, ['first', 'second', 'second'])

    def test_the_kernels_are_one_benchmarks_at_a_time(self):
        held = []

        def trees(topic):
            with open(Path(folder) / 'bench/.lock', encoding='ascii') as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(topic)
            raise KitError('seen')

        topic = next(iter(topics.measured()))
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(bench, 'BUILD', Path(folder)),
            mock.patch.object(bench.alone, 'trees', trees),
            self.assertRaisesRegex(KitError, 'seen'),
        ):
            bench.main(topic)
        self.assertEqual(held, [topic])


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
        def row(metric, base, **more):
            return measure.row(metric, [[base]], [[1]], **more)

        command = 'make bench PART=locks'
        topic = mock.Mock(PARTS={'locks': lambda *_: ([row('lock', 5, cpus=1)], 'tcg')})
        record = {
            'command': 'make bench',
            'rows': [
                row('lock', 3, cpus=1),
                row('lock', 4, cpus=2),  # belongs to another part
                {**row('lock', 6, cpus=3), 'command': command},  # the part no longer has this row
                row('time', 2),
            ],
        }
        with (
            mock.patch('kit.topics.benchmark', lambda _: topic),
            mock.patch('kit.bench.measure.load', lambda _: record),
            mock.patch('kit.bench.provenance.measured', lambda _: {'code': {}}),
        ):
            data = bench.with_part('x', 'locks', measure.Bench(), {}, command)
            self.assertEqual(
                [(each['metric'], each['base']) for each in data['rows']],
                [('lock', 4), ('time', 2), ('lock', 5)],
            )
            self.assertEqual(measure.commands(data), '`make bench`; `make bench PART=locks`')
            self.assertEqual(list(data['parts']), [command])
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(KitError):
                bench.with_part('x', 'time', measure.Bench(), {}, '')

    def test_a_record_names_what_is_below(self):
        with (
            mock.patch.object(measure, 'release', lambda _: '7.3.4'),
            mock.patch.object(measure.provenance, 'of', lambda _: {}),
            mock.patch.object(bench.provenance, 'below', lambda _: {'fixes': '', 'x': '', 'y': ''}),
        ):
            self.assertEqual('v7.3.4', measure.record('y', 'c', [], 'tcg')['base'])
            made = bench.new_record('y', 'c', [], 'tcg,thread=single')
            self.assertEqual(('v7.3.4 with fixes, x', 'tcg'), (made['base'], made['accelerator']))

    def test_a_ratio_is_within_its_range(self):
        # the ratio of all boots' figures is larger than the ratio of any single boot
        row = measure.row('x', [[1, 1, 9], [4, 9, 9]], [[1, 1, 1], [1, 4, 9]])
        self.assertEqual((row['ratio'], row['min'], row['max']), (6.5, 1, 6.5))
        self.assertFalse(table.outside(row))
        self.assertTrue(table.outside({**row, 'max': 2}))

    def test_nothing_left_is_infinitely_better(self):
        row = measure.row('x', [[1], [1], [1]], [[1], [0], [0]], 'IPIs')
        self.assertEqual((row['ratio'], row['min'], row['max']), (None, 1, None))
        self.assertFalse(table.outside(row))
        row = measure.row('x', [[2], [2], [0]], [[1], [1], [0]], 'IPIs')
        self.assertEqual((row['ratio'], row['min'], row['max']), (2, 1, 2))
        row = measure.row('x', [[2], [4]], [[1], [4]], 'faults/s', 'higher')
        self.assertEqual((row['base'], row['ratio'], row['min']), (3, 0.833, 0.5))
        row = measure.row('x', [[2], [4]], [[1], [4]], middle=max)
        self.assertEqual((row['base'], row['ratio'], row['min']), (4, 1, 1))

    def test_a_range_ends_with_the_ratio(self):
        topic = mock.Mock(HEAD=['what'], describe=lambda row: [row['metric']], note=lambda _: 'x')
        rows = [measure.row('x', [[1], [1], [1]], [[1], [0], [0]], 'IPIs')]
        # a record that excludes boots in which `patched` is 0
        rows.append({**rows[0], 'max': 1.0})
        with mock.patch('kit.topics.benchmark', lambda _: topic):
            _, lines = table.cells({'topic': 'x', 'rows': rows})
        self.assertEqual([line[-2:] for line in lines], [['-', '1.000–∞']] * 2)

    def test_a_page_folds_all_but_ten_rows(self):
        topic = mock.Mock(
            HEAD=['what'],
            describe=lambda row: [row['metric']],
            note=lambda _: 'the note',
            cover=lambda row: row['metric'] == 'gain9',
        )
        gains = [measure.row(f'gain{number}', [[2]], [[1]]) for number in range(10)]
        worse = measure.row('worse', [[1]], [[2]])
        with (
            mock.patch('kit.topics.benchmark', lambda _: topic),
            mock.patch.object(table.provenance, 'mark', lambda _: ''),
        ):
            short = table.markdown({'topic': 'x', 'rows': gains})
            long = table.markdown({'topic': 'x', 'rows': [*gains, worse]})
        self.assertNotIn('<details>', short)
        top, folded = long.split('<details>')
        self.assertEqual(re.findall(r'^\| (\w+) ', top, re.M)[1:], ['worse', 'gain9'])
        self.assertIn('All 11 rows', folded)
        self.assertEqual(len(re.findall(r'^\| (?:gain|worse)', folded, re.M)), 11)

    def test_topics_make_rows_with_the_kit(self):
        for topic in topics.measured():
            # a topic may use the functions of another topic
            own = getattr(topics.benchmark(topic), 'row', measure.row)
            self.assertIs(own, measure.row, topic)

    def test_seconds_that_the_boots_do_not_agree_about_are_marked(self):
        topic = mock.Mock(HEAD=['what'], describe=lambda row: [row['metric']], note=lambda _: 'x')
        rows = [
            measure.row('agreed', [[2], [3]], [[1], [1]]),
            measure.row('noise', [[2], [1]], [[1], [2]]),
            measure.row('counted', [[2], [1]], [[1], [2]], 'instructions'),
            {**measure.row('nothing', [[2], [1]], [[1], [2]]), 'ratio': None, 'min': None},
        ]
        with mock.patch('kit.topics.benchmark', lambda _: topic):
            said = table.text({'topic': 'x', 'rows': rows})
        marked = [line.split()[0] for line in said.splitlines() if line.endswith('?')]
        self.assertEqual(marked, ['noise'])
        self.assertIn('the range of the ratio includes 1', said)
