# SPDX-License-Identifier: GPL-2.0-only
"""Programs from Debian's archive, or on published crates, on both kernels."""
