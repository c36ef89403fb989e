# SPDX-License-Identifier: Apache-2.0
"""What is known of a configured server: also by its process, and by the daemon's earlier run."""

from __future__ import annotations

import pytest

from tests.service.test_supervisor import STATS, Watch
from tests.support.http_servers import StandIn, answer
from tests.support.proc_tree import ProcTree
from tests.support.server_stories import page
from tests.support.waiting import until

from vllm_watch.cli.commands import server_check
from vllm_watch.cli.commands.check import check
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses
from vllm_watch.daemon.service import threads


START = (
    "INFO 11-21 02:35:10 [api.py:1] vLLM API server version 0.14.1\n"
    "INFO 11-21 02:35:10 [api.py:1] non-default args: {'model': 'm', 'max_num_seqs': 24}\n"
    "INFO:     Application startup complete.\n"
)
SERVE = "vllm serve m --port {} --max-num-seqs {} --api-key sk-secret"


class Machine:
    """A daemon with a configuration, a server's /metrics, its rotated log, and a process table."""

    def __init__(self, folder, http):
        (folder / "host").mkdir()
        self.tree = ProcTree(folder / "proc", folder / "host")
        self.watch = Watch(folder)
        self.http = http
        self.started_at = 1000.0
        self.configure()
        self.watch.log("a", STATS)

    def configure(self, interval=1):
        """Configure the server."""
        metrics = f"{{url: {self.http.url!r}, interval: {interval}}}"
        self.watch.write(f"{{name: a, log: a.log, metrics: {metrics}}}", checkpoint="state.json")

    def serve(self, pid, limit):
        """Run the server's process."""
        self.tree.add(pid, SERVE.format(self.http.port, limit))
        self.tree.listen(pid, "127.0.0.1", self.http.port, 1000 + pid)

    def end(self, pid):
        """Let it end."""
        for name in ("stat", "cmdline"):
            (self.tree.root / str(pid) / name).unlink()

    def start(self):
        """Run the daemon."""
        service = self.watch.start()
        until(lambda: service.fleet.is_ready)
        return service

    def limit(self):
        """Return what /metrics says of the most requests that run at once."""
        return {key[-1]: value for key, value in self.watch.page().items() if key[0] == "max_running_requests"}.get("a")

    def reports(self):
        """Return the lines of `check`."""
        return [line.text for line in check(load_config(str(self.watch.file)))]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose server has no process yet."""
    made = []
    with StandIn(lambda _: [answer(page(running=4, waiting=9, start=made[0].started_at))]) as http:
        made.append(Machine(tmp_path, http))
        for module in (threads, server_check):
            table = lambda: WatchedProcesses(made[0].tree.proc, hostname="here")  # noqa: E731
            monkeypatch.setattr(module, "WatchedProcesses", table)
        yield made[0]
        if made[0].watch.service is not None:
            made[0].watch.service.stop()


def test_the_flags_of_a_configured_server_are_those_of_its_process(machine):
    """With a configuration, too, the process's command line has what the log has no more, but no secret."""
    machine.serve(100, 4)
    service = machine.start()
    until(lambda: machine.limit() == 4)
    service.tick()

    flags = service.fleet.servers[0].snapshot().configuration.flags
    assert ("4", "command line") == flags["max-num-seqs"]
    assert "sk-secret" not in (machine.watch.folder / "state.json").read_text()


def test_they_outlive_the_daemon_and_not_the_server(machine):
    """The daemon's next run reads them again, until another start of the server is seen."""
    machine.serve(100, 4)
    service = machine.start()
    until(lambda: machine.limit() == 4)
    service.stop()
    machine.start()
    until(lambda: machine.limit() == 4)

    machine.end(100)
    machine.started_at = 2000.0
    until(lambda: machine.limit() is None)
    machine.serve(200, 8)
    machine.watch.reload()
    until(lambda: machine.limit() == 8)


def test_a_restart_while_the_daemon_was_stopped(machine):
    """A server that was started again meanwhile shows none of the flags of its former start."""
    machine.serve(100, 4)
    service = machine.start()
    until(lambda: machine.limit() == 4)
    service.stop()
    machine.end(100)
    machine.started_at = 2000.0
    machine.start()

    assert machine.limit() is None


def test_a_restart_with_other_flags_is_noticed(machine):
    """A process that takes the place of the former one is found without being asked for."""
    machine.serve(100, 4)
    machine.start()
    until(lambda: machine.limit() == 4)
    machine.end(100)
    machine.serve(200, 8)
    machine.started_at = 2000.0
    until(lambda: machine.limit() is None)
    machine.watch.service.threads.discovery.turn_now()
    until(lambda: machine.limit() == 8)

    configuration = machine.watch.service.fleet.servers[0].snapshot().configuration
    assert "max-num-seqs 4 → 8" == configuration.change.text


def test_a_start_that_was_rotated_away(machine):
    """With a log alone, what its start has said is known when no file has that start any more."""
    machine.watch.write("a", checkpoint="state.json")
    log = machine.watch.folder / "a.log"
    log.unlink()
    machine.watch.log("a", START + STATS)
    machine.start().stop()
    log.rename(machine.watch.folder / "a.log.1")
    machine.watch.log("a", STATS)
    machine.start().stop()
    (machine.watch.folder / "a.log.1").unlink()
    service = machine.start()
    known = service.fleet.servers[0].snapshot()

    assert 24 == machine.limit()
    assert ("0.14.1", ("24", "log")) == (known.version, known.configuration.flags["max-num-seqs"])
    machine.watch.log("a", START.replace("24", "8"))
    until(lambda: machine.limit() == 8)


def test_a_log_that_was_lost_leaves_it_open(machine):
    """Where lines may be missing, one of them may have been a start: nothing that was known is shown, then or later."""
    machine.watch.write("a", checkpoint="state.json")
    log = machine.watch.folder / "a.log"
    log.unlink()
    machine.watch.log("a", START + STATS)
    machine.start().stop()
    log.unlink()
    machine.watch.log("a", STATS)
    service = machine.start()
    assert machine.limit() is None

    service.stop()
    machine.start()
    assert machine.limit() is None
