#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/config ARCH FLAVOUR [patched|base|bisect]: writes .config from the fragments; prints its name."""
import argparse

import kernel

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('arch')
arguments.add_argument('flavour')
arguments.add_argument('tree', nargs='?', default='patched')
given = arguments.parse_args()
kernel.configure(given.arch, given.flavour, given.tree)
print(kernel.out(given.arch, given.flavour, given.tree) / '.config')
