# SPDX-License-Identifier: GPL-2.0-only
"""Prerequisites of a verb: Debian packages, tools from PyPI, linux/."""
