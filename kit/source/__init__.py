# SPDX-License-Identifier: GPL-2.0-only
"""series/ as files, linux/ as branches: base, apply, export, rebase, worktrees."""
