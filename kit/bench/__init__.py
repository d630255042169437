# SPDX-License-Identifier: GPL-2.0-only
"""Measurements of base and patched kernel: records, tables, pictures, pages."""
