# SPDX-License-Identifier: GPL-2.0-only
"""Converts tables of TOML files to frozen dataclasses. An unknown key, a missing key or a value of
a wrong type is an error. The error names the file and the key.

Fields that have the metadata NOT_IN_FILE are set by the program, not by the file. A class may
define from_table(table, where), which then converts its tables.
"""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kit.errors import KitError
from kit.paths import shown

T = TypeVar('T')
Table = dict[str, Any]
NOT_IN_FILE = {'toml': False}
NAMES = {str: 'a string', int: 'a number', bool: 'true or false', list: 'a list', dict: 'a table'}


def read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise KitError(f'{shown(path)}: {error.strerror}') from error
    except tomllib.TOMLDecodeError as error:
        raise KitError(f'{shown(path)}: {error}') from error


def wrong(where: str, meant: type, value: object) -> NoReturn:
    raise KitError(f'{where}: expected {NAMES.get(meant, meant.__name__)}, not {value!r}')


def value_of(kind: Any, value: object, where: str) -> Any:
    """Returns the value converted to the type `kind`. `where` names the key in errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):  # X | None: TOML has no None
        return value_of(next(each for each in arguments if each is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            wrong(where, list, value)
        return tuple(
            value_of(arguments[0], each, f'{where}[{number}]') for number, each in enumerate(value)
        )
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            wrong(where, dict, value)
        return {key: value_of(arguments[1], each, f'{where}.{key}') for key, each in value.items()}
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            wrong(where, dict, value)
        return load(typing.cast(type, kind), value, where)
    if type(value) is not kind:  # bool is a subclass of int
        wrong(where, kind, value)
    return value


def fields_of(kind: type) -> dict[str, 'dataclasses.Field[Any]']:
    """Returns the fields of the dataclass that a file may set."""
    return {
        field.name: field for field in dataclasses.fields(kind) if field.metadata.get('toml', True)
    }


def given(kind: type, table: Table, where: str) -> Table:
    """Returns {field: value} of the table after checking its keys and types."""
    known, hints = fields_of(kind), typing.get_type_hints(kind)
    for key in table:
        if key not in known:
            raise KitError(f'{where}: {key}: no such key (known: {" ".join(sorted(known))})')
    return {key: value_of(hints[key], value, f'{where}: {key}') for key, value in table.items()}


def load(kind: type[T], table: Table, where: str, **more: object) -> T:
    """Returns the table as a dataclass of the type `kind`. `more` has the fields that the file does
    not set."""
    if own := getattr(kind, 'from_table', None):
        return typing.cast(T, own(table, where))
    values = given(kind, table, where)
    for name, field in fields_of(kind).items():
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and name not in values:
            raise KitError(f'{where}: {name} is missing')
    return kind(**values, **more)
