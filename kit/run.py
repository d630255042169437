#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/run: the main job. Pins guest-sized memory on the base and the patched kernel in turn, prints both side by side."""
import argparse

import measure

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('--runs', type=int, default=5, help='boots of each kernel')
arguments.add_argument('--rounds', type=int, default=3, help='measurements in each boot')
given = arguments.parse_args()
print(measure.text_table(measure.record('padata-vfio', 'make run', what='times', **vars(given))))
