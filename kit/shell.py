#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""scripts/shell ARCH [FLAVOUR [TREE]]: the kernel, built and booted, with a shell on this terminal."""
import argparse
import sys

import guest
import kernel

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('arch')
arguments.add_argument('flavour', nargs='?', default='plain')
arguments.add_argument('tree', nargs='?', default='patched')
arguments.add_argument('--cpus', type=int, default=0)
arguments.add_argument('--mem', default='')
arguments.add_argument('--append', default='')
given = arguments.parse_args()
options = guest.Options(cpus=given.cpus, memory=given.mem, append=given.append)
sys.exit(guest.shell(given.arch, kernel.build(given.arch, given.flavour, given.tree), options))
