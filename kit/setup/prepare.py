# SPDX-License-Identifier: GPL-2.0-only
"""Prepares everything that a verb needs: packages, linux/, and the user's own tree."""

from kit.build.trees import OURS, Trees
from kit.setup import deps
from kit.source import base, tree, user_tree


def packages(names: str, archs: str = '', arch: str | None = None, full: bool = False) -> None:
    """Installs missing packages: see deps.install_missing()."""
    deps.install_missing(names, archs, arch, full)


def trees(
    needs: str, linux: str | None = None, commit: str | None = None, stable_git: str | None = None
) -> Trees:
    """Makes linux/ if needed; returns the trees to build and compare. For `needs`, see cli.Verb.
    `linux` is a tree of the user. If `needs` is 'own', this tree is built, and `commit` is its
    "base". Otherwise, only the base is taken from this tree."""
    base.main(None if needs == 'own' else linux, stable_git)
    if needs != 'base':
        tree.main(keep=True, stay=needs == 'own')
    return user_tree.use(linux, commit) if needs == 'own' and linux else OURS
