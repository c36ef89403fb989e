# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: its signals, its end, and the poor surroundings that it runs in."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from functools import partial
from pathlib import Path

import pytest

from tests.support.http_servers import StandIn, answer, free_port
from tests.support.processes import as_nobody
from tests.support.waiting import SECONDS, until


pytestmark = pytest.mark.slow

REPEATED, FEW = 40, 12
"""How many reloads; so many threads and files may be there between two, and as many that leak leave more."""

COMMAND = [sys.executable, "-m", "vllm_watch", "run"]
# Its first argument is a folder whose folder "state" can be written to, and nothing else.
READ_ONLY = [
    *("unshare", "-Urm", "/bin/sh", "-c"),
    'mount -t tmpfs -o mode=777 none "$1/state" && mount -o remount,bind,ro / && shift && exec "$@"',
    "sh",
]
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
        until(lambda: self.process.poll() is not None or self.count(event) >= times, SECONDS, lambda: str(self.entries))
        assert self.process.poll() is None, self.entries

    def ended(self, number=signal.SIGTERM):
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

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


def configured(folder, *servers, **settings):
    """Write a configuration; return its path."""
    settings = {"listen": "127.0.0.1:0", **settings}
    lines = [*(f"{name}: {value}" for name, value in settings.items()), "servers:", *(f"- {each}" for each in servers)]
    path = folder / "config.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def silent():
    """A server that takes requests and never answers."""
    with StandIn(lambda _: itertools.repeat(b""), pause=0.05) as server:
        yield server


class TestEnd:
    """SIGTERM ends the daemon soon and cleanly, whatever it is doing; a second one ends it at once (D3)."""

    def test_during_a_scrape_and_a_backlog(self, silent, tmp_path):
        """D3: a server that never answers is not waited for, nor is much log read to its end; the exit is 0."""
        log = tmp_path / "vllm.log"
        log.touch()
        config = configured(
            tmp_path, f"{{name: a, log: vllm.log, metrics: {{url: {silent.url!r}, interval: 60s, timeout: 60s}}}}"
        )
        with daemon([*COMMAND, "--config", config]) as running:
            running.until("source.changed")
            with log.open("ab") as file:
                file.write(LINE * 1_000_000)
            until(lambda: silent.requests)
            started = time.monotonic()
            status = running.ended()

        assert 0 == status, running.entries
        assert time.monotonic() - started < 60  # As long as the scrape may take.
        assert 1 == running.count("service.stopped")

    def test_a_second_signal_ends_it_at_once(self, tmp_path):
        """D3: while the first one is served, a second one kills: here the end hangs on purpose."""
        code = (
            "import time\n"
            "from vllm_watch.daemon.web.server import WebServer\n"
            "from vllm_watch.cli import command_line as cli\n"
            "def hang(self):\n"
            "    import sys\n"
            '    print(\'{"event": "hangs"}\', file=sys.stderr, flush=True)\n'
            "    time.sleep(3600)\n"
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
            status = running.ended(signal.SIGTERM)

        assert -signal.SIGTERM == status

    def test_a_closed_terminal_ends_what_has_nothing_to_reload(self, tmp_path):
        """SIGHUP is an orderly stop without a configuration file; the first event has the address."""
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [*COMMAND[:-1], "demo", "--listen", "127.0.0.1:0", "--log-format", "json"]
        with daemon(command, env=environment) as running:
            running.until("service.started")
            during = list(tmp_path.iterdir())
            status = running.ended(signal.SIGHUP)

        (started,) = [entry for entry in running.entries if entry["event"] == "service.started"]
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", started["address"])
        assert (0, 1, []) == (status, len(during), list(tmp_path.iterdir())), running.entries

    def test_a_signal_sent_twice_is_one(self, tmp_path):
        """D3: SIGTERM to the process and at once to its group, as `timeout` does it, is one orderly stop."""
        (tmp_path / "vllm.log").touch()
        code = (
            "import os, time, types\n"
            "from vllm_watch.cli import command_line as cli\n"
            "from vllm_watch.daemon.service import supervisor\n"
            "served = []\n"
            "def wait_for_the_second(_):\n"
            "    served.append(1)\n"
            '    os.write(2, b\'{"event": "asked"}\\n\')\n'  # A print may not be interrupted by another.
            "    while len(served) < 2:\n"
            "        time.sleep(0.01)\n"
            "supervisor.time = types.SimpleNamespace(sleep=wait_for_the_second)\n"
            "cli.main()\n"
        )
        command = [sys.executable, "-c", code, "run", "--log", tmp_path / "vllm.log", "--listen", "127.0.0.1:0"]
        with daemon(command) as running:
            running.until("service.started")
            running.process.send_signal(signal.SIGTERM)
            running.until("asked")
            status = running.ended()

        assert 0 == status, running.entries
        assert 1 == running.count("service.stopped")

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
                status = running.ended()
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

    def test_many_in_a_row_leak_nothing(self, tmp_path):
        """D4: after many reloads to another server, each followed by a refused one, there is as much open as before."""
        with StandIn(lambda _: [answer(b"")], closes=True) as server, contextlib.ExitStack() as stack:
            for number in range(REPEATED):
                log = tmp_path / ("even", "odd")[number % 2] / "a.log"
                log.parent.mkdir(exist_ok=True)
                log.touch()
                config = configured(tmp_path, f"{{name: {log.parent.name}, log: {log}, metrics: {server.url!r}}}")
                if number == 0:
                    running = stack.enter_context(daemon([*COMMAND, "--config", config]))
                else:
                    running.process.send_signal(signal.SIGHUP)
                    running.until("config.reloaded", number)
                running.until("source.changed", 2 * number + 2)
                config.write_text("servers: [{name: a}]\n")
                running.process.send_signal(signal.SIGHUP)
                running.until("config.rejected", number + 1)
                if number == 2:
                    before = running.resources()
            until(lambda: all(now < was + FEW for now, was in zip(running.resources(), before, strict=True)))
            status = running.ended()

        assert 0 == status


class TestFiles:
    """The files that a process may have open are shared among its logs, its clients and itself."""

    def test_the_limit_is_raised(self, tmp_path):
        """F1: the usual soft limit of 1024 files is not what the daemon keeps to, if the system allows more."""
        (tmp_path / "vllm.log").touch()
        limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 512))
        command = [*COMMAND, "--log", tmp_path / "vllm.log", "--listen", "127.0.0.1:0"]
        with daemon(command, preexec_fn=limit) as running:
            running.until("service.started")

            assert (512, 512) == resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)


