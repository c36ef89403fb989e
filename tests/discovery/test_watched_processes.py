# SPDX-License-Identifier: Apache-2.0
"""Whose processes are on the GPUs, over made-up process tables: a number alone is not believed."""

from __future__ import annotations

import os

import pytest

from tests.support.gpus import gpu, report
from tests.support.proc_tree import ProcTree

from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.discovery.watched_processes import LIST_SECONDS, WatchedProcesses


NOW = 5000.0
UPTIME = 900.0
TICKS = os.sysconf("SC_CLK_TCK")
SERVE = "vllm serve Qwen/Qwen3-8B --port {}"


class Machine:
    """A machine with servers: their processes, and what is found of them."""

    def __init__(self, folder):
        (folder / "host").mkdir()
        self.tree = ProcTree(folder / "proc", folder / "host")
        self.found = WatchedProcesses(self.tree.proc, lambda: UPTIME, "gpu1")

    def serve(self, pid, port, *workers, host="127.0.0.1", **how):
        """Run a server with an engine and its workers."""
        self.tree.add(pid, SERVE.format(port), **how)
        self.tree.listen(pid, host, port, 1000 + pid)
        self.tree.add(pid + 1, "VLLM::EngineCore", parent=pid)
        for worker in workers:
            self.tree.add(worker, f"VLLM::Worker_TP{worker}", parent=pid + 1)

    def end(self, *pids):
        """Let processes end."""
        for pid in pids:
            for name in ("stat", "cmdline"):
                (self.tree.root / str(pid) / name).unlink()

    def users(self, servers, *pids, now=NOW, at=None, listed_at=None):
        """Return the servers by name, while processes with these numbers are on a GPU."""
        reading = report(NOW if at is None else at, gpu(0, *pids))._replace(listed_at=listed_at)
        self.seen = self.found.users(servers, reading, now)
        return {user.name: user for user in self.seen.servers}


@pytest.fixture
def machine(tmp_path):
    """A machine without servers."""
    return Machine(tmp_path)


def by_url(name, url):
    """Return a server that is watched by its address."""
    return ServerConfig(name=name, metrics=MetricsConfig(url=url))


A = by_url("a", "http://127.0.0.1:8000/metrics")
B = by_url("b", "http://localhost:8001/metrics")


def test_a_server_has_the_processes_of_its_tree(machine):
    """The API server, its engine and its workers are the server's; other processes are nobody's."""
    machine.serve(100, 8000, 110, 111)
    machine.serve(200, 8001)
    machine.tree.add(300, "python train.py")
    users = machine.users((A, B), 110, 111, 201, 300)

    assert (users["a"].pids, users["b"].pids) == ({110, 111}, {201})
    assert users["a"].start == (100, 100)
    assert users["a"].is_here


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(name="a", journal="vllm.service"),
        ServerConfig(name="a", log="/var/log/vllm/*.log"),
        by_url("a", "http://gpu1:8000/metrics"),
        by_url("a", "http://[::1]:8000/metrics"),
    ],
    ids=["unit", "log", "host name", "IPv6"],
)
def test_a_server_is_found_by_its_unit_its_log_or_its_address(machine, config):
    """Whatever the configuration has of it tells which of this machine's servers it is."""
    machine.serve(100, 8000, 110, cgroup="0::/system.slice/vllm.service\n", JOURNAL_STREAM="8:77")
    machine.tree.output(100, "socket:[77]")
    machine.serve(200, 8001, 210)
    if config.log is not None:
        log = machine.tree.host / "a.log"
        log.write_text("")
        machine.tree.output(100, log)
        config = ServerConfig(name="a", log=str(machine.tree.host / "*.log"))

    assert machine.users((config,), 110, 210)["a"].pids == {110}


def test_a_server_elsewhere_is_not_here(machine):
    """A server of another machine has no processes here, whatever its port; neither has one that does not run."""
    machine.serve(100, 8000, 110)
    elsewhere = by_url("a", "http://gpu2.example.com:8000/metrics")
    users = machine.users((elsewhere, B), 110)

    assert (users["a"].is_here, users["a"].pids, users["a"].start) == (False, None, None)
    assert (users["b"].is_here, users["b"].pids, users["b"].start) == (True, None, None)


def test_a_number_that_is_another_process_by_now_is_not_joined(machine):
    """A worker that ended between two looks, whose number another program has now, is not taken for the worker."""
    machine.serve(100, 8000, 110, 111)
    assert machine.users((A,), 110, 111)["a"].pids == {110, 111}
    machine.tree.add(111, "python train.py", started=111 + TICKS)

    assert machine.users((A,), 110, 111)["a"].pids == {110}


