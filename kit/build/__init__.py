# SPDX-License-Identifier: GPL-2.0-only
"""Builds kernels and their configurations, selftests, reproducers and other programs for guests."""