class TestSurroundings:
    """The daemon needs nothing of its surroundings (D7)."""

    @pytest.mark.parametrize(
        "kind",
        [
            "this user",
            pytest.param("nobody and a read-only root", marks=pytest.mark.needs_root),
        ],
    )
    def test_no_home_no_input_no_rights(self, kind, public_folder):
        """D7: without HOME and input, with LANG=C and umask 0, in no folder of its own, it serves; its file is 0600."""
        around = [
            *(_as_nobody(public_folder / "empty") if kind.startswith("nobody") else []),
            *([*READ_ONLY, str(public_folder)] if kind.endswith("root") else []),
        ]
        _skip_unless_it_can_be_run(around)
        (public_folder / "vllm.log").write_bytes(LINE)
        port = free_port()
        config = configured(
            public_folder,
            "{name: a, log: vllm.log, metrics: 'http://127.0.0.1:9/metrics'}",
            listen=f"127.0.0.1:{port}",
            checkpoint="state/checkpoint.json",
        )
        command = [*around, "/bin/sh", "-c", 'umask 0; exec "$@" <&-', "sh", *COMMAND, "--config", config]
        environment = {"LANG": "C", "PYTHONDONTWRITEBYTECODE": "1", **_python_path()}
        with daemon(command, env=environment, cwd="/") as running:
            running.until("source.changed")
            until(lambda: _asked(port, "/-/ready") == b"ready\n")
            saved = Path(f"/proc/{running.process.pid}/root{public_folder}/state/checkpoint.json")
            until(saved.exists)
            mode = stat.S_IMODE(saved.stat().st_mode)
            status = running.ended()

        assert 0o600 == mode
        assert 0 == status, running.entries

    @pytest.mark.parametrize("where", ["2>/dev/full", "2>&1 | true", "0<&- 1>&- 2>&-"])
    def test_its_own_log_cannot_be_written(self, where, tmp_path):
        """D7: closed, full or without a reader, standard error ends nothing: it reloads, serves and ends well."""
        log = tmp_path / "vllm.log"
        log.touch()
        port = free_port()
        config = configured(tmp_path, "{name: a, log: vllm.log}", listen=f"127.0.0.1:{port}")
        # The shell tells the exit status, whose own output may be gone.
        script = f'("$@" & echo $! > pid; wait $!; echo $? > status) {where}'
        shell = subprocess.Popen(["/bin/sh", "-c", script, "sh", *COMMAND, "--config", str(config)], cwd=tmp_path)
        try:
            until(lambda: _asked(port, "/-/ready") == b"ready\n")
            process = int((tmp_path / "pid").read_text())
            streams = [os.readlink(f"/proc/{process}/fd/{number}") for number in range(3)]
            config.write_text("servers: []\n")
            os.kill(process, signal.SIGHUP)
            until(lambda: b"vllm_watch_config_reload_failures_total 1.0" in _asked(port, "/metrics"))
            log.write_bytes(LINE)
            until(lambda: b'vllm_watch_log_lines_total{server="a"} 1.0' in _asked(port, "/metrics"))
            os.kill(process, signal.SIGTERM)
            shell.wait(SECONDS)
        finally:
            shell.kill()
            shell.wait(SECONDS)

        assert "0\n" == (tmp_path / "status").read_text()
        assert not [each for each in streams if each.startswith("socket:")]


@pytest.fixture
def public_folder():
    """A folder with one for the daemon's state, which other users reach, too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        (folder / "state").chmod(0o777)
        yield folder


def _python_path():
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}


def _asked(port, path):
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as response,
    ):
        return response.read()
    return b""


def _as_nobody(empty):
    empty.mkdir()
    return as_nobody(empty)


def _skip_unless_it_can_be_run(around):
    command = [*around, sys.executable, "-c", "import vllm_watch.cli.command_line"]
    try:
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=SECONDS)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let an installation be run so")
