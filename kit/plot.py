#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/plot bench/TOPIC.json…: draws bench/TOPIC.png and .svg, the same bytes for the same record."""
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import die    # noqa: E402

try:
    import matplotlib
except ImportError:
    debian = '/usr/bin/python3'    # Debian's python3-matplotlib belongs to Debian's Python
    if os.path.realpath(sys.executable) == os.path.realpath(debian) or not os.path.exists(debian):
        die('matplotlib is missing: run scripts/deps (Debian package python3-matplotlib)')
    os.execv(debian, [debian, *sys.argv])

matplotlib.use('Agg')
matplotlib.rcParams.update({'svg.hashsalt': 'bench', 'svg.fonttype': 'none', 'font.family': 'DejaVu Sans', 'font.size': 9})
from matplotlib import pyplot    # noqa: E402

from measure import topic_module    # noqa: E402


def draw(path):
    data = json.loads(path.read_text())
    figure = topic_module(data['topic']).plot(data, pyplot)
    figure.tight_layout()
    figure.savefig(path.with_suffix('.png'), dpi=120, metadata={'Software': None})
    figure.savefig(path.with_suffix('.svg'), metadata={'Date': None, 'Creator': None})
    pyplot.close(figure)


for name in sys.argv[1:] or die('which bench/TOPIC.json?'):
    try:
        draw(Path(name))
    except (OSError, ValueError, KeyError) as error:
        die(f'{name}: {error}')
