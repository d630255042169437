# SPDX-License-Identifier: GPL-2.0-only
"""The topics: the folders of series/ that series/order lists, and their topic.toml files.

No module of kit/ contains the name of a topic.
"""

import functools
import importlib.util
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kit import model
from kit.errors import KitError
from kit.model import BootTable, Compile, Front, Words
from kit.paths import SERIES, shown


def order() -> list[str]:
    """Returns the topics, in the order in which they apply."""
    try:
        lines = (SERIES / 'order').read_text().splitlines()
    except OSError as error:
        raise KitError(f'series/order: {error.strerror}') from error
    names = [line.split('#')[0].strip() for line in lines if line.split('#')[0].strip()]
    if not names:
        raise KitError('series/order names no topic')
    return names


def postings(topic: str) -> list[str]:
    """Returns the folders of a topic's postings, in the order in which they apply. A flat topic has
    none."""
    return sorted(path.name for path in (SERIES / topic).glob('[0-9][0-9]-*') if path.is_dir())


def parts_of(topic: str) -> list[str]:
    """Returns the parts of a topic: TOPIC/NN-POSTING for each posting, or TOPIC if the topic is
    flat. Each part is a folder below series/, and a branch with the same name in linux/."""
    return [f'{topic}/{posting}' for posting in postings(topic)] or [topic]


def parts() -> list[str]:
    """Returns the branches of all topics, in the order in which they apply."""
    return [part for topic in order() for part in parts_of(topic)]


def topic_of(part: str) -> str:
    return part.partition('/')[0]


def posting(part: str) -> model.Posting | None:
    """Returns the posting's table in topic.toml, or None for a flat topic."""
    topic, _, name = part.partition('/')
    if not name:
        return None
    for found in model.topic(topic).posting:
        if found.name == name:
            return found
    raise KitError(f'{shown(SERIES / topic / "topic.toml")}: no [[posting]] has the name {name}')


def below(part: str) -> list[str]:
    """Returns the parts that are below a posting in its mailed branch, in the order in which they
    apply. They are the topics listed in `after`, and the postings of the same topic listed in
    `needs`."""
    topic, found = topic_of(part), posting(part)
    names = parts_of(topic)
    wanted = {f'{topic}/{name}' for name in (found.needs if found else ())}
    if wrong := wanted - set(names[: names.index(part)]):
        raise KitError(
            f'{shown(SERIES / topic / "topic.toml")}: {part} needs {min(wrong)}, which is not an '
            'earlier posting'
        )
    wanted |= {more for each in wanted for more in below(each) if topic_of(more) == topic}
    others = [each for name in after(topic) for each in parts_of(name)]
    return others + [name for name in names if name in wanted]


def all_of_them() -> list[model.Topic]:
    return [model.topic(name) for name in order()]


def after(topic: str) -> list[str]:
    """Returns the topics without which this topic does not apply, sorted as in series/order."""
    names, wanted = order(), model.topic(topic).after
    if wrong := set(wanted) - set(names[: names.index(topic)]):
        raise KitError(
            f'{shown(SERIES / topic / "topic.toml")}: after: {min(wrong)} is not before '
            'it in series/order'
        )
    return [name for name in names if name in wanted or any(name in after(each) for each in wanted)]


def front(topic: str) -> Front:
    """Returns the topic's row of the front page."""
    return model.topic(topic).front


def is_single(topic: str) -> bool:
    """Returns whether each patch of the topic is mailed alone, without a cover letter."""
    return model.topic(topic).single


def needs(topic: str) -> dict[str, Words]:
    """For a `single` topic, returns {subject of a patch: subjects of the patches that it needs}."""
    return dict(model.topic(topic).needs)


def boots() -> list[tuple[str, BootTable]]:
    """Returns (topic, boot) for all boots of all topics."""
    return [(topic.name, boot) for topic in all_of_them() for boot in topic.boot]


def suites(arch: str) -> list[str]:
    """Returns the selftest suites whose `config` files apply to the guest of the architecture."""
    return list(
        dict.fromkeys(suite for topic in all_of_them() for suite in topic.suites.get(arch, ()))
    )


def programs(suite: str) -> list[str]:
    """Returns the programs of a suite that are built. An empty list means all."""
    return list(
        dict.fromkeys(
            program for topic in all_of_them() for program in topic.programs.get(suite, ())
        )
    )


def symbols(text: str) -> dict[str, str]:
    """Returns {symbol: value} from words NAME or NAME=value."""
    return {name: value or 'y' for name, _, value in (word.partition('=') for word in text.split())}


def config(kernels: Collection[str]) -> list[tuple[Path, dict[str, str]]]:
    """Returns [(topic.toml, {symbol: value})] for the symbols that topics set in these kernels. The
    names of kernels have the form of x86_64-debug."""
    return [
        (SERIES / topic.name / 'topic.toml', symbols(text))
        for topic in all_of_them()
        for name, text in topic.config.items()
        if name in kernels
    ]


def compiled() -> list[Compile]:
    """Returns the small configurations of all topics."""
    return [one for topic in all_of_them() for one in topic.compile]


def measured() -> list[str]:
    """Returns the topics that have a benchmark."""
    return [topic for topic in order() if (SERIES / topic / 'measure.py').exists()]


@functools.cache
def benchmark(name: str) -> Any:
    """Returns series/TOPIC/measure.py as a module. `name` is the topic, or one of its postings."""
    topic = topic_of(name)
    if topic not in measured():
        raise KitError(f'no benchmark for topic {topic} (known: {" ".join(measured())})')
    path = SERIES / topic / 'measure.py'
    spec = importlib.util.spec_from_file_location(f'measure_{topic.replace("-", "_")}', path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
