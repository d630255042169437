# SPDX-License-Identifier: GPL-2.0-only
"""The topics: folders of series/ that series/order names, and what each one's topic.toml says.

No other module opens a topic.toml, and none knows a topic's name.
"""
import functools
import importlib.util

from kit.errors import KitError
from kit.paths import SERIES, shown
from kit.typed import check_keys, read_toml

KEYS = {'after', 'front', 'single', 'needs', 'suites', 'programs', 'config', 'boot', 'compile'}
FRONT = {'problem', 'rows', 'worst', 'state'}
COMPILE = {'name', 'arch', 'kernel_arch', 'cross_compile', 'compiler', 'symbols', 'without', 'also',
           'full'}


def order():
    """The topics in the order they apply."""
    try:
        lines = (SERIES / 'order').read_text().splitlines()
    except OSError as error:
        raise KitError(f'series/order: {error.strerror}')
    names = [line.split('#')[0].strip() for line in lines if line.split('#')[0].strip()]
    if not names:
        raise KitError('series/order names no topic')
    return names


@functools.cache
def settings(topic):
    """A topic's topic.toml; a topic without one has nothing to boot."""
    path = SERIES / topic / 'topic.toml'
    if not path.exists():
        return {}
    found = read_toml(path)
    check_keys(shown(path), found, KEYS)
    return found


def after(topic):
    """The topics without which this one does not apply, in the order they apply."""
    names, wanted = order(), settings(topic).get('after', [])
    if wrong := set(wanted) - set(names[:names.index(topic)]):
        raise KitError(
            f'{shown(SERIES / topic / "topic.toml")}: after: {min(wrong)} is not before it in '
            'series/order')
    return [name for name in names
            if name in wanted or any(name in after(each) for each in wanted)]


def front(topic):
    """What the front page says of the topic."""
    found = settings(topic).get('front', {})
    check_keys(f'{shown(SERIES / topic / "topic.toml")}: front', found, FRONT)
    return found


def is_single(topic):
    """Is each of its patches mailed by itself, without a cover letter?"""
    return settings(topic).get('single', False)


def needs(topic):
    """{subject of a patch: subjects of those that it does not apply without}, of such a topic."""
    return settings(topic).get('needs', {})


def boots():
    """(topic, boot) of all topics."""
    return [(topic, boot) for topic in order() for boot in settings(topic).get('boot', [])]


def suites(arch):
    """The selftest suites whose `config` files count for the guest."""
    return list(dict.fromkeys(suite for topic in order()
                              for suite in settings(topic).get('suites', {}).get(arch, [])))


def programs(suite):
    """Of a suite those that are built; an empty list: all."""
    return list(dict.fromkeys(program for topic in order()
                              for program in settings(topic).get('programs', {}).get(suite, [])))


def symbols(text):
    """{symbol: value} of words NAME or NAME=value."""
    return {name: value or 'y' for name, _, value in (word.partition('=') for word in text.split())}


def config(kernels):
    """[(file, {symbol: value})] of what topics add to kernels of these names (x86_64-debug …)."""
    return [(SERIES / topic / 'topic.toml', symbols(text)) for topic in order()
            for name, text in settings(topic).get('config', {}).items() if name in kernels]


def compiled():
    """The small configurations, those of one name that several topics have as one."""
    merged = {}
    for topic in order():
        for one in settings(topic).get('compile', []):
            where = f'{shown(SERIES / topic / "topic.toml")}: {one.get("name")}'
            check_keys(where, one, COMPILE)
            whole = merged.setdefault(one['name'], {
                **one, 'symbols': {}, 'without': [], 'also': [], 'topics': []})
            for key in ('arch', 'kernel_arch', 'cross_compile', 'compiler', 'full'):
                if whole.get(key) != one.get(key):
                    raise KitError(f'{where}: another topic says {key} = {whole.get(key)}')
            for symbol, value in symbols(one['symbols']).items():
                if whole['symbols'].setdefault(symbol, value) != value:
                    raise KitError(
                        f'{where}: another topic says {symbol}={whole["symbols"][symbol]}')
            whole['without'] += one.get('without', [])
            whole['also'] += one.get('also', [])
            whole['topics'].append(topic)
    return list(merged.values())


def measured():
    """The topics that have a benchmark."""
    return [topic for topic in order() if (SERIES / topic / 'measure.py').exists()]


@functools.cache
def benchmark(topic):
    """series/TOPIC/measure.py, imported."""
    if topic not in measured():
        raise KitError(f'no benchmark for topic {topic} (known: {" ".join(measured())})')
    path = SERIES / topic / 'measure.py'
    spec = importlib.util.spec_from_file_location(f'measure_{topic.replace("-", "_")}', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
