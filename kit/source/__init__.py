# SPDX-License-Identifier: GPL-2.0-only
"""series/ as files and linux/ as branches: the base, apply, export, rebase, worktrees."""
