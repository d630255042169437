# SPDX-License-Identifier: GPL-2.0-only
"""Data races that KCSAN reports. The base has many: those count of which one of the two accesses is
in a function that the series changes. What is inlined goes by the name of the function it is in.
"""
import re

from kit.git import git
from kit.trees import source

# a line that begins a function, or declares what is in it, of a diff with whole functions
BEGINS = re.compile(r'^[ +][a-z][^;]*?\b(\w+)\([^;]*$', re.M)
SOURCES = '*.c', ':!tools', ':!*test*'


def changed_functions():
    """Those of the kernel that the series adds or changes."""
    changes = git('diff', '--function-context', 'base', 'HEAD', '--', *SOURCES,
                  cwd=source('patched'))
    return sorted(set(BEGINS.findall(changes)))


def elsewhere():
    """A regular expression of the reports that do not count."""
    return rf'BUG: KCSAN: data-race in (?!.*\b({"|".join(changed_functions())})\b)'
