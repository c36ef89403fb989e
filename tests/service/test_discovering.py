# SPDX-License-Identifier: Apache-2.0
"""The daemon without a configuration: it watches what runs here, as it comes and goes."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request

from functools import partial

import pytest

from tests.support.http_servers import free_port
from tests.support.servers_here import ServersHere
from tests.support.waiting import SECONDS, until

from vllm_watch.cli.commands.check import check
from vllm_watch.daemon.config.config_file import load_config


pytestmark = pytest.mark.slow


COMMAND = [sys.executable, "-m", "vllm_watch"]
"""The same, but that it looks more often than every ten seconds."""


class Daemon:
    """A running daemon without a configuration; its log is kept as it comes."""

    def __init__(self, command=COMMAND):
        self.entries = []
        self.port = free_port()
        command = [*command, "run", "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.until(lambda: any(entry["event"] == "service.started" for entry in self.entries))

    def _read(self):
        for line in self.process.stderr:
            with contextlib.suppress(ValueError):
                self.entries.append(json.loads(line))

    def until(self, condition):
        """Wait until a condition is true, while it runs."""
        until(lambda: self.process.poll() is not None or condition(), SECONDS, lambda: self.entries)
        assert self.process.poll() is None, self.entries

    def page(self):
        """Return what /metrics says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=SECONDS) as answer:
            return answer.read().decode()

    def states(self, name):
        """Return the present states of a server's engines."""
        return re.findall(rf'engine_state{{[^}}]*server="{re.escape(name)}",state="(\w+)"}} 1\.0', self.page())

    def said(self, event, name):
        """Return the entries of an event on a server."""
        return [entry for entry in self.entries if entry["event"] == event and entry.get("server") == name]

    def look(self):
        """Make it look at once."""
        self.process.send_signal(signal.SIGHUP)

    def close(self):
        """End it."""
        self.process.terminate()
        assert 0 == self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.process.stderr.close()


def finished(*command):
    """Run a command to its end."""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture
def here(tmp_path):
    """Stand-ins for vLLM on this machine."""
    servers = ServersHere(tmp_path)
    yield servers
    servers.close()


@pytest.fixture
def daemon():
    """A daemon that watches what it finds."""
    running = Daemon()
    yield running
    running.close()


class TestRun:
    """`run` without arguments."""

    def test_a_server_that_comes_goes_and_comes_back(self, here, daemon):
        """A server is found when it starts, down when it is killed, and the same one when it is started again."""
        port = free_port()
        name = f"{here.folder.name}:{port}"
        line = f"exec {here.command('--max-num-seqs', '24', port=port)} >> vllm.log 2>&1"
        first = here.start(line)
        here.until_listening(port)
        daemon.look()
        daemon.until(lambda: daemon.states(name) == ["idle"] and daemon.said("discovery.found", name))
        (found,) = daemon.said("discovery.found", name)

        assert (first.pid, str(here.folder / "vllm.log")) == (found["pid"], found["log"])
        assert re.search(rf'max_running_requests{{[^}}]*server="{name}"}} 24\.0', daemon.page())

        here.end(first.pid)
        daemon.look()
        daemon.until(lambda: daemon.said("discovery.gone", name))
        daemon.until(lambda: daemon.states(name) == ["down"])

        here.start(line.replace("--max-num-seqs 24", "--max-num-seqs 8"))
        here.until_listening(port)
        daemon.look()
        daemon.until(lambda: len(daemon.said("discovery.found", name)) == 2)
        daemon.until(lambda: daemon.states(name) == ["idle"])
        daemon.until(lambda: re.search(rf'max_running_requests{{[^}}]*server="{name}"}} 8\.0', daemon.page()))

    def test_one_name_for_all_commands(self, here, daemon, tmp_path):
        """At one moment the daemon, `discover` and `record` have one name for a server, beside one of its model."""
        ports = sorted([free_port(), free_port()])
        names = [f"{here.folder.name}:{port}" for port in ports]
        for port in reversed(ports):
            here.start(f"exec {here.command(port=port)} >> {port}.log 2>&1")
            daemon.look()
            daemon.until(partial(daemon.said, "discovery.found", f"{here.folder.name}:{port}"))
        discovered = json.loads(finished(*COMMAND, "discover", "--format", "json").stdout)["servers"]
        recorded = finished(*COMMAND, "record", "--server", "nobody", "--output", str(tmp_path / "r.jsonl.xz"))

        assert names == sorted(each["name"] for each in discovered if here.folder.name in each["name"])
        assert all(name in recorded.stderr for name in names)
        assert all(daemon.states(name) for name in names)

    def _append(self, file, line):
        """Write a line as the server does: into the file that is open, whatever its name is."""
        file.write(line)
        file.flush()

    def _refused(self, daemon, name):
        """Return how many requests the log says were answered with 404."""
        return re.findall(rf'http_requests_total{{code="404"[^}}]*server="{name}"}} (\S+)', daemon.page())


class TestCheck:
    """`check` without arguments."""

    def test_what_runs_here(self, here):
        """It looks at each source of what is found."""
        port = free_port()
        here.start(f"{here.command(port=port)} >> vllm.log 2>&1")
        here.until_listening(port)
        result = finished(*COMMAND, "check")

        assert f"metrics http://127.0.0.1:{port}/metrics: ok." in result.stdout
        assert f"log {here.folder}/vllm.log: ok." in result.stdout

    @pytest.mark.parametrize("has_metrics", [True, False])
    def test_a_configured_log_that_nobody_writes(self, here, tmp_path, has_metrics):
        """A configured log that was renamed under its server has failed, with where its process writes now."""
        port, log, link = free_port(), here.folder / "vllm.log", here.folder / "link.log"
        server = here.start(f"exec {here.command(port=port)} >> vllm.log 2>&1")
        here.until_listening(port)
        link.symlink_to(log)
        url = f", metrics: http://127.0.0.1:{port}/metrics" if has_metrics else ""
        file = tmp_path / "c.yml"
        file.write_text(f"servers: [{{name: a, log: {log}{url}}}, {{name: b, log: {link}{url}}}]\n")
        config = load_config(str(file))
        before = [line.text for line in check(config, is_verbose=True)]
        renamed = log.rename(f"{log}.2")
        log.touch()
        after = [line for line in check(config, is_verbose=True) if line.is_wrong]

        assert 2 == sum(".log: ok." in text for text in before)
        said = f"log {log}: FAILED. Its process {server.pid} writes its log to {renamed} and not here"
        assert [said in line.text for line in after if "FAILED" in line.text][:1] == [True]
