# SPDX-License-Identifier: GPL-2.0-only
"""Prepares for a verb: Debian packages, tools from PyPI, linux/."""
