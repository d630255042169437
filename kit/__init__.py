# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit VERB. CONTRIBUTING.md lists the sub-packages. Only cli.py reads the command line;
model.py defines the keys of the TOML files."""
