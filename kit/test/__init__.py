# SPDX-License-Identifier: GPL-2.0-only
"""Runs tests in guests: plans the boots, and judges the output of the tests."""
