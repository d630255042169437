# SPDX-License-Identifier: GPL-2.0-only
"""Builds kernels and programs for measurements on a machine (`make hardware`), and reads the
figures that were measured there."""
