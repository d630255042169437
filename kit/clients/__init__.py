# SPDX-License-Identifier: GPL-2.0-only
"""Unmodified programs from Debian's archive that use VFIO, on both kernels."""
