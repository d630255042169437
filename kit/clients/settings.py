# SPDX-License-Identifier: GPL-2.0-only
"""clients/clients.toml: the packages and the cases of `make clients`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from kit.model import Front, Options, Words
from kit.paths import TOP, shown
from kit.typed import load, read_toml

CLIENTS = TOP / 'clients'


@dataclass(frozen=True)
class Client:
    packages: Words
    files: Words
    cases: Words
    counted: bool = False
    without: Words = ()  # IOMMUs behind which it cannot run


@dataclass(frozen=True)
class Settings:
    """The contents of clients/clients.toml."""

    suite: str
    guest: Options
    clients: Mapping[str, Client]
    front: Front = Front()  # the row of the front page


@cache
def settings() -> Settings:
    path = CLIENTS / 'clients.toml'
    return load(Settings, read_toml(path), str(shown(path)))
