# SPDX-License-Identifier: GPL-2.0-only
"""Writes topics as mail, and sends them."""
