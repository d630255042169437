# SPDX-License-Identifier: GPL-2.0-only
"""clients/clients.toml: the programs and the cases of `make clients`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from kit.errors import KitError
from kit.model import Front, Options, Words
from kit.paths import TOP, shown
from kit.typed import load, read_toml

CLIENTS = TOP / 'clients'


@dataclass(frozen=True)
class Client:
    """A program: files of Debian packages, or a crate."""

    cases: Words
    packages: Words = ()
    files: Words = ()
    crate: str = ''  # its folder in clients/, and the name of its program
    counted: bool = False
    without: Words = ()  # IOMMUs behind which it cannot run
    flavour: str = 'plain'  # of the kernels that it runs on
    append: str = ''  # words that it adds to the kernel's command line
    qemu: Words = ()  # words that it adds to QEMU's command line

    def guest(self, common: Options) -> Options:
        """Returns the options of this client's guest. `common` has those of all clients."""
        append = ' '.join(filter(None, (common.append, self.append)))
        return replace(common, append=append, qemu=common.qemu + self.qemu)


@dataclass(frozen=True)
class Settings:
    """The contents of clients/clients.toml."""

    suite: str
    guest: Options
    clients: Mapping[str, Client]
    front: Front = Front()  # the row of the front page


def check_client(client: Client, where: str) -> None:
    if {bool(client.packages), bool(client.files)} != {not client.crate}:
        raise KitError(f'{where}: expected either crate, or packages and files')
    if client.crate and not (CLIENTS / client.crate / 'Cargo.toml').is_file():
        raise KitError(f'{where}: crate: no {shown(CLIENTS / client.crate)}/Cargo.toml')


@cache
def settings() -> Settings:
    path = CLIENTS / 'clients.toml'
    found = load(Settings, read_toml(path), str(shown(path)))
    for name, client in found.clients.items():
        check_client(client, f'{shown(path)}: clients.{name}')
    return found
