# SPDX-License-Identifier: GPL-2.0-only
"""Errors that end a verb. Only kit/cli.py prints them and ends the process."""

from typing import NoReturn

TERMINATED, INTERRUPTED = 143, 130  # a shell's exit statuses for SIGTERM and SIGINT


class KitError(Exception):
    """An error that ends the verb. It has the reason, in one line, and the exit status."""

    def __init__(self, message: object, code: int = 1) -> None:
        super().__init__(str(message))
        self.code = code


def fail(message: object, code: int = 1) -> NoReturn:
    """Raises KitError. Unlike a `raise` statement, a call of this function is an expression."""
    raise KitError(message, code)
