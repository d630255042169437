# SPDX-License-Identifier: GPL-2.0-only
"""The guests' machines: guest/*.toml."""
from kit.errors import KitError
from kit.paths import GUEST
from kit.typed import read_toml


def archs():
    """The architectures that have a guest."""
    return sorted(path.stem for path in GUEST.glob('*.toml'))


def usual_archs(full=False):
    """Those that are built and checked without being asked for: a machine that is `full` only with
    FULL=1."""
    return [arch for arch in archs() if full or not load_machine(arch).get('full')]


def load_machine(arch):
    """guest/ARCH.toml: the guest's machine."""
    if arch not in archs():
        raise KitError(f'no architecture {arch} (known: {" ".join(archs())})')
    return read_toml(GUEST / f'{arch}.toml')
