# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for vLLM as processes of this machine, started as users start the real one."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys

from pathlib import Path

from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.discovery.processes import Proc
from vllm_watch.daemon.discovery.servers import find_servers


SCRIPT = Path(__file__).with_name("stand_in_vllm.py")


class ServersHere:
    """Starts stand-ins under a folder, and ends each by its number; other servers of the machine are left out."""

    def __init__(self, folder):
        # Its name tells our servers from those of another run of the same test on this machine.
        self.folder = folder / f"{folder.name}-{os.getpid()}"
        self.script = self.folder / "bin" / "vllm"
        self.script.parent.mkdir(parents=True)
        shutil.copy(SCRIPT, self.script)
        self.model = f"made-up/{self.folder.name}"
        self._shells = []

    def command(self, *options, port=None):
        """Return a command line as a shell takes it."""
        words = [sys.executable, str(self.script), "serve", self.model, *options]
        return shlex.join(words if port is None else [*words, "--port", str(port)])

    def start(self, line, **options):
        """Run a line in a shell of its own group; return when a server of ours is there."""
        before = {server.pid for server in self.found()}
        shell = subprocess.Popen(
            ["/bin/bash", "-c", line], cwd=self.folder, start_new_session=True, stdin=subprocess.DEVNULL, **options
        )
        self._shells.append(shell)
        return until(lambda: next((server for server in self.found() if server.pid not in before), None))

    def found(self):
        """Return our servers, as discovery has them."""
        proc = Proc()
        found = find_servers(proc, proc.processes())
        return [server for server in found.servers if server.command.model == self.model]

    def until_listening(self, port):
        """Wait until something listens on a port."""

        def is_open():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        until(is_open)

    def end(self, pid, number=signal.SIGKILL):
        """End one of them."""
        os.kill(pid, number)
        until(lambda: pid not in [server.pid for server in self.found()])

    def close(self):
        """End all that was started: each shell is the head of a process group of its own."""
        for shell in self._shells:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(SECONDS)
            if shell.stdout is not None:
                shell.stdout.close()
        until(lambda: not self.found())  # What a shell had started is nobody's to wait for.
