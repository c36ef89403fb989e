# SPDX-License-Identifier: Apache-2.0
"""The vLLM servers of this machine: where each answers, where its log is, and what is wrong with either."""

from __future__ import annotations

import glob
import os
import re

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.config.texts import DEFAULT_NAME, as_name, unique_name
from vllm_watch.daemon.discovery.address import PublishedPort, address_of, network_of, published_ports
from vllm_watch.daemon.discovery.log_place import LogPlace, ProcessView, lasting_path, log_place
from vllm_watch.daemon.discovery.open_files import sockets_of
from vllm_watch.daemon.discovery.processes import Environment, Proc, Process, ProcessList, user_name
from vllm_watch.daemon.discovery.serve_command import ServeCommand
from vllm_watch.daemon.support.printable import ReportLine


_CACHED_MODEL = re.compile(r"(?:^|/)models--([^/]+)/snapshots/")
_API_SERVER = "APIServer"
_ENGINE = "EngineCore"
_INITS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init"})
_QUIET_LEVELS = frozenset({"WARNING", "ERROR", "CRITICAL"})
_ANY_HOST = Path("/")


class DiscoveredServer(NamedTuple):
    """
    One server: its first process and all that this process started.

    `name` is that of `name_of`; `with_names` makes it unique. `started` tells the process from a later one with the
    same number. `url` is that of /metrics; `log` is the path of the file that it writes now, `journal` a unit.
    """

    pid: int
    started: int
    name: str
    user: str
    command: ServeCommand
    url: str | None
    log: str | None
    journal: str | None
    findings: tuple[ReportLine, ...]

    @property
    def lasting_log(self) -> str | None:
        """The path that a configuration may name, because a later start writes there, too: not a rotated file's."""
        return lasting_path(self.log)

    @property
    def is_watchable(self) -> bool:
        """Whether there is a source to read."""
        return self.url is not None or self.log is not None or self.journal is not None

    @property
    def config(self) -> ServerConfig:
        """What watches it. In a configuration ``[``, ``*`` and ``?`` make a path a glob."""
        metrics = None if self.url is None else MetricsConfig(url=self.url)
        log = None if self.log is None else glob.escape(self.log)
        return ServerConfig(name=self.name, log=log, journal=self.journal, metrics=metrics, command=self.command.facts)


class Discovery(NamedTuple):
    """All servers, the findings about the machine itself, and the number of processes that were listed."""

    servers: tuple[DiscoveredServer, ...]
    findings: tuple[ReportLine, ...]
    processes: int


def server_processes(processes: Iterable[Process]) -> list[Process]:
    """
    Return the servers' own processes, oldest first.

    A forked worker has its parent's command line: only the topmost process of a tree is a server.
    """
    by_pid = {process.pid: process for process in processes}
    servers = [
        process
        for process in by_pid.values()
        if process.command is not None and not any(each.command for each in _ancestors(process, by_pid))
    ]
    return sorted(servers, key=lambda process: (process.started, process.pid))


def find_servers(proc: Proc, listed: ProcessList, host: Path = _ANY_HOST) -> Discovery:
    """Return the servers among the processes just listed; container runtimes keep logs under the root `host`."""
    by_pid = {process.pid: process for process in listed.processes}
    published = published_ports(proc.files, listed.processes)
    me = user_name(os.geteuid())
    machine = _Machine(listed, published, me, host)
    calls = {
        process.pid: partial(_read_server, proc, process, process_tree(process, by_pid), machine)
        for process in server_processes(listed.processes)
    }
    servers = tuple(server for server in proc.run_for_each(calls).values() if server is not None)
    return Discovery(servers, tuple(_findings_of_machine(listed, by_pid, me)), len(listed.processes))


class _Machine(NamedTuple):
    """What all servers of a machine have in common; `me` is the user that this process runs as."""

    listed: ProcessList
    published: Sequence[PublishedPort]
    me: str
    host: Path


def _read_server(proc: Proc, root: Process, tree: Sequence[Process], machine: _Machine) -> DiscoveredServer | None:
    """Return what is known about a server; `None` if it has ended meanwhile, and what was read may be another's."""
    pid = root.pid
    read, environment = proc.command(pid), proc.environment(pid)
    command = _with_count(read or root.command or ServeCommand(), tree)
    number = proc.files.user(pid)
    user = "another user" if number is None else user_name(number)
    processes, owner = machine.listed.processes, proc.owner(pid)
    view = ProcessView(proc.files, processes, pid, user, machine.me, owner, environment, machine.host)
    place = log_place(view)
    sockets = sockets_of(proc.files, [process.pid for process in tree])
    address = address_of(command, network_of(proc.files, pid), sockets, machine.published)
    findings = (
        *address.findings,
        *place.findings,
        *_findings_of_statistics(command, environment, place, has_metrics=address.url is not None),
        *_findings_of_command(command, environment, is_config_read=read is not None),
    )
    name = name_of(command, address.url)
    server = DiscoveredServer(pid, root.started, name, user, command, address.url, place.log, place.journal, findings)
    return server if proc.is_running(root) else None


