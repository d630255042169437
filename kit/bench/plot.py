# SPDX-License-Identifier: GPL-2.0-only
"""Draws series/TOPIC/bench.png. Each drawn row has a dot at its ratio, and a line from its lowest
to its highest ratio. The row with the largest regression is on top.

kit/setup/requirements.txt pins matplotlib, so the same record always gives the same picture.
"""

import math
import textwrap
from itertools import combinations
from pathlib import Path
from typing import Any

from kit import topics
from kit.bench import measure, table
from kit.bench.measure import Record, Row
from kit.errors import KitError, fail
from kit.paths import TOP
from kit.process import step
from kit.setup.tools import tool

Figure = Any  # a type of matplotlib, which is only in build/tools
BETTER, WORSE, OPEN = '#4477aa', '#cc3311', '#888888'  # OPEN: the row's range includes 1


def rows_of(data: Record) -> list[Row]:
    """Returns the rows to draw, from the largest regression to the largest improvement. The topic's
    drawn() selects them, or its cover() if it has no drawn(). The largest regression is always
    included."""
    topic = topics.benchmark(data['topic'])
    drawn = getattr(topic, 'drawn', topic.cover)
    worst = min(data['rows'], key=table.better)
    rows = [row for row in data['rows'] if row is worst or drawn(row)]
    return sorted(rows, key=lambda row: -places(row)[1])


def places(row: Row) -> tuple[float, float, float]:
    """Returns (least, ratio, most), the positions of the row's range and ratio on the axis. A
    position is the ratio patched / base. If a higher figure is better, it is base / patched. The
    ratio None, which means infinite, is at 0."""

    def place(ratio: float | None) -> float:
        return 0 if ratio is None else 1 / ratio if ratio else math.inf

    most = place(row['min']) if row['min'] is not None else place(row['ratio'])
    least = place(row['max'] if row['ratio'] is not None else None)
    return least, place(row['ratio']), most


def label(data: Record, row: Row) -> str:
    """Returns the text of the cells that identify the row. A cell that has only a number is
    preceded by the title of its column."""
    topic = topics.benchmark(data['topic'])
    cells = zip(topic.describe(row), topic.HEAD)
    return ', '.join(f'{head}: {cell}' if cell.isdigit() else cell for cell, head in cells if cell)


def picture(data: Record) -> Figure:
    """Draws a record and returns the matplotlib figure."""
    import matplotlib
    from matplotlib import pyplot, ticker

    matplotlib.use('Agg')
    matplotlib.rcParams.update({'font.family': 'DejaVu Sans', 'font.size': 8})
    rows = rows_of(data)
    figure, axes = pyplot.subplots(
        figsize=(9, 0.9 + 0.22 * len(rows)), layout='constrained', dpi=100
    )
    finite = [1, *(place for row in rows for place in places(row) if 0 < place < math.inf)]
    room = max(1.05, (max(finite) / min(finite)) ** 0.04)
    low, high = min(finite) / room, max(finite) * room
    axes.set_xscale('log')
    axes.set_xlim(low / room, high * room)
    axes.axvline(1, color='black', linewidth=0.8)
    for line, row in enumerate(rows):
        least, ratio, most = places(row)
        colour = OPEN if least <= 1 <= most else WORSE if ratio > 1 else BETTER
        # arrows stand for the positions 0 and infinity
        marker = {0: '<', math.inf: '>'}.get(ratio, 'o')
        least, ratio, most = (min(max(place, low), high) for place in (least, ratio, most))
        axes.hlines(line, least, most, color=colour, linewidth=1.5, alpha=0.6)
        axes.plot(ratio, line, marker, color=colour, markersize=5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [label(data, row) for row in rows])
    axes.grid(axis='y', color='#eeeeee')
    axes.set_axisbelow(True)
    few = high / low < 30
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if few else (1,), numticks=20))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    rates = any(row['better'] == 'higher' for row in rows)
    more = ' (the inverse where more is better)' if rates else ''
    axes.set_xlabel(f'patched / base{more}; lower is better')
    where = f'{data["base"]}, {data["accelerator"]}'
    title = f'{data["topic"]} ({where}); on the right: base → patched'
    axes.set_title(textwrap.fill(title, 72, break_on_hyphens=False), loc='left')
    figures = axes.secondary_yaxis('right')
    numbers = [[table.number(row[key], row['unit']) for key in measure.TREES] for row in rows]
    figures.set_yticks(range(len(rows)), [' → '.join(pair) for pair in numbers])
    return figure


def labels(axes: Any) -> list[Any]:
    """Returns the visible texts of the axes."""
    from matplotlib.text import Text

    found = [child for child in axes.get_children() if isinstance(child, Text)]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        found += [axis.label, *(label for tick in ticks for label in (tick.label1, tick.label2))]
    return [text for text in found if text.get_text() and text.get_visible()]


def faults(figure: Figure) -> list[str]:
    """Returns the labels that overlap, and the labels and data that are cut off or outside of the
    axes."""
    figure.draw_without_rendering()
    texts = [
        text for axes in figure.axes for each in (axes, *axes.child_axes) for text in labels(each)
    ]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    found = [
        f'{name} is over {other}'
        for (name, box), (other, below) in combinations(boxes, 2)
        if box.overlaps(below)
    ]
    for axes in figure.axes:
        inside = axes.get_window_extent()
        for text in axes.texts:
            if text.get_text() and not holds(inside, text.get_window_extent()):
                found.append(f'outside of the axes: {text.get_text()}')
        if axes.has_data() and not holds(inside, axes.dataLim.transformed(axes.transData)):
            found.append(f'beyond the axes: data of {axes.dataLim.extents}')
    if not holds(figure.bbox_inches, figure.get_tightbbox(), 0.01):
        found.append(f'outside of the figure: something of {figure.get_tightbbox().extents}')
    return found


def holds(outer: Any, inner: Any, slack: float = 1) -> bool:
    """Returns whether the inner box of matplotlib is within the outer one."""
    return bool(
        inner.xmin >= outer.xmin - slack
        and inner.ymin >= outer.ymin - slack
        and inner.xmax <= outer.xmax + slack
        and inner.ymax <= outer.ymax + slack
    )


def path_of(topic: str) -> Path:
    return measure.path_of(topic).with_suffix('.png')


def record_of(topic: str) -> Record:
    return measure.load(topic) or fail(f'no record of topic {topic}: make bench TOPIC={topic}')


def write(topic: str) -> None:
    """Draws the picture. Needs matplotlib, see draw()."""
    figure = picture(record_of(topic))
    if said := faults(figure):
        raise KitError(f'the picture of {topic}: {"; ".join(said)}')
    figure.savefig(path_of(topic), metadata={'Software': None})


def draw(topic: str) -> None:
    """Draws series/TOPIC/bench.png with the Python of build/tools, which has matplotlib."""
    record_of(topic)
    program = f'from kit.bench import plot; plot.write({topic!r})'
    step(f'picture of {topic}', [tool('python'), '-X', 'utf8', '-c', program], cwd=TOP)
