# SPDX-License-Identifier: GPL-2.0-only
"""Seeded bugs, and the tests that must detect them."""
