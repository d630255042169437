# SPDX-License-Identifier: GPL-2.0-only
"""What runs for long, and what is compared at random."""
