# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the patches: they apply, an export reproduces them, the kernel's tools accept them."""

import shutil

from kit.check.common import (
    READ,
    WORK,
    Failed,
    Skipped,
    checkout,
    each,
    need_patches,
    new_lines,
    series,
)
from kit.check.files import need, own_files, text_of
from kit.mail import checkpatch
from kit.mutants import mutant
from kit.paths import TOP
from kit.process import output, result
from kit.source.git import git, try_git
from kit.source.patches import format_patches
from kit.source.pinned import base_text, pinned, version_of
from kit.source.state import same_bytes


def applies() -> None:
    """series/ applies to the base from scratch."""
    series()


def round_trip() -> None:
    """Exporting the applied series gives the same bytes."""
    need_patches()
    version, wanted = version_of(git('show', 'base:Makefile')), pinned()[0]
    if version != wanted:
        raise Skipped(f'the base is {version}, but the patches were exported from {wanted}')
    folder, names, below = WORK / 'export', {}, 'base'
    shutil.rmtree(folder, ignore_errors=True)
    for topic, tip in series().parts.items():
        (folder / topic).mkdir(parents=True)
        format_patches(below, tip, folder / topic)
        names[topic] = sorted(path.name for path in (folder / topic).iterdir())
        below = tip
    different = same_bytes(folder, names)
    if base_text(series().last) != (TOP / 'BASE').read_text():
        different.append('BASE')
    if different:
        raise Failed(
            '\n'.join(f'{name} differs from an export (make export)' for name in different)
        )


def plain_am() -> None:
    """Plain `git am` works: no patch has a carriage return."""
    need_patches()
    for path in series().patches:
        if b'\r' in path.read_bytes():
            raise Failed(f'{path.name} has a carriage return: git am would strip it')


def checkpatched() -> None:
    """checkpatch --strict reports nothing.

    Missing sign-offs are ignored, as `make mail` adds them. New files are ignored, as the check
    `binding` covers them."""
    need_patches()
    checkout(series().last, READ)
    bad = checkpatch.findings(series().patches, READ, 'MISSING_SIGN_OFF', 'NO_AUTHOR_SIGN_OFF')
    if bad:
        raise Failed('\n'.join(bad).replace(f'{TOP}/', ''))


def spelling() -> None:
    """codespell finds nothing in added lines, messages and the repository's own texts."""
    need('codespell')
    folder, added = WORK / 'spelling', git('diff', '-U0', '--diff-filter=AM', 'base', series().last)
    texts = {
        'added': '\n'.join(line[1:] for line in added.splitlines() if line.startswith('+')),
        **{
            path.name: path.read_text(errors='replace').partition('\n---\n')[0]
            for path in series().patches
        },
        **{
            str(name).replace('/', '!'): text_of(name)
            for name in own_files()
            if name.name != 'COPYING'
        },
    }
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, errors='replace')
    # words that codespell takes for typos: EXTRAVERSION of the kernel, the unit VAS of powerpc, a
    # crate of Rust
    done = result(
        ['codespell', '--check-hidden', '--ignore-words-list=crate,extraversion,nd,vas', '.'],
        cwd=folder,
        env={'HOME': folder},
    )
    if done.returncode:
        raise Failed(done.stdout.replace('!', '/') + done.stderr)


def maintainers() -> None:
    """Changed sections of MAINTAINERS are complete and unique, and their patterns match files."""
    need_patches()
    if 'MAINTAINERS' not in series().files:
        raise Skipped('MAINTAINERS is not touched')
    checkout(series().last, READ)
    base, mine = (git('show', f'{commit}:MAINTAINERS') for commit in ('base', series().last))
    before = set(base.split('\n\n'))
    # upstream's own sections are left out, as testing all patterns takes minutes
    sections = '\n\n'.join(part for part in mine.split('\n\n') if part not in before)
    found = self_test('patterns', sections) + new_lines(
        self_test('sections', base), self_test('sections', mine)
    )
    git('checkout', '-q', '--', 'MAINTAINERS', cwd=READ)
    if found:
        raise Failed('\n'.join(found))


def self_test(kind: str, text: str) -> list[str]:
    """Returns get_maintainer's findings in this text of MAINTAINERS. The self-test takes no path,
    so the text replaces the file."""
    (READ / 'MAINTAINERS').write_text(f'{text.rstrip()}\n')
    done = result(['perl', 'scripts/get_maintainer.pl', f'--self-test={kind}'], cwd=READ)
    return (done.stdout + done.stderr).splitlines()


def binding() -> None:
    """Every new file belongs to a section of MAINTAINERS other than THE REST."""
    if not series().new:
        raise Skipped('no new files')
    checkout(series().last, READ)

    def bound(path: str) -> set[str]:
        text = output(
            [
                'perl',
                'scripts/get_maintainer.pl',
                '--no-git',
                '--no-git-fallback',
                '--no-email',
                '--no-l',
                '--sections',
                '-f',
                path,
            ],
            cwd=READ,
        )
        return {part.strip().splitlines()[0] for part in text.split('\n\n') if part.strip()} - {
            'THE REST'
        }

    bad = [
        f'{path} is only in the section THE REST of MAINTAINERS'
        for path, titles in zip(series().new, each(bound, series().new))
        if not titles
    ]
    if bad:
        raise Failed('\n'.join(bad))


def mutants() -> None:
    """Each diff of series/*/mutants applies to the whole series, and a boot has the bug's test."""
    found = mutant.all_of_them()
    if not found:
        raise Skipped('no mutants in series/')
    checkout(series().last, READ)
    faults = []
    for one in found:
        if not one.equivalent:
            mutant.boot_of(one)
        done = try_git('apply', '-C1', '--check', '-', cwd=READ, stdin=one.diff)
        if done.returncode:
            faults.append(f'{one.topic}/{one.name}: {done.stderr.strip()}')
    if faults:
        raise Failed('\n'.join(faults))
