# SPDX-License-Identifier: GPL-2.0-only
"""Guests: QEMU, their file system, their console, and how a boot ends."""
