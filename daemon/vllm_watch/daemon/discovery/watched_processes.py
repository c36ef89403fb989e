# SPDX-License-Identifier: Apache-2.0
"""
The processes of watched servers: what their command lines say, and which of them are on a GPU.

A number alone does not tell whose process it is: it may be another one's by now, or be meant in another namespace.
"""

from __future__ import annotations

import os
import threading

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.config.texts import host_and_port, is_loopback
from vllm_watch.daemon.discovery.address import addresses_here
from vllm_watch.daemon.discovery.processes import Proc, Process, ProcessList
from vllm_watch.daemon.discovery.servers import DiscoveredServer, find_servers, process_tree, server_processes
from vllm_watch.daemon.state.gpu_report import GpuReport
from vllm_watch.daemon.state.gpu_use import GpuUser, GpuUsers
from vllm_watch.daemon.state.kept_facts import RunningServer, ServerProcess
from vllm_watch.daemon.support.clock import steady_seconds
from vllm_watch.daemon.support.errors import DiscoveryError


LIST_SECONDS = 60.0
"""How often the processes are listed although the same ones are on the GPUs and no server was started."""

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The namespace of a machine's own process numbers: the kernel's number of it is fixed."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Here(NamedTuple):
    """This machine, or the container that this process is in: its name, and its addresses but loopback."""

    hostname: str
    addresses: Collection[str]

    def has(self, host: str) -> bool:
        """Whether a host of a URL is this machine."""
        return host in {self.hostname, *self.addresses} or is_loopback(host)

    def runs(self, server: ServerConfig) -> bool:
        """Whether a server seems to run here: by its unit, its address, or else its log."""
        if server.journal is not None or server.metrics is None:
            return True
        return self.has(urlsplit(server.metrics.url).hostname or "")

    def may_run(self, server: ServerConfig) -> bool:
        """Whether a server may run here; its log tells which process it is also where its address has another name."""
        return server.log is not None or self.runs(server)


def server_of(config: ServerConfig, found: Sequence[DiscoveredServer], here: Here) -> DiscoveredServer | None:
    """Return the server that a configuration means, by its address, else its unit, else its log; `None` if unclear."""
    ways: list[Callable[[DiscoveredServer], bool]] = []
    if config.metrics is not None:
        place = _place(config.metrics.url, here)
        ways.append(lambda server: server.url is not None and _place(server.url, here) == place)
    if config.journal is not None:
        ways.append(lambda server: server.journal == config.journal)
    if (pattern := config.log) is not None:
        ways.append(lambda server: any(fnmatchcase(log, pattern) for log in (server.log, server.lasting_log) if log))
    for is_meant in ways:
        meant = [server for server in found if is_meant(server)]
        if len(meant) == 1:
            return meant[0]
    return None


def _place(url: str, here: Here) -> tuple[str, str]:
    """Return host and port of a URL; all names and addresses of this machine are the same host."""
    host, _, port = host_and_port(url).rpartition(":")
    return ("" if here.has(host) else host), port


class _Found(NamedTuple):
    """What is known of a server's processes: its first one, and all by their numbers."""

    server: DiscoveredServer
    tree: Mapping[int, Process]


def this_machine(proc: Proc | None = None, hostname: str | None = None) -> Here:
    """Return this machine, or what it is by the process table and the name that are given."""
    own = proc or Proc()
    return Here(hostname if hostname is not None else os.uname().nodename, addresses_here(own.files))


class Running(NamedTuple):
    """
    The processes of watched servers, by the servers' names, as the process table had them at a moment.

    `why` tells why a server may have a process that is not among them.
    """

    at: float
    servers: Mapping[str, RunningServer]
    why: str


