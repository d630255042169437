# SPDX-License-Identifier: GPL-2.0-only
"""Kernels, their configurations, selftests, reproducers and other programs for guests."""
