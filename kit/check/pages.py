# SPDX-License-Identifier: GPL-2.0-only
"""Checks of documentation: kernel-doc comments, pages, references, ABI descriptions."""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from kit.check.common import READ, WORK, Failed, Skipped, checkout, each, new_lines, series
from kit.check.files import need
from kit.process import result
from kit.source.pinned import base_file


def kernel_doc() -> None:
    """kernel-doc -none -Wall reports nothing new in touched files."""
    files = series().present('.c', '.h')
    if not files:
        raise Skipped('no C file touched')
    checkout(series().last, READ)
    old = WORK / 'base'
    shutil.rmtree(old, ignore_errors=True)

    def findings(path: str) -> list[str]:
        content, before = base_file(path), []
        if content is not None:
            (old / path).parent.mkdir(parents=True, exist_ok=True)
            (old / path).write_bytes(content)
            before = kernel_doc_says(path, old)
        return new_lines(before, kernel_doc_says(path, READ))

    found = sum(each(findings, files), [])
    if found:
        raise Failed('\n'.join(found))


def kernel_doc_says(path: str, folder: Path) -> list[str]:
    done = result([sys.executable, READ / 'scripts/kernel-doc', '-none', '-Wall', path], cwd=folder)
    return list(
        dict.fromkeys(line for line in (done.stdout + done.stderr).splitlines() if line.strip())
    )


def doc_says(commit: str, pages: Sequence[str]) -> list[str]:
    """Returns findings in the commit's version of these pages. They come from docutils and from the
    kernel's checkers of references and ABI descriptions."""
    checkout(commit, READ)
    said = []
    # docutils lacks the directives and roles of Sphinx and the kernel
    unknown = r'Unknown (directive type|interpreted text role)|No (directive|role) entry'
    for path in pages:
        if path.endswith('.rst'):
            done = result(['rst2pseudoxml', '--report=2', '--halt=5', path], cwd=READ)
            said += [
                line
                for line in done.stderr.splitlines()
                if re.match(r'\S+:\d*:? \(', line) and not re.search(unknown, line)
            ]
    references = result(['perl', 'tools/docs/documentation-file-ref-check'], cwd=READ)
    said += [
        f'{line} does not exist'
        for line in (references.stdout + references.stderr).splitlines()
        if line.split(': ')[0] in pages
    ]
    for folder in {
        str(Path(path).parent) for path in pages if path.startswith('Documentation/ABI/')
    }:
        found = result(
            [sys.executable, 'tools/docs/get_abi.py', '--dir', folder, 'validate'], cwd=READ
        )
        said += [
            line
            for line in (found.stdout + found.stderr).splitlines()
            if any(path in line for path in pages)
        ]
    return said


def docs() -> None:
    """docutils, documentation-file-ref-check and get_abi.py report nothing new in touched files."""
    if not series().files:
        raise Skipped('no files touched')
    need('rst2pseudoxml')
    said = doc_says(series().last, series().present(''))
    if said:
        said = new_lines(
            doc_says(
                'base', [path for path in series().present('') if base_file(path) is not None]
            ),
            said,
        )
    if said:
        raise Failed('\n'.join(said))
