# SPDX-License-Identifier: GPL-2.0-only
"""Tests in guests: which boots, and what their output means."""
