# SPDX-License-Identifier: GPL-2.0-only
"""Guests: QEMU, their file system, how one is started, followed and judged."""
