# SPDX-License-Identifier: GPL-2.0-only
"""Locks on the folders that verbs work in."""

import fcntl
import os
import time
from pathlib import Path

from kit.errors import KitError
from kit.paths import shown
from kit.process import say


class Lock:
    """Allows one verb at a time in a folder. If a verb is killed, its child processes keep the
    lock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, open(folder / '.lock', 'w', encoding='ascii')
        os.set_inheritable(self.file.fileno(), True)

    def __enter__(self) -> None:
        for second in range(3600):
            try:
                return fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not second:
                    say(f'{shown(self.folder)}: waiting for another verb to finish')
                time.sleep(1)
        raise KitError(f'{shown(self.folder)}: another verb has used it for an hour')

    def __exit__(self, *_: object) -> None:
        # Closing the file would not unlock it: children of other threads, or git's daemon, may have
        # inherited it.
        fcntl.flock(self.file, fcntl.LOCK_UN)
        self.file.close()
