# SPDX-License-Identifier: GPL-2.0-only
"""series/TOPIC/bench.png: the same bytes for the same record."""

import os
import sys
from typing import Any

from kit import cli, topics
from kit.bench import measure
from kit.errors import KitError
from kit.paths import TOP


def pyplot() -> Any:
    """matplotlib; Debian's python3-matplotlib belongs to Debian's Python."""
    try:
        import matplotlib
    except ImportError:
        debian = '/usr/bin/python3'
        if os.path.realpath(sys.executable) == os.path.realpath(debian) or not os.path.exists(
            debian
        ):
            raise KitError('matplotlib is missing: make deps') from None
        return None
    matplotlib.use('Agg')
    matplotlib.rcParams.update({'font.family': 'DejaVu Sans', 'font.size': 9})
    from matplotlib import pyplot as found

    return found


def draw(topic: str) -> None:
    plt = pyplot()
    if not plt:
        os.chdir(TOP)
        # bench's variables would mean nothing to plot
        os.execve(
            '/usr/bin/python3',
            ['/usr/bin/python3', '-m', 'kit', 'plot', topic],
            cli.without_variables(),
        )
    figure = topics.benchmark(topic).plot(measure.load(topic), plt)
    figure.tight_layout()
    path = measure.path_of(topic).with_suffix('.png')
    figure.savefig(path, dpi=120, metadata={'Software': None})
    plt.close(figure)
