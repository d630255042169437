# SPDX-License-Identifier: GPL-2.0-only
"""Tests in guests: which boots, what they say, what that is worth."""
