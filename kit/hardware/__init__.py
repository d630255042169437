# SPDX-License-Identifier: GPL-2.0-only
"""`make hardware`: kernels and programs to measure on a machine, and the figures from there."""
