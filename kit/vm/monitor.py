# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's monitor, for the registers of a hanging guest."""

import json
import socket
from pathlib import Path
from typing import Any

NAME = 'monitor'  # the socket in a boot's folder
SECONDS = 10
LONGEST = 100  # maximum length of a socket's path


def words() -> list[str]:
    """Returns words for QEMU's command line. QEMU runs in the boot's folder."""
    return ['-qmp', f'unix:{NAME},server=on,wait=off']


def registers(folder: Path) -> str:
    """Returns the registers of all CPUs, as QEMU prints them. The text is empty if QEMU does not
    answer."""
    path = str(folder / NAME)
    if len(path) > LONGEST:
        return ''
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            with connection.makefile('rw', encoding='utf-8') as file:
                file.readline()  # its greeting

                def ask(name: str, **arguments: Any) -> Any:
                    file.write(json.dumps({'execute': name, 'arguments': arguments}) + '\n')
                    file.flush()
                    while (answer := json.loads(file.readline())) and 'event' in answer:
                        pass
                    return answer.get('return')

                ask('qmp_capabilities')
                command = {'command-line': 'info registers -a'}
                return str(ask('human-monitor-command', **command) or '').replace('\r', '')
    except (OSError, ValueError):
        return ''
