# SPDX-License-Identifier: GPL-2.0-only
"""What has to be there: packages, linux/, a tree of the user's."""
