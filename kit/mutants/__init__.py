# SPDX-License-Identifier: GPL-2.0-only
"""Mistakes made on purpose, and the tests that have to notice them."""
