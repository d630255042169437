#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/table bench/TOPIC.json: the table as Markdown.

--write FILE puts the tables into FILE, each between <!-- bench TOPIC --> and <!-- end -->;
--check FILE fails when they are not the recorded ones.
"""
import argparse
import json
import re
from pathlib import Path

import measure
from common import TOP, die


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        return die(f'{path}: {error}')


def filled(text):
    def fill(found):
        record = TOP / 'bench' / f'{found[2]}.json'
        table = measure.markdown_table(load(record)) if record.exists() else f'Not measured yet: `make bench TOPIC={found[2]}`'
        return f'{found[1]}\n{table}\n{found[3]}'
    return re.sub(r'(<!-- bench (\S+) -->)\n.*?(<!-- end -->)', fill, text, flags=re.S)


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument('record', type=Path, nargs='?')
arguments.add_argument('--write', type=Path)
arguments.add_argument('--check', type=Path)
given = arguments.parse_args()
if given.record:
    print(measure.markdown_table(load(given.record)))
elif given.write:
    given.write.write_text(filled(given.write.read_text()))
elif given.check and filled(given.check.read_text()) != given.check.read_text():
    die(f'{given.check}: a table is not the recorded one: scripts/table --write {given.check}')