class WatchedProcesses:
    """Finds the processes of watched servers, for all who ask: their threads wait for each other."""

    def __init__(
        self, proc: Proc | None = None, uptime: Callable[[], float] = steady_seconds, hostname: str | None = None
    ) -> None:
        self._proc = proc or Proc()
        self._uptime = uptime
        self._hostname = hostname
        self._lock = threading.Lock()
        self._listed: ProcessList | None = None
        self._listed_at = 0.0
        self._error = ""
        self._servers: Sequence[ServerConfig] | None = None
        self._pids: frozenset[int] = frozenset()
        self._list_due = 0.0
        self._found: dict[str, _Found] = {}
        self._seen: set[str] = set()
        """The servers that were found before: one that is not found any more has no processes."""

    def running(self, servers: Sequence[ServerConfig], now: float, *, anew: bool = False) -> Running | None:
        """Return the servers' processes, listed `anew` or lately; `None` if no server may run here."""
        here = this_machine(self._proc, self._hostname)
        if not any(map(here.may_run, servers)):
            return None
        with self._lock:
            if anew or self._is_due(servers, now):
                self._list(servers, now)
            found = {
                name: RunningServer(ServerProcess(server.pid, server.started), server.command.facts, server.log)
                for name, (server, _) in self._found.items()
            }
            return Running(self._listed_at, found, self._why())

    def users(self, servers: Sequence[ServerConfig], report: GpuReport, now: float) -> GpuUsers:
        """Return the servers with their processes that are on a GPU by a reading, and the processes that have ended."""
        pids = frozenset(process.pid for gpu in report.gpus for process in gpu.processes or ())
        with self._lock:
            if self._pids != pids or self._is_due(servers, now):
                self._pids = pids
                self._list(servers, now)
            here = this_machine(self._proc, self._hostname)
            age = now - (report.at if report.listed_at is None else report.listed_at)
            running, gone = self._running_and_gone(pids, age)
            return GpuUsers([self._user(server, here, running) for server in servers], gone)

    def _is_due(self, servers: Sequence[ServerConfig], now: float) -> bool:
        return self._servers != servers or now >= self._list_due

    def _why(self) -> str:
        if self._listed is None:
            return self._error
        if self._listed.hidepid is not None and os.geteuid() != 0:
            return f"other users' processes are hidden (hidepid={self._listed.hidepid}; in a unit, ProtectProc=)"
        if self._listed.unreadable:
            return f"{self._listed.unreadable} processes may not be read"
        return "no process of this machine is this server for certain"

    def _list(self, servers: Sequence[ServerConfig], now: float) -> None:
        self._servers, self._listed_at, self._list_due = servers, now, now + LIST_SECONDS
        self._seen = {server.name for server in servers} & (self._seen | self._found.keys())
        try:
            self._listed = self._proc.processes()
            found = find_servers(self._proc, self._listed).servers
        except DiscoveryError as error:
            self._listed, self._found, self._error = None, {}, str(error)
            return
        by_pid = {process.pid: process for process in self._listed.processes}
        here = this_machine(self._proc, self._hostname)
        roots = {process.pid: process for process in server_processes(self._listed.processes)}
        self._found = {}
        for server in servers:
            own = server_of(server, found, here)
            if own is not None and own.pid in roots:
                tree = process_tree(roots[own.pid], by_pid)
                self._found[server.name] = _Found(own, {process.pid: process for process in tree})

    def _running_and_gone(self, pids: Collection[int], age: float) -> tuple[frozenset[int] | None, frozenset[int]]:
        """
        Return the numbers that are still of the process that had them, and those that are no process any more.

        The first is `None` if the numbers mean nothing here. `age` is how many seconds ago the driver was asked for
        them: a process that is younger is another one. A process that may be hidden is not gone.
        """
        if self._listed is None or self._mean_nothing(pids):
            return None, frozenset()
        known = {process.pid: process for process in self._listed.processes if process.pid in pids}
        calls = {pid: partial(self._proc.is_running, process) for pid, process in known.items()}
        are_running = self._proc.run_for_each(calls)
        latest = (self._uptime() - age) * _TICKS
        running = frozenset(
            pid for pid, is_running in are_running.items() if is_running and known[pid].started <= latest
        )
        shows_all = self._listed.hidepid is None and not self._listed.unreadable
        gone = frozenset(pid for pid in pids if (not are_running.get(pid, True) if pid in known else shows_all))
        return running, gone

    def _mean_nothing(self, pids: Collection[int]) -> bool:
        """
        Whether numbers of processes are those of another namespace.

        In a container a driver either shows only the processes that are visible there, or all of them by the machine's
        own numbers. Then one that is no process here gives them away.
        """
        if self._listed is None or self._proc.pid_namespace() in {"", _FIRST_NAMESPACE}:
            return False
        return not {process.pid for process in self._listed.processes}.issuperset(pids)

    def _user(self, server: ServerConfig, here: Here, running: frozenset[int] | None) -> GpuUser:
        found = self._found.get(server.name)
        is_here = found is not None or here.runs(server)
        if found is not None:
            own = None if running is None else running & found.tree.keys()
            return GpuUser(server.name, server.gpus, is_here, (found.server.pid, found.server.started), own)
        is_gone = running is not None and server.name in self._seen
        return GpuUser(server.name, server.gpus, is_here, None, frozenset() if is_gone else None)
