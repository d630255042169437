# SPDX-License-Identifier: GPL-2.0-only
"""Programs that use the IOMMU, from Debian's archive or on published crates, on both kernels."""
