# SPDX-License-Identifier: GPL-2.0-only
"""Builds kernels, their configurations, selftests, reproducers and other programs for guests."""
