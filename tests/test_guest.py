# SPDX-License-Identifier: GPL-2.0-only
"""Guests: kit/vm/guest.py watches shell scripts that replace QEMU, and judges their outcome."""

import json
import shutil
import socket
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from kit.model import Limits, Options
from kit.vm import console, guest, monitor
from tests.support import X86_64

RULES = [console.compiled('here', r'\bBUG: ')], []


class Accelerator(unittest.TestCase):
    def test_kvm_where_it_works_and_can_do_what_is_asked(self):
        for options, wanted in (
            (Options(), 'kvm'),
            (Options(icount=True), 'tcg,thread=single'),
            (Options(qemu=('-plugin', 'file=x')), 'tcg,thread=multi'),
        ):
            with mock.patch.object(guest, 'kvm_works', lambda *_: True):
                found = guest.accelerator_for(X86_64, Path('image'), options)
            self.assertEqual(found, wanted)
        with mock.patch.object(guest, 'kvm_works', lambda *_: False):
            found = guest.accelerator_for(X86_64, Path('image'), Options())
        self.assertEqual(found, 'tcg,thread=multi')


class Watch(unittest.TestCase):
    # long enough for a busy host; each test shortens the limit that it tests
    LIMITS = {'boot': 60, 'silence': 60, 'total': 60, 'shutdown': 60}

    def watch(self, script, **limits):
        folder = Path(tempfile.mkdtemp(prefix='watch-'))
        self.addCleanup(shutil.rmtree, folder)
        lines = []
        limits = Limits(**{**self.LIMITS, **limits})
        ended = guest.watch(['sh', '-c', script], folder, limits, RULES, on_line=lines.append)
        return ended, lines

    def check(self, script, status, says, **limits):
        ended, _ = self.watch(script, **limits)
        self.assertEqual(ended.status, status, ended.message)
        self.assertIn(says, ended.message)

    def test_good_and_failed(self):
        ended, lines = self.watch(
            'echo up > status; printf "a\\r\\nb\\nhalf" > results; '
            'echo debug_locks 0 >> status; echo exit 0 >> status'
        )
        self.assertEqual((ended.status, ended.lockdep, lines), (guest.OK, False, ['a', 'b']))
        self.check('echo up > status; echo exit 3 >> status', guest.FAILED, 'exit status 3')

    def test_stopped_by_its_caller(self):
        folder = Path(tempfile.mkdtemp(prefix='watch-'))
        self.addCleanup(shutil.rmtree, folder)
        script = 'echo up > status; echo a > results; echo b >> results; sleep 99'
        ended = guest.watch(
            ['sh', '-c', script], folder, Limits(**self.LIMITS), RULES, on_line='b'.__eq__
        )
        self.assertEqual(ended.status, guest.LOST)
        self.assertIn('was stopped', ended.message)

    def test_splats_and_panics(self):
        done = 'echo up > status; echo exit 0 >> status'
        self.check(f'echo "BUG: here" > console; {done}', guest.SPLAT, '1 line(s)')
        self.check('echo up > status; echo "Kernel panic" > console', guest.LOST, 'panicked')

    def test_lost(self):
        self.check('echo no such device >&2; exit 1', guest.LOST, 'QEMU: no such device')
        self.check('echo up > status', guest.LOST, 'without an exit status')
        self.check('sleep 99', guest.LOST, 'did not reach its init', boot=1)
        self.check('echo up > status; sleep 99', guest.LOST, 'was silent', silence=1)
        self.check(
            'echo up > status; while sleep 0.1; do echo x >> results; done',
            guest.LOST,
            'did not finish its job',
            total=1,
        )
        self.check(
            'echo up > status; echo exit 0 >> status; sleep 99',
            guest.LOST,
            'did not power off',
            shutdown=1,
        )


class Monitor(unittest.TestCase):
    def test_registers_of_a_guest_that_hangs(self):
        folder = Path(tempfile.mkdtemp(prefix='monitor-'))
        self.addCleanup(shutil.rmtree, folder)
        asked = []

        def answer(server):
            connection, _ = server.accept()
            with connection, connection.makefile('rw', encoding='utf-8') as file:
                for text in ({'QMP': {}}, {'return': {}}, {'return': 'RIP=1\r\n'}):
                    if asked or 'QMP' not in text:
                        asked.append(json.loads(file.readline())['execute'])
                    file.write(json.dumps({'event': 'STOP'}) + '\n' if len(asked) == 2 else '')
                    file.write(json.dumps(text) + '\n')
                    file.flush()

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / monitor.NAME))
            server.listen()
            thread = threading.Thread(target=answer, args=(server,))
            thread.start()
            self.assertEqual(monitor.registers(folder), 'RIP=1\n')
            thread.join()
        self.assertEqual(asked, ['qmp_capabilities', 'human-monitor-command'])

    def test_nobody_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(monitor.registers(Path(folder)), '')
