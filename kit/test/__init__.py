# SPDX-License-Identifier: GPL-2.0-only
"""Tests in guests: their boots and the meaning of their output."""
