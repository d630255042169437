# SPDX-License-Identifier: GPL-2.0-only
"""Keeps series/ (patch files) and linux/ (git branches) in step: base, apply, export, rebase."""
