# SPDX-License-Identifier: GPL-2.0-only
"""Measurements: base and patched kernel, records, tables, pictures, pages."""
