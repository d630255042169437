# SPDX-License-Identifier: GPL-2.0-only
"""Guests: QEMU, their file system and console, and the outcome of a boot."""
