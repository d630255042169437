# SPDX-License-Identifier: GPL-2.0-only
"""Tables of TOML files."""
import tomllib

from kit.errors import KitError
from kit.paths import shown


def read_toml(path):
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise KitError(f'{shown(path)}: {error}')


def check_keys(where, table, known):
    for key in table.keys() - set(known):
        raise KitError(f'{where}: {key}: no such key (known: {" ".join(sorted(known))})')
