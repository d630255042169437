# SPDX-License-Identifier: GPL-2.0-only
"""clients/clients.toml: the programs and the cases of `make clients`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from kit import model
from kit.errors import KitError
from kit.model import Front, Machine, Options, Words
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
    arch: str = 'x86_64'  # of its guest
    flavour: str = 'plain'  # of the kernels that it runs on
    append: str = ''  # words that it adds to the kernel's command line
    qemu: Words = ()  # words that it adds to QEMU's command line

    @property
    def machine(self) -> Machine:
        return model.machine(self.arch)

    def runs_behind(self, iommu: str) -> bool:
        """Returns whether it can run behind the IOMMU; an empty name is its machine's default."""
        name = iommu or self.machine.iommu
        return name in self.machine.known_iommus() and name not in self.without

    def guest(self, common: Options) -> Options:
        """Returns the options of this client's guest. `common` has those of all clients."""
        append = ' '.join(filter(None, (common.append, self.append)))
        return replace(common, append=append, qemu=common.qemu + self.qemu)


@dataclass(frozen=True)
class Settings:
    """The contents of clients/clients.toml."""

    suite: str
    guests: Mapping[str, Options]  # for each architecture
    clients: Mapping[str, Client]
    front: Front = Front()  # the row of the front page


def check_client(client: Client, where: str) -> None:
    if client.arch not in (known := model.archs()):
        raise KitError(f'{where}: no architecture {client.arch} (known: {" ".join(known)})')
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
