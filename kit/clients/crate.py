# SPDX-License-Identifier: GPL-2.0-only
"""Builds a program for the guest from a crate in clients/. The crates that it needs come from the
user's registry of cargo, with the versions in its Cargo.lock."""

import re
import shutil
from pathlib import Path

from kit.clients.settings import CLIENTS
from kit.errors import KitError
from kit.model import Machine
from kit.paths import BUILD
from kit.process import result, step
from kit.setup import deps
from kit.typed import read_toml
from kit.vm.qemu import host_is


def version_of(text: str) -> tuple[int, ...]:
    found = re.search(r'(\d+)\.(\d+)', text)
    return tuple(map(int, found.groups())) if found else ()


def obstacle(machine: Machine, name: str) -> str:
    """Returns the reason why this host cannot build the crate, or an empty string. Installs cargo
    if it is missing."""
    if not host_is(machine):
        return f'its crate is only built on {machine.host}'
    try:
        if not shutil.which('cargo'):
            # cargo-web replaces rustc
            deps.install_missing('CARGO', options=['--no-remove'])
    except KitError as error:
        return f'no cargo: {error}'
    needed = read_toml(CLIENTS / name / 'Cargo.toml')['package']['rust-version']
    found = result(['cargo', '--version']).stdout.strip()
    if version_of(found) < version_of(needed):
        return f'{found or "cargo has no version"}: {needed} is needed'
    return ''


def program(machine: Machine, name: str) -> Path:
    """Builds the crate; returns the path of its program, which is static. CARGO_HOME stays the
    user's, as it may name another registry."""
    target, folder = f'{machine.host}-unknown-linux-gnu', BUILD / 'clients' / name
    step(
        f'build {name}',
        ['cargo', 'rustc', '--release', '--locked', '--target', target]
        + ['--', '-C', 'target-feature=+crt-static'],
        cwd=CLIENTS / name,
        env={'CARGO_TARGET_DIR': folder},
        timeout=1800,
    )
    return folder / target / 'release' / name
