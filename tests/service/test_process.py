# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: its signals, its end, and the poor surroundings that it runs in."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from pathlib import Path

import pytest

from tests.support.http_servers import StandIn


SECONDS = 20
END_SECONDS = 5
COMMAND = [sys.executable, "-m", "vllm_watch.cli", "run"]
NOBODY = 65534
READ_ONLY = ["unshare", "-Urm", "/bin/sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh"]
LINE = b"INFO 11-21 02:14:25 [logger.py:40] Received request cmpl-0123456789: params: SamplingParams(n=1)\n"


class Daemon:
    """A running daemon; its own log is kept as it comes."""

    def __init__(self, command, **options):
        self.entries = []
        self.process = subprocess.Popen(
            [str(word) for word in command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **options
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            try:
                self.entries.append(json.loads(line))
            except ValueError:
                self.entries.append({"event": line.decode()})

    def count(self, event):
        """Return how often the log has an event."""
        return sum(entry["event"] == event for entry in self.entries)

    def until(self, event, times=1):
        """Wait until the log has an event so many times."""
        end = time.monotonic() + SECONDS
        while self.count(event) < times:
            assert time.monotonic() < end, self.entries
            assert self.process.poll() is None, self.entries
            time.sleep(0.01)

    def ended(self, number=signal.SIGTERM):
        """Send a signal; return the exit status and the seconds until the end."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(SECONDS), time.monotonic() - started

    def resources(self):
        """Return the numbers of its threads and of its open files."""
        folder = Path(f"/proc/{self.process.pid}")
        return len(list((folder / "task").iterdir())), len(list((folder / "fd").iterdir()))

    def close(self):
        """End it, however it is."""
        self.process.kill()
        self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.process.stderr.close()


@contextlib.contextmanager
def daemon(command, **options):
    """Run a daemon until the context ends."""
    running = Daemon(command, **options)
    try:
        yield running
    finally:
        running.close()


def configured(folder, *servers):
    """Write a configuration; return its path."""
    lines = ["listen: 127.0.0.1:0", "servers:", *(f"- {server}" for server in servers)]
    path = folder / "config.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def silent():
    """A server that takes requests and never answers."""
    with StandIn(lambda _: itertools.repeat(b""), pause=0.05) as server:
        yield server


def _wait_for_request(server):
    end = time.monotonic() + SECONDS
    while not server.requests:
        assert time.monotonic() < end
        time.sleep(0.01)


class TestEnd:
    """SIGTERM ends the daemon soon and cleanly, whatever it is doing; a second one ends it at once (D3)."""

    def test_during_a_scrape_and_a_backlog(self, silent, tmp_path):
        """D3: with a server that never answers, and much log to read, the exit is 0 within 5 s."""
        log = tmp_path / "vllm.log"
        log.touch()
        config = configured(
            tmp_path, f"{{name: a, log: vllm.log, metrics: {{url: {silent.url!r}, interval: 60s, timeout: 60s}}}}"
        )
        with daemon([*COMMAND, "--config", config]) as running:
            running.until("source.changed")
            with log.open("ab") as file:
                file.write(LINE * 1_000_000)
            _wait_for_request(silent)
            status, seconds = running.ended()

        assert 0 == status, running.entries
        assert seconds < END_SECONDS
        assert 1 == running.count("service.stopped")

    def test_a_second_signal_ends_it_at_once(self, tmp_path):
        """D3: while the first one is served, a second one kills: here the end hangs on purpose."""
        code = (
            "import time\n"
            "from vllm_watch.web.server import WebServer\n"
            "from vllm_watch import cli\n"
            "def hang(self):\n"
            "    import sys\n"
            '    print(\'{"event": "hangs"}\', file=sys.stderr, flush=True)\n'
            "    time.sleep(60)\n"
            "WebServer.stop = hang\n"
            "cli.main()\n"
        )
        log = tmp_path / "vllm.log"
        log.touch()
        command = [sys.executable, "-c", code, "run", "--log", log, "--listen", "127.0.0.1:0"]
        with daemon(command) as running:
            running.until("source.changed")
            running.process.send_signal(signal.SIGINT)
            running.until("hangs")
            status, seconds = running.ended(signal.SIGTERM)

        assert -signal.SIGTERM == status
        assert seconds < 1

    def test_systemd_hears_of_all_of_it(self, tmp_path):
        """D1: a real process says READY, its status, signs of life, its reload and its end, in this order."""
        (tmp_path / "vllm.log").touch()
        config = configured(tmp_path, "{name: a, log: vllm.log}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(str(tmp_path / "notify"))
            systemd.settimeout(SECONDS)
            environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "500000"}
            with daemon([*COMMAND, "--config", config], env=environment) as running:
                heard = [_said(systemd, "READY"), _said(systemd, "WATCHDOG"), _said(systemd, "WATCHDOG")]
                running.process.send_signal(signal.SIGHUP)
                heard += [_said(systemd, "RELOADING"), _said(systemd, "READY")]
                status, _ = running.ended()
                heard.append(_said(systemd, "STOPPING"))

        assert 0 == status
        assert heard[3].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert "STOPPING=1" == heard[-1]


def _said(systemd, word):
    """Return the next datagram that begins so."""
    while not (said := systemd.recv(4096).decode()).startswith(word):
        pass
    return said


class TestReload:
    """SIGHUP reads the configuration again (D4)."""

    def test_good_bad_and_vanished(self, tmp_path):
        """D4: a good file is taken; a bad one and one that is gone are refused, and the daemon goes on."""
        config = configured(tmp_path, "{name: a, log: a.log}")
        with daemon([*COMMAND, "--config", config]) as running:
            running.until("service.started")
            configured(tmp_path, "{name: a, log: a.log}", "{name: b, log: b.log}")
            running.process.send_signal(signal.SIGHUP)
            running.until("config.reloaded")
            config.write_text("servers: [{name: a}]\n")
            running.process.send_signal(signal.SIGHUP)
            running.until("config.refused")
            config.unlink()
            running.process.send_signal(signal.SIGHUP)
            running.until("config.refused", 2)
            status, _ = running.ended()

        reasons = [entry["reason"] for entry in running.entries if entry["event"] == "config.refused"]
        assert 0 == status
        assert "needs log, metrics or both" in reasons[0]
        assert "config.yml" in reasons[1]

    def test_a_hundred_in_a_row_leak_nothing(self, tmp_path):
        """D4: after 100 signals there are as many threads and open files as after the first."""
        (tmp_path / "a.log").touch()
        config = configured(tmp_path, "{name: a, log: a.log}")
        with daemon([*COMMAND, "--config", config]) as running:
            running.until("source.changed")
            resources = []
            for number in range(1, 101):
                configured(tmp_path, f"{{name: a, log: a.log, stall_after: {10 + number}}}")
                running.process.send_signal(signal.SIGHUP)
                running.until("config.reloaded", number)
                running.until("source.changed", number + 1)
                if number in {1, 100}:
                    resources.append(running.resources())
            status, _ = running.ended()

        assert 0 == status
        assert resources[0] == resources[1]


class TestSurroundings:
    """The daemon needs nothing of its surroundings (D7)."""

    @pytest.mark.parametrize("kind", ["this user", "nobody", "a read-only root"])
    def test_no_home_no_input_no_rights(self, kind):
        """D7: without HOME and standard input, with LANG=C and umask 0, in a folder not its own, it serves and ends."""
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if kind == "nobody" else {}
        around = [*READ_ONLY] if kind == "a read-only root" else []
        _skip_unless_it_can_be_run(around, user)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        command = [*around, "/bin/sh", "-c", 'umask 0; exec "$@" <&-', "sh", *COMMAND]
        command += ["--metrics", "http://127.0.0.1:9/metrics", "--listen", f"127.0.0.1:{port}"]
        environment = {"LANG": "C", "PYTHONDONTWRITEBYTECODE": "1"}
        with daemon(command, env=environment, cwd="/", **user) as running:
            running.until("source.changed")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=SECONDS) as response:
                body = response.read()
            status, seconds = running.ended()

        assert b"ready\n" == body
        assert 0 == status, running.entries
        assert seconds < END_SECONDS


def _skip_unless_it_can_be_run(around, user):
    if user and os.geteuid() != 0:
        pytest.skip("only root can run a process as nobody")
    command = [*around, sys.executable, "-c", "import vllm_watch.cli"]
    try:
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=60, **user)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let an installation be run so")
