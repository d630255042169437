# SPDX-License-Identifier: GPL-2.0-only
"""Long runs of all workloads, and random calls compared on both kernels."""
