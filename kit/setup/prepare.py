# SPDX-License-Identifier: GPL-2.0-only
"""What a verb stands on: packages, linux/, and the user's own tree."""

from kit.setup import deps
from kit.source import base, tree, user_tree


def packages(packages, archs='', arch=None, full=False):
    """See deps.install_missing()."""
    deps.install_missing(packages, archs, arch, full)


def trees(needs, linux=None, commit=None, stable_git=None):
    """needs: see cli.Verb; linux: the user's tree, which the base is taken from unless it is what
    is built; commit: what "base" is of it then."""
    base.main(None if needs == 'own' else linux, stable_git)
    if needs != 'base':
        tree.main(keep=True, stay=needs == 'own')
    if needs == 'own' and linux:
        user_tree.use(linux, commit)