def name_of(command: ServeCommand, url: str | None) -> str:
    """
    Return a server's name, ``MODEL:PORT``: the same whoever else runs, and after it was started again.

    The model is as clients know it, without folders. The port is the one that they use, in a container the published
    one; a server that listens on none has the model's name alone.
    """
    model = _model_name(command)
    has_no_port = command.is_headless or command.uds is not None
    port = urlsplit(url).port if url is not None else None if has_no_port else command.port
    return f"{model}:{port}" if port else model


def _model_name(command: ServeCommand) -> str:
    if command.served_model_name:
        return as_name(command.served_model_name)
    model = command.model or ""
    cached = _CACHED_MODEL.search(model)
    return as_name(cached[1].rpartition("--")[2] if cached else model.rstrip("/").rpartition("/")[2] or DEFAULT_NAME)


def with_names(servers: Iterable[DiscoveredServer]) -> list[DiscoveredServer]:
    """
    Return servers with unique names, those with /metrics first, then the oldest first.

    Several may have the same model and port, in different network namespaces or at different addresses, and several
    may have no port: after the first of them comes ``NAME-2``. Only these names depend on who else runs.
    """
    named: dict[str, DiscoveredServer] = {}
    for server in sorted(servers, key=lambda each: (each.url is None, each.started, each.pid)):
        name = unique_name(server.name, named)
        named[name] = server._replace(name=name)
    return list(named.values())


def _with_count(command: ServeCommand, tree: Sequence[Process]) -> ServeCommand:
    count = sum(process.title == _API_SERVER for process in tree)
    return command._replace(api_server_count=count) if count > 1 else command


def _findings_of_statistics(
    command: ServeCommand, environment: Environment | None, place: LogPlace, *, has_metrics: bool
) -> Iterable[ReportLine]:
    if command.log_stats_disabled:
        text = "It was started with --disable-log-stats: neither its log nor its /metrics shows what the engine does. "
        yield ReportLine(text + "Start it without that option.", is_wrong=True)
        return
    if (command.api_server_count or 1) > 1:
        text = f"It has {command.api_server_count} API servers, so its log has no statistics: "
        rest = "/metrics has them." if has_metrics else "start it with --api-server-count 1."
        yield ReportLine(text + rest, is_wrong=not has_metrics)
    if environment is None or (place.log is None and place.journal is None):
        return
    if environment.logging_level in _QUIET_LEVELS:
        text = f"VLLM_LOGGING_LEVEL={environment.logging_level} hides statistics and the start in its log: use INFO."
        yield ReportLine(text, is_wrong=True)


def _findings_of_command(
    command: ServeCommand, environment: Environment | None, *, is_config_read: bool
) -> Iterable[ReportLine]:
    if not is_config_read and command.config_file is not None:
        text = f"Its own configuration {command.config_file} cannot be read from here: the port and limits in it "
        yield ReportLine(text + "are not known. Give --metrics if the port is wrong.", is_wrong=True)
    if command.needs_api_key or (environment is not None and environment.has_api_key):
        yield ReportLine("It requires an API key: not for /metrics, but for a probe (api_key_file).")


def _findings_of_machine(listed: ProcessList, by_pid: Mapping[int, Process], me: str) -> Iterable[ReportLine]:
    if me != "root" and listed.hidepid is not None:
        text = f"Other users' processes are hidden from {me} (/proc has hidepid={listed.hidepid}; in a unit "
        text += "ProtectProc= does that): run vllm-watch as root or as the server's user, or use --log and --metrics."
        yield ReportLine(text, is_wrong=True)
    elif listed.unreadable:
        text = f"{me} cannot read {listed.unreadable} processes: run vllm-watch as root or the server's user."
        yield ReportLine(text, is_wrong=True)
    for process in by_pid.values():
        if process.title == _ENGINE and _is_left_over(process, by_pid):
            text = f"The engine of process {process.pid} has lost its server and may still hold the GPU's memory: end "
            yield ReportLine(text + f"it with kill {process.pid}.", is_wrong=True)


def _is_left_over(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """
    Whether an init process has adopted a process, because its parent has ended.

    In a container the first process may be the server itself, or a program that runs an engine without one.
    """
    parent = by_pid.get(process.parent)
    if parent is None or parent.command is not None:
        return False
    return parent.name in _INITS or (parent.pid == 1 and not parent.name.startswith(("python", "pypy")))


def process_tree(root: Process, by_pid: Mapping[int, Process]) -> list[Process]:
    """Return a process and all below it."""
    return [each for each in by_pid.values() if each is root or root in _ancestors(each, by_pid)]


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> list[Process]:
    """Return a process's ancestors, nearest first. A list that changed while it was read may be circular."""
    found: list[Process] = []
    parent = by_pid.get(process.parent)
    while parent is not None and parent is not process and parent not in found:
        found.append(parent)
        parent = by_pid.get(parent.parent)
    return found
