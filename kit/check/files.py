# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the repository's own files."""

import re
import shutil
import sys
from pathlib import Path

from kit import topics
from kit.bench import letter, measure, pages, table
from kit.check.common import Failed
from kit.errors import KitError
from kit.mail import cover
from kit.model import machines
from kit.paths import BUILD, SERIES, TOP
from kit.process import Word, result, say
from kit.setup.tools import tool
from kit.soak import differ, soak
from kit.vm import console

COLUMNS = 100
VERBS = TOP / 'tests/test_verbs.py'
ADDRESSES = ('splats.allowed', 'Cargo.lock')  # cargo writes the address of crates.io
PROGRAMS = ('kit', 'series', 'guest', '.ci', 'tests', 'soak', 'clients', 'Makefile')


def own_files() -> list[Path]:
    """Returns the repository's own files, without patches."""
    names = result(['git', 'ls-files', '-co', '--exclude-standard'], cwd=TOP)
    if names.returncode:  # an unpacked archive
        names = result(
            'find . ( -path ./linux -o -path ./build ) -prune -o -type f -print'.split(), cwd=TOP
        )
    found = [
        Path(name)
        for name in names.stdout.split('\n')
        if not name.endswith(('.patch', '.diff', '.png'))
    ]
    return [name for name in found if (TOP / name).is_file() and '__pycache__' not in name.parts]


def text_of(name: Path) -> str:
    return (TOP / name).read_text(errors='replace')


def need(program: str) -> None:
    if not shutil.which(program):
        raise Failed(f'{program} is missing (make deps)')


def must_be_silent(*command: Word) -> None:
    need(str(command[0]))
    done = result(command, cwd=TOP)
    if done.returncode:
        raise Failed(done.text)


def python() -> None:
    """ruff finds nothing to report or reformat in the Python programs (pyproject.toml)."""
    ruff, cache = tool('ruff'), ('--cache-dir', BUILD / 'tools/ruff')
    must_be_silent(ruff, 'check', '-q', *cache)
    must_be_silent(ruff, 'format', '-q', '--check', *cache)


def types() -> None:
    """mypy --strict finds nothing in kit/ (pyproject.toml)."""
    must_be_silent(tool('mypy'), '--cache-dir', BUILD / 'tools/mypy')


def shell() -> None:
    """shellcheck finds nothing in the shell programs."""
    must_be_silent(
        'shellcheck',
        *(name for name in own_files() if re.match(r'#!.*\b(sh|ash|bash)\b', text_of(name))),
    )


def has_columns(name: Path, line: str) -> bool:
    """Returns whether the column limit applies to the line. Tables may be wider."""
    if name.suffix == '.md':
        return not line.startswith('|')
    return name.suffix in ('.toml', '.config', '.sh') or name.name in ('run', 'init')


def without_records(text: str) -> str:
    """Returns the text of a page, with each line of its recorded tables replaced by an empty
    line."""
    return re.sub(
        '<!-- (bench|front).*?<!-- end -->',
        lambda found: '\n' * found[0].count('\n'),
        text,
        flags=re.S,
    )


def faults_of(name: Path) -> list[str]:
    """Returns the faults of the file: lines with forbidden contents, and a missing licence."""
    text, faults = text_of(name), []
    program = (
        name.parts[0] in PROGRAMS
        and name.suffix not in ('.md', '.json')
        and name != Path('series/order')
    )
    for number, line in enumerate(without_records(text).splitlines(), 1):
        if re.search(r'(^|[\s"\'=(:])/(work|home|root)/', line):
            faults.append(f'{name}:{number}: a path of one machine')
        mirror = re.search(r'(?<![\w-])(deb|archive|ftp|mirror)s?[.][a-z.]*(org|net|com)\b', line)
        address = program and name.name not in ADDRESSES and re.search(r'https?:/[/]', line)
        if mirror or address:
            faults.append(f'{name}:{number}: a host')
        if has_columns(name, line) and len(line.expandtabs()) > COLUMNS:
            faults.append(f'{name}:{number}: {len(line.expandtabs())} columns')
    if program and text and 'SPDX-License-Identifier: GPL-2.0' not in text[:400]:
        faults.append(f'{name}: no SPDX-License-Identifier: GPL-2.0-only')
    return faults


def contents() -> None:
    """Our files have no machine-specific path or package mirror; programs carry their licence."""
    if faults := sum(map(faults_of, own_files()), []):
        raise Failed('\n'.join(faults))


def exceptions() -> None:
    """guest/splats.allowed has no expired exception."""
    if faults := console.expired():
        raise Failed('\n'.join(faults))


def settings() -> None:
    """guest/*.toml and every topic.toml have the keys and types of kit/model.py."""
    machines()
    for topic in topics.order():
        topics.after(topic)
    soak.settings()
    differ.settings()


def tables() -> None:
    """Pages show every recorded row; the tables of cover letters are short.

    The table that `make mail` makes of a machine's figures fits into 75 columns, and includes the
    largest regression. The figures of a letter's own table are those of the record."""
    faults = [f'{page}: a table differs from the record: make tables' for page in pages.stale()]
    for topic in topics.measured():
        page = TOP / 'series' / topic / 'README.md'
        if not page.exists() or f'<!-- bench {topic} -->' not in page.read_text():
            faults.append(f'series/{topic}/README.md does not show the record')
        parts = [part for part in topics.parts_of(topic) if measure.load(part)] or [topic]
        for name in dict.fromkeys((topic, *parts)):
            if data := measure.load(name):
                if name in parts:
                    said = table.cover_faults(data)
                    faults += [f'{name}, cover letter: {fault}' for fault in said]
                faults += [
                    f'{name}: {row["metric"]}: ratio {row["ratio"]} is not within its range'
                    for row in data['rows']
                    if table.outside(row)
                ]
    for part in topics.parts():
        faults += [f'{part}, cover letter: {fault}' for fault in letter.faults(part)]
    if faults:
        raise Failed('\n'.join(faults))


def covers() -> None:
    """Each cover letter can be read in a minute; each patch says that an LLM assisted."""
    if faults := cover.all_faults():
        raise Failed('\n'.join(faults))


def run_own_tests(*files: Path) -> None:
    """Runs tests with pytest, or with unittest if pytest cannot be installed."""
    try:
        command: list[Word] = [tool('pytest'), '-q', '-p', 'no:cacheprovider', *files]
    except KitError as error:
        say(f'own tests: {error}; using unittest instead')
        command = [sys.executable, '-m', 'unittest', *(f'tests.{file.stem}' for file in files)]
    done = result(command, cwd=TOP, env={'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONPATH': TOP})
    if done.returncode:
        raise Failed(done.text[-3000:])


def own_tests_of_verbs() -> None:
    """Tests of the verbs pass. On a toy kernel, they use bad input and kill verbs at random."""
    run_own_tests(VERBS)


def own_tests() -> None:
    """Tests of the tools pass. They remove topics, judge stored logs and run a fake QEMU."""
    run_own_tests(*sorted({*(TOP / 'tests').glob('test_*.py')} - {VERBS}))


def models() -> None:
    """Each topic's model (series/TOPIC/*_model.py) accepts linux/ and detects seeded bugs."""
    for program in sorted(SERIES.glob('*/*_model.py')):
        done = result([sys.executable, program], cwd=TOP)
        if done.returncode:
            raise Failed(done.stdout + done.stderr)
