# SPDX-License-Identifier: GPL-2.0-only
"""Builds kernels."""
from kit.common import die, load_machine, shown, step
from kit.config import CONFIGS, configure, fragments
from kit.trees import Lock, make, out, source, stamp_of, state


def write_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def drop_halves(folder):
    """What a killed assembler left: make takes an empty object for a finished one."""
    for path in folder.rglob('*.o'):
        if not path.stat().st_size:
            path.unlink()


def build(arch, flavour, tree, parts=()):
    """Builds unless nothing changed; returns the image. Or compiles only parts, goals of make."""
    machine, src, folder = load_machine(arch), source(tree), out(arch, flavour, tree)
    image, stamp = folder / machine['image'], folder / '.stamp'
    try:
        with Lock(folder):
            header = CONFIGS / f'{arch}-{flavour}.h'
            extra = header.read_text() if header.exists() else ''
            now = stamp_of(machine, state(src), fragments(machine, arch, flavour, src), extra)
            if image.exists() and stamp.exists() and stamp.read_text() == now:
                return image
            stamp.unlink(missing_ok=True)
            drop_halves(folder)
            configure(arch, flavour, tree)
            command, env = make(machine, folder, src, *(parts or [machine['target']]))
            if extra:
                # beside the objects: a path that differs from tree to tree would keep ccache from
                # sharing them
                write_changed(folder / 'first.h', extra)
                command.append('KCFLAGS=-include first.h')
            # x86's piggy.S takes the compressed kernel in with .incbin, which ccache does not look
            # into: of two kernels that are compressed to the same length the second had the first
            # one's code. A macro that nobody reads tells them apart.
            command.append(f'AFLAGS_piggy.o=-DSTAMP={now}')
            what = f'build {tree} {arch} {flavour}{" (parts)" if parts else ""}'
            step(what, command, log=folder / 'log', env=env)
            if not parts:
                stamp.write_text(now)
    except OSError as error:
        die(f'{shown(folder)}: {error.strerror}')
    return image


def stamp(arch, flavour, tree):
    """What tells one built kernel from another."""
    return (out(arch, flavour, tree) / '.stamp').read_text()
