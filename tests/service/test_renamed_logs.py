# SPDX-License-Identifier: Apache-2.0
"""A daemon without a configuration, over a made-up process table: a server keeps all that is known of it."""

from __future__ import annotations

from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.support.exposition import values_of
from tests.support.http_servers import StandIn, answer
from tests.support.logs import printed_now
from tests.support.proc_tree import ProcTree
from tests.support.waiting import until

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watcher import ServerWatcher
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


pytestmark = pytest.mark.slow


PAGE = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
"""
START = (
    "(APIServer pid=7) INFO 11-21 02:14:20 [api_server.py:1289] vLLM API server version 0.14.0\n"
    "(APIServer pid=7) INFO:     Application startup complete.\n"
)
REFUSED = '(APIServer pid=7) INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 404 Not Found\n'


class Machine:
    """Made-up processes, one of them a server with a log and a page, and a daemon that watches what it finds."""

    def __init__(self, folder, url):
        (folder / "host").mkdir()
        self.folder = folder
        self.port = urlsplit(url).port
        self.name = f"m:{self.port}"
        self.log = folder / "vllm.log"
        self.log.touch()
        self.tree = ProcTree(folder / "proc", folder / "host")
        self.tree.add(10, f"vllm serve m --port {self.port}")
        self.tree.output(10, self.log)

    @contextmanager
    def daemon(self):
        """Run a daemon; it looks at the processes and the logs when `look` says so."""
        clock = SystemClock()
        config = Config(servers=(), listen="127.0.0.1:0", checkpoint=str(self.folder / "state.json"))
        self.follower = ServerWatcher(clock, config, self.tree.proc, self.tree.host)
        self.service = Supervisor(self.follower.poll(), clock, follower=self.follower)
        self.service.start()
        try:
            self.look(lambda: self.service.fleet.is_ready)
            yield self
        finally:
            self.service.stop()

    def write(self, text, path=None):
        """Append to the log as a server does."""
        with (path or self.log).open("a") as file:
            file.write(printed_now(text))

    def rename(self, suffix):
        """Rename the file that the server has open, and make a new one in its place."""
        renamed = self.log.rename(f"{self.log}{suffix}")
        self.log.touch()
        self.tree.output(10, renamed)
        return renamed

    def look(self, condition):
        """Have the processes looked at until something is true."""
        self.service.request_reload()

        def is_true():
            self.service.tick()
            return condition()

        until(is_true)

    def follows(self, path):
        """Tell whether that is the log that is followed."""
        (server,) = self.service.fleet.servers
        return server.config.log == str(path) and server.log._tailer.pattern == str(path)

    def page(self):
        """Return the values of /metrics by name, without the labels that are the same in all."""
        return values_of(self.service.endpoints.metrics("").body.decode())

    def counts(self):
        """Return what is counted and known of the server from its log."""
        page = self.page()
        names = ("server_starts_total", "log_lines_total", "http_requests_total", "server_info")
        return {key: value for key, value in page.items() if key[0] in names and self.name in key}

    def events(self):
        """Return what happened to the server, in order."""
        (snapshot,) = self.service.fleet.snapshots()
        return [event.kind for event in snapshot.events]


@pytest.fixture
def machine(tmp_path):
    """A machine on which a server runs."""
    with StandIn(lambda _: [answer(PAGE)]) as server:
        yield Machine(tmp_path, server.url)


def lines_of(page):
    """Return how many lines were read."""
    (lines,) = [value for (name, *_), value in page.items() if name == "log_lines_total"]
    return lines


def test_a_log_that_is_renamed(machine):
    """A server whose log is renamed keeps its monitor, version, counters and events, and each line is read once."""
    with machine.daemon():
        machine.write(START + REFUSED)
        machine.look(lambda: lines_of(machine.counts()) == 3)
        before, events, (server,) = machine.counts(), machine.events(), machine.service.fleet.servers
        for number in range(3):
            renamed = machine.rename(f".{number}")
            machine.look(lambda path=renamed: machine.follows(path))
            assert before == machine.counts()

            machine.write(REFUSED, renamed)
            machine.look(lambda total=4 + number: lines_of(machine.counts()) == total)
            renamed.rename(machine.log)
            machine.tree.output(10, machine.log)
            machine.look(lambda: machine.follows(machine.log))
            before = machine.counts()

        assert (server,) == machine.service.fleet.servers
        assert events == machine.events()[: len(events)]
    assert (1.0, 4.0) == tuple(
        next(value for (key, *labels), value in before.items() if key == name and wanted in labels)
        for name, wanted in (("server_starts_total", machine.name), ("http_requests_total", "404"))
    )


def test_a_log_that_is_renamed_while_the_daemon_is_down(machine):
    """After a restart the daemon goes on in the renamed file where it was: nothing is lost, or counted twice."""
    with machine.daemon():
        machine.write(START + REFUSED)
        machine.look(lambda: lines_of(machine.counts()) == 3)
    renamed = machine.rename("-20261121")
    machine.write(REFUSED * 2, renamed)
    with machine.daemon():
        machine.look(lambda: lines_of(machine.counts()) == 2)
        machine.write(REFUSED, renamed)
        machine.look(lambda: lines_of(machine.counts()) == 3)

        assert any("0.14.0" in key for key in machine.page())
        moved = machine.rename(".1")
        machine.look(lambda: machine.follows(moved))
    machine.write(REFUSED, moved)
    with machine.daemon():
        machine.look(lambda: lines_of(machine.counts()) == 1)


def test_a_server_that_is_started_anew_with_another_log(machine):
    """A server that is started again and writes another log keeps its counters, and its start is counted."""
    with machine.daemon():
        machine.write(START + REFUSED)
        machine.look(lambda: lines_of(machine.counts()) == 3)
        (server,) = machine.service.fleet.servers
        other = machine.folder / "other.log"
        machine.write(REFUSED)  # Its last line, which may not have been read yet.
        machine.write(START.replace("0.14.0", "0.15.0"), other)
        for name in ("stat", "cmdline"):
            (machine.tree.root / "10" / name).unlink()
        machine.tree.add(11, f"vllm serve m --port {machine.port}", output=other)
        machine.look(lambda: machine.follows(other) and lines_of(machine.counts()) == 6)
        page = machine.counts()

        assert (server,) == machine.service.fleet.servers
        assert [2.0] == [value for (name, *_), value in page.items() if name == "server_starts_total"]
        assert [2.0] == [value for key, value in page.items() if key[0] == "http_requests_total" and "404" in key]
