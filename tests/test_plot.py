# SPDX-License-Identifier: GPL-2.0-only
"""Pictures: they match their records, have the worst row on top, and show all labels in full."""

import importlib.util
import math
import unittest
from unittest import mock

from kit import topics
from kit.bench import measure, plot


def record(*rows):
    return {'topic': 'x', 'base': 'v7', 'accelerator': 'tcg', 'rows': rows}


def topic(**more):
    return mock.Mock(
        spec=['HEAD', 'describe', *more],
        HEAD=['what', 'CPUs'],
        describe=lambda row: [row['metric'], '8'],
        **more,
    )


class Rows(unittest.TestCase):
    def names(self, data, found):
        with mock.patch('kit.topics.benchmark', lambda _: found):
            return [row['metric'] for row in plot.rows_of(data)]

    def test_the_worst_is_drawn_first_whatever_the_topic_says(self):
        data = record(
            measure.row('gone', [[1]], [[0]], 'IPIs'),
            measure.row('better', [[2]], [[1]]),
            measure.row('rate', [[2]], [[3]], 'x/s', 'higher'),
            measure.row('worst', [[1]], [[3]]),
            measure.row('worse', [[1]], [[2]]),
        )
        all_of_them = ['worst', 'worse', 'rate', 'better', 'gone']
        self.assertEqual(self.names(data, topic(cover=lambda _: True)), all_of_them)
        chosen = topic(cover=lambda _: True, drawn=lambda row: row['metric'] == 'better')
        self.assertEqual(self.names(data, chosen), ['worst', 'better'])

    def test_places(self):
        row = measure.row('x', [[2], [2]], [[1], [4]], middle=max)
        self.assertEqual(plot.places(row), (0.5, 2, 2))
        row = measure.row('x', [[1], [1], [1]], [[1], [0], [0]], 'IPIs')
        self.assertEqual(plot.places(row), (0, 0, 1))
        self.assertEqual(plot.places(measure.row('x', [[0]], [[1]], 'IPIs'))[1], math.inf)

    def test_a_number_has_its_column(self):
        with mock.patch('kit.topics.benchmark', lambda _: topic()):
            self.assertEqual(plot.label(record(), {'metric': 'map, s'}), 'map, s, CPUs: 8')


@unittest.skipUnless(importlib.util.find_spec('matplotlib'), 'matplotlib is in build/tools')
class Pictures(unittest.TestCase):
    def test_each_is_that_of_its_record(self):
        import numpy
        from matplotlib import image

        for name in topics.measured():
            data = measure.load(name)
            if not data:
                continue
            figure = plot.picture(data)
            self.assertEqual(plot.faults(figure), [], name)
            figure.canvas.draw()
            drawn = numpy.asarray(figure.canvas.buffer_rgba()) / 255
            kept = image.imread(plot.path_of(name))
            why = f'python3 -m kit plot {name}'
            self.assertEqual(drawn.shape, kept.shape, why)
            self.assertLess(abs(drawn - kept).max(), 0.1, why)

    def axes(self):
        from matplotlib import pyplot

        figure, axes = pyplot.subplots()
        self.addCleanup(pyplot.close, figure)
        axes.plot([0.1, 1], [0, 1])
        return figure, axes

    def test_what_is_cut_off(self):
        figure, axes = self.axes()
        self.assertEqual(plot.faults(figure), [])
        axes.text(1, 1, '')
        self.assertEqual(plot.faults(figure), [])
        axes.text(58, 1, '58.00')
        self.assertIn('outside of the axes: 58.00', plot.faults(figure))
        figure, axes = self.axes()
        for side in 'left', 'right':
            axes.set_title(f'on the {side} words that take half of the axes', loc=side)
        self.assertRegex(plot.faults(figure)[0], 'the axes is over on the')
        figure, axes = self.axes()
        axes.set_xlim(0.1, 0.9)
        self.assertRegex(plot.faults(figure)[0], 'beyond the axes')
        figure, axes = self.axes()
        axes.set_yticks([0], ['a label that is longer than there is room for it'])
        self.assertRegex(plot.faults(figure)[0], 'outside of the figure')