def test_a_process_that_is_younger_than_the_reading_is_not_joined(machine):
    """The number was another one's when the GPUs were read: 30 s ago, of which this process has lived 10 s."""
    machine.serve(100, 8000, 110)
    machine.tree.add(111, "VLLM::Worker_TP1", parent=101, started=int((UPTIME - 10) * TICKS))

    assert machine.users((A,), 110, 111, at=NOW - 30)["a"].pids == {110}
    assert machine.users((A,), 110, 111, at=NOW - 5)["a"].pids == {110, 111}
    assert machine.users((A,), 110, 111, at=NOW - 5, listed_at=NOW - 30)["a"].pids == {110}


@pytest.mark.parametrize(("namespace", "pids"), [("pid:[4026532836]", None), ("pid:[4026531836]", {110})])
def test_numbers_of_another_namespace_mean_nothing(machine, namespace, pids):
    """In a container a number that is no process gives away that all of them are the host's; outside it has ended."""
    machine.serve(100, 8000, 110)
    machine.tree.link("self/ns/pid", namespace)

    assert machine.users((A,), 110, 48211)["a"].pids == pids
    assert machine.users((A,), 110)["a"].pids == {110}


def test_a_server_that_is_gone_has_no_processes(machine):
    """It was found before, so that it is known to have none; its next start is another one."""
    machine.serve(100, 8000, 110)
    assert machine.users((A,), 110)["a"].pids == {110}
    machine.end(100, 101, 110)
    gone = machine.users((A,), now=NOW + LIST_SECONDS)["a"]
    machine.serve(500, 8000, 510)
    again = machine.users((A,), 510, now=NOW + LIST_SECONDS)["a"]

    assert (gone.start, gone.pids, gone.is_here) == (None, set(), True)
    assert (again.start, again.pids) == ((500, 500), {510})


def test_processes_that_have_ended_are_told(machine):
    """A number that is no process any more is gone, before and after the next list; another one's is not."""
    machine.serve(100, 8000, 110)
    machine.tree.add(300, "python train.py")
    machine.users((A,), 110, 300)
    assert machine.seen.gone == frozenset()
    machine.end(110)
    machine.users((A,), 110, 300)
    assert machine.seen.gone == {110}
    machine.users((A,), 110, 300, now=NOW + LIST_SECONDS)

    assert machine.seen.gone == {110}


@pytest.mark.parametrize("way", ["another namespace", "hidden"])
def test_processes_that_may_be_hidden_are_not_called_gone(machine, way):
    """In another namespace, or where other users' processes are hidden, a number that is no process may be one."""
    machine.serve(100, 8000, 110)
    if way == "hidden":
        machine.tree.write("self/mounts", f"proc {machine.tree.root} proc rw,hidepid=invisible 0 0\n")
    else:
        machine.tree.link("self/ns/pid", "pid:[4026532836]")
    machine.users((A,), 110, 48211)

    assert machine.seen.gone == frozenset()


class TestRunning:
    """What the command lines of watched servers say."""

    def test_the_command_line_of_a_configured_server(self, machine):
        """A server has the flags and the start of the process that its configuration means."""
        machine.serve(100, 8000)
        machine.serve(200, 8001)
        found = machine.found.running((A,), NOW)

        assert {"a"} == found.servers.keys()
        assert (100, 100) == found.servers["a"].process
        assert ("Qwen/Qwen3-8B", ()) == (found.servers["a"].command.model, found.servers["a"].command.flags)

    def test_the_processes_are_listed_once_a_minute_for_all_who_ask(self, machine):
        """GPUs and flags share one list; it is made anew in time, for other servers, and when somebody wants that."""
        machine.serve(100, 8000, 110)
        machine.users((A,), 110)
        machine.serve(200, 8001)
        assert NOW == machine.found.running((A,), NOW + 1).at
        assert NOW + 2 == machine.found.running((A, B), NOW + 2).at
        assert NOW + 3 == machine.found.running((A, B), NOW + 3, anew=True).at
        again = machine.found.running((A, B), NOW + 3 + LIST_SECONDS)

        assert NOW + 3 + LIST_SECONDS == again.at
        assert {"a", "b"} == again.servers.keys()

    def test_why_a_process_is_not_known(self, machine, monkeypatch):
        """Processes that are hidden or may not be read are no failure, and the reason is said."""
        assert "no process of this machine is this server for certain" == machine.found.running((A,), NOW).why
        monkeypatch.setattr("os.geteuid", lambda: 65534)
        machine.tree.write("self/mounts", f"proc {machine.tree.root} proc rw,hidepid=invisible 0 0\n")
        hidden = machine.found.running((A,), NOW, anew=True)

        assert "other users' processes are hidden (hidepid=invisible; in a unit, ProtectProc=)" == hidden.why
        assert {} == hidden.servers
