# SPDX-License-Identifier: GPL-2.0-only
"""What a verb stands on: packages, linux/, and the user's own tree."""
import os

from kit import base, deps, own, tree

READY = bool(os.environ.get('KIT_NO_SETUP'))    # the caller knows that all of it is there


def packages(packages, archs='', arch=None, full=False):
    """See deps.install_missing()."""
    if not READY:
        deps.install_missing(packages, archs, arch, full)


def trees(needs, linux=None, commit=None, stable_git=None):
    """needs: see cli.Verb; linux: the user's tree, which the base is taken from unless it is what
    is built; commit: what "base" is of it then."""
    if READY:
        return
    base.main(None if needs == 'own' else linux, stable_git)
    if needs != 'base':
        tree.main(keep=True, stay=needs == 'own')
    if needs == 'own' and linux:
        own.use(linux, commit)
