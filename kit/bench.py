#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bench [TOPIC]: measures as scripts/run does, writes bench/TOPIC.json and the plots, prints the table.

SWEEP=1 measures what the topic depends on instead, into bench/TOPIC-sweep.json.
"""
import argparse
import json
import os
import subprocess

import measure
from common import TOP, die

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('topic', nargs='?', default=os.environ.get('TOPIC') or 'padata-vfio')
arguments.add_argument('--runs', type=int, help='boots of each kernel')
arguments.add_argument('--rounds', type=int, help='measurements in each boot')
given = arguments.parse_args()
how = {key: value for key, value in vars(given).items() if key != 'topic' and value}
topic, command, sweep = given.topic, f'make bench TOPIC={given.topic}', os.environ.get('SWEEP', '')
if sweep not in ('', '0', '1'):
    die(f'SWEEP={sweep}: 1 is meant')
if sweep == '1':
    swept = [name.removesuffix('-sweep') for name in measure.topics() if name.endswith('-sweep')]
    if topic not in swept:
        die(f'SWEEP=1: there is no sweep of topic {topic} (known: {" ".join(swept)})')
    topic, command = f'{topic}-sweep', f'{command} SWEEP=1'
data = measure.record(topic, command, **how)
path = TOP / 'bench' / f'{topic}.json'
rows = ',\n'.join('    ' + json.dumps(row) for row in data['rows'])    # a row a line: readable diffs
head = ',\n'.join(f'  {json.dumps(key)}: {json.dumps(value)}' for key, value in data.items() if key != 'rows')
try:
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix('.part')
    part.write_text(f'{{\n{head},\n  "rows": [\n{rows}\n  ]\n}}\n')
    part.rename(path)    # the last record stays until the new one is whole
except OSError as error:
    die(f'{path.name}: {error.strerror}')
print(measure.text_table(data))
raise SystemExit(subprocess.run([TOP / 'scripts' / 'plot', path], check=False).returncode)
