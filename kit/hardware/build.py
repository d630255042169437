# SPDX-License-Identifier: GPL-2.0-only
"""make hardware: builds an archive with which you can measure on your own machine.

Builds Debian packages of the base and the patched kernel for ARCH, x86_64 or arm64, with the
configuration CONFIG, by default that of the running kernel. Packs them, the topics' benchmarks and
a script into a tar archive. On the machine, unpack it, install both packages, boot each kernel and
run `./measure` as root: kit/hardware/README.md.
"""

import json
import os
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

from kit import model, topics
from kit.bench import provenance
from kit.bench.measure import TREES, Bench, Job
from kit.build import config
from kit.build.config import Symbols
from kit.build.trees import OURS, Tree, make, release, source
from kit.errors import KitError
from kit.lock import Lock
from kit.model import Machine
from kit.paths import BUILD, shown
from kit.process import step

HERE = Path(__file__).parent
FLAVOUR = 'hardware'
ARCHS = 'x86_64', 'arm64'


def read_given(machine: Machine, path: Path) -> str:
    """Returns the text of the user's configuration."""
    if not path.is_file():
        raise KitError(f'{path}: no such file; CONFIG= names the configuration of your kernel')
    text = path.read_text(errors='replace')
    if f'\nCONFIG_{machine.arch.upper()}=y\n' not in text:
        raise KitError(f'{path}: not the configuration of a kernel for {machine.arch}')
    return text


def wanted_for(machine: Machine) -> Symbols:
    """Returns the symbols that the kernels have in addition to the user's configuration."""
    files = HERE / 'hardware.config', HERE / f'hardware-{machine.arch}.config'
    return {
        name: value for file in files if file.exists() for name, value in config.read(file).items()
    }


def added(given: str, wanted: Symbols) -> Symbols:
    """Returns the wanted symbols with their values. A value y becomes m if the symbol is m in the
    user's configuration."""
    return {
        name: 'm' if value == 'y' and f'\nCONFIG_{name}=m\n' in given else value
        for name, value in wanted.items()
    }


def configure(machine: Machine, src: Path, folder: Path, given: str) -> None:
    """Writes .config. Raises an error if a wanted symbol did not get its value."""
    wanted, written = added(given, wanted_for(machine)), folder / '.config'
    folder.mkdir(parents=True, exist_ok=True)
    lines = ''.join(f'CONFIG_{name}={value}\n' for name, value in wanted.items())
    written.write_text(f'{given}\n{lines}')  # kconfig uses the last value of a symbol
    command, env = make(machine, folder, src, 'olddefconfig')
    step(None, command, log=folder / 'config.log', env=env)
    text = written.read_text()
    final = dict(re.findall(r'^CONFIG_(\w+)=(.+)$', text, re.M))
    for name, value in wanted.items():
        # kconfig omits a string whose symbol is off, and turns m into y if a symbol cannot be m
        allowed = {'y': 'ym', 'm': 'ym', '""': ('', '""')}.get(value, value)
        if final.get(name, '' if value == '""' else 'n') not in allowed:
            raise KitError(f'CONFIG_{name}={value} cannot be set: CONFIG= lacks what it needs')


def package(machine: Machine, tree: Tree, given: str) -> tuple[Path, str]:
    """Builds the kernel's package with the kernel's own rules. Returns (package, uname -r)."""
    src, whole = source(tree), tree.root / 'build' / f'{machine.arch}-{FLAVOUR}'
    folder = whole / 'kernel'  # the rules write packages into the folder above
    with Lock(whole):
        configure(machine, src, folder, given)
        for old in whole.glob('*.deb'):
            old.unlink()
        command, env = make(machine, folder, src, 'bindeb-pkg')
        env |= {
            'LOCALVERSION': f'-{tree}',
            'KDEB_PKGVERSION': f'{release(tree)}-1',
            'KDEB_CHANGELOG_DIST': 'unstable',
            'DEB_BUILD_PROFILES': 'pkg.linux-upstream.nokernelheaders',
            # kit/setup/deps.py has the packages that are needed
            'DPKG_FLAGS': '-d',
        }
        step(f'build {tree} packages', command, log=whole / 'log', env=env)
        name = (folder / 'include/config/kernel.release').read_text().strip()
        found = list(whole.glob(f'linux-image-{name}_*.deb'))
    if len(found) != 1:
        raise KitError(f'no package of {name} in {shown(whole)}')
    return found[0], name


def tables(jobs: Sequence[tuple[str, Job]]) -> tuple[str, str]:
    """Returns the contents of `jobs` and `rows`, two files in the archive. The script reads both
    files. Their fields are separated by tabs."""
    found = [(number, *job) for number, job in enumerate(jobs, 1)]
    lines = [f'{number}\t{job.device}\t{topic}\t{job.command}\n' for number, topic, job in found]
    rows = [
        f'{number}\t{name}\t{json.dumps(row)}\n'
        for number, _, job in found
        for name, row in job.rows.items()
    ]
    return ''.join(lines), ''.join(rows)


def code() -> str:
    """Returns JSON that identifies the code of both kernels and contains no single quote."""
    found = {topic: provenance.code_of(topic) for topic in topics.order()}
    return json.dumps({'series': found, 'base': release(OURS.base)})


def pack(path: Path, files: dict[str, Path], texts: dict[str, str]) -> None:
    """Writes the archive, with all files in the folder `hardware`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.parent / 'files'
    made.mkdir(exist_ok=True)
    for name, text in texts.items():
        (made / name).write_text(text)
    part = path.with_suffix('.part')
    with tarfile.open(part, 'w') as archive:
        for name, file in {**files, **{name: made / name for name in texts}}.items():
            member = archive.gettarinfo(str(file), f'hardware/{name}')
            member.uid = member.gid = 0
            member.uname = member.gname = 'root'
            member.mode = 0o644 if name in texts or name.endswith('.deb') else 0o755
            with open(file, 'rb') as data:
                archive.addfile(member, data)
    part.rename(path)


def main(arch: str = 'x86_64', config: str = '') -> None:
    if arch not in ARCHS:
        raise KitError(f'ARCH={arch}: known are {" and ".join(ARCHS)}')
    machine, bench = model.machine(arch), Bench()
    given = read_given(machine, Path(config or f'/boot/config-{os.uname().release}').expanduser())
    files, jobs = {'measure': HERE / 'measure.sh'}, []
    for topic in topics.measured():
        if hasattr(topics.benchmark(topic), 'hardware'):
            programs, of_topic = topics.benchmark(topic).hardware(bench, arch)
            files |= {path.name: path for path in programs}
            jobs += [(topic, job) for job in of_topic]
    names = {}
    for name in reversed(TREES):
        path, names[name] = package(machine, OURS.named(name), given)
        files[path.name] = path
    about = [f"{name}='{names[name]}'\n" for name in TREES] + [f"series='{code()}'\n"]
    lines, rows = tables(jobs)
    archive = BUILD / 'hardware' / f'hardware-{arch}.tar'
    pack(archive, files, {'about': ''.join(about), 'jobs': lines, 'rows': rows})
    print(f'{shown(archive)}: copy it to the machine; kit/hardware/README.md has the next steps')
