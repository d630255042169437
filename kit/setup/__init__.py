# SPDX-License-Identifier: GPL-2.0-only
"""Prepares everything that a verb needs: Debian packages, tools from PyPI, linux/."""
