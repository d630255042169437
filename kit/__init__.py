# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB. The verbs' modules are in rooms: setup, source, build, vm, test, soak,
bench, check, mail. cli.py alone reads the command line, model.py what TOML files say."""
