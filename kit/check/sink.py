# SPDX-License-Identifier: GPL-2.0-only
"""A mail server on loopback that keeps all mails and forwards none."""

import socketserver
import threading

Mail = tuple[list[str], bytes]  # recipients, content


class Handler(socketserver.StreamRequestHandler):
    server: 'Sink'

    def handle(self) -> None:
        self.answer('220 sink')
        recipients = []
        for line in self.rfile:
            verb = line.strip().upper()
            if verb.startswith(b'EHLO'):
                self.answer('250-sink\r\n250 8BITMIME')
            elif (
                verb.startswith(b'RCPT TO:') and self.server.refuses and self.server.refuses in line
            ):
                self.answer('550 nobody of that name')
            elif verb.startswith(b'RCPT TO:'):
                recipients.append(line.partition(b'<')[2].partition(b'>')[0].decode())
                self.answer('250 yes')
            elif verb == b'DATA':
                self.answer('354 go on')
                lines = []
                while (line := self.rfile.readline()) not in (b'.\r\n', b''):
                    lines.append(line.removeprefix(b'.').removesuffix(b'\r\n') + b'\n')
                self.server.mails.append((recipients, b''.join(lines)))
                recipients = []
                self.answer('250 kept')
            elif verb == b'QUIT':
                self.answer('221 bye')
                return
            else:
                self.answer('250 yes')

    def answer(self, text: str) -> None:
        self.wfile.write(f'{text}\r\n'.encode())


class Sink(socketserver.ThreadingTCPServer):
    """The server. In `with Sink() as sink`, sink.mails is [(recipients, bytes)] in the order of
    arrival. The server rejects recipients that contain `refuses`."""

    daemon_threads = True

    def __init__(self, refuses: bytes = b'') -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.mails: list[Mail] = []
        self.refuses = refuses
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def configuration(self) -> str:
        """Returns the text of a git configuration that sends mail to this server."""
        return (
            f'[sendemail]\n smtpServer = 127.0.0.1\n smtpServerPort = '
            f'{self.server_address[1]}\n smtpEncryption =\n'
        )

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
