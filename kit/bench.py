# SPDX-License-Identifier: GPL-2.0-only
"""make bench: a topic measured, written to series/TOPIC/bench.json with its picture and tables."""
import os

from kit import measure, plot, table, topics
from kit.common import BUILD, die


def number(name):
    text = os.environ.get(name, '')
    if text and not (text.isdigit() and int(text)):
        die(f'{name}={text}: a number is meant')
    return {name.lower(): int(text)} if text else {}


def main():
    topic = os.environ.get('TOPIC') or next(iter(topics.measured()), '') or \
        die('no topic has a measure.py')
    journal = measure.Journal(BUILD / 'bench' / f'{topic}.jsonl')
    measure.JOURNALS[:] = [journal]
    rows, accelerator = topics.benchmark(topic).measure(**number('RUNS'), **number('ROUNDS'))
    given = [f'{name}={os.environ[name]}' for name in ('RUNS', 'ROUNDS', 'FULL')
             if os.environ.get(name)]
    data = measure.record(topic, ' '.join(['make bench', f'TOPIC={topic}', *given]), rows,
                          accelerator)
    measure.save(data, measure.path_of(topic))
    journal.end()
    table.write()
    print(table.text(data))
    plot.draw(topic)
