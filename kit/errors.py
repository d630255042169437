# SPDX-License-Identifier: GPL-2.0-only
"""What ends a verb. Only the command line prints it and ends the process."""

from typing import NoReturn

TERMINATED, INTERRUPTED = 143, 130  # what a shell says of a process that a signal has ended


class KitError(Exception):
    """A verb cannot go on: one line that says why, and the exit status."""

    def __init__(self, message: object, code: int = 1) -> None:
        super().__init__(str(message))
        self.code = code


def fail(message: object, code: int = 1) -> NoReturn:
    """KitError, where an expression is needed."""
    raise KitError(message, code)
