# SPDX-License-Identifier: GPL-2.0-only
"""Long runs of all workloads, and a comparison of random calls on both kernels."""
