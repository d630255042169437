# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB: see kit/cli.py."""

from kit import cli

if __name__ == '__main__':
    cli.guarded(cli.main, cli.verb_name())
