# SPDX-License-Identifier: GPL-2.0-only
"""What a verb stands on: packages, linux/, and the user's own tree."""
import os

from kit import base, deps, own, tree

READY = bool(os.environ.get('KIT_NO_SETUP'))    # the caller knows that all of it is there


def packages(verb):
    if not READY:
        deps.main(verb)


def trees(needs, path=None):
    """needs: see Verb; path: a tree that the base is taken from."""
    if READY:
        return
    base.main(path)
    if needs != 'base':
        tree.main(keep=True, stay=needs == 'own')
    if needs == 'own' and own.given():
        own.use()
