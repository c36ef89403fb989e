# SPDX-License-Identifier: Apache-2.0
"""
The thread that reads the GPUs and tells each server about those that it uses.

It has no heartbeat that anybody checks, and nobody waits for its end for long: whatever a driver does, nothing else is
held up, and a restart of the daemon would not cure it. A reading that is too old is not shown.
"""

from __future__ import annotations

import threading

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import structlog

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses, this_machine
from vllm_watch.daemon.exposition.self_metrics import GpusStatus
from vllm_watch.daemon.gpu.reader import has_module
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.state.gpu_report import GpuReading, GpuReport, is_instance
from vllm_watch.daemon.state.gpu_use import MAX_INTERVALS, GpuAssignments, GpuUse, GpuUser, GpuUsers, gpus_need_driver
from vllm_watch.daemon.state.kept_facts import KnownUse
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")


class Reader(Protocol):
    """What reads the GPUs, from one thread."""

    def report(self) -> GpuReport:
        """Return the newest reading; this takes a second at most."""

    def close(self) -> None:
        """End what it started; a later report starts it again."""


class Processes(Protocol):
    """What finds the servers' processes, as `WatchedProcesses`."""

    def users(self, servers: Sequence[ServerConfig], report: GpuReport, now: float) -> GpuUsers:
        """Return the servers with their processes on GPUs."""


class Told(Protocol):
    """What is told of a server's GPUs, as `ServerMonitor`."""

    @property
    def name(self) -> str:
        """The server's name."""

    def apply_gpus(self, use: GpuUse, interval: float) -> None:
        """Take in what a reading says; the next one is due after the interval, in seconds."""


class _Followed(NamedTuple):
    """What is watched: the configuration, and who is told of its servers."""

    config: Config
    servers: Sequence[Told]


def wants_driver(config: Config, *, is_installed: bool) -> bool:
    """Whether the driver's library is to be read, or its absence to be reported: not for servers of other machines."""
    if config.gpu.read == "never" or not config.servers:
        return False
    if config.gpu.read == "always" or any(gpus_need_driver(server.gpus) for server in config.servers):
        return True
    return is_installed and any(map(this_machine().may_run, config.servers))


def configured_users(config: Config) -> GpuUsers:
    """Return the servers as far as the configuration tells."""
    return GpuUsers([GpuUser(each.name, each.gpus) for each in config.servers])


class GpuThread(ServiceThread):
    """
    Reads the GPUs again and again, if there is anything to read; else it is not started.

    Args:
        clock: The time.
        errors: Counts failures.
        make_reader: Returns what reads the driver.
        processes: Finds the servers' processes.
        is_installed: Returns whether the extra is there; by default it is looked for.

    Attributes:
        known: Which GPUs the processes of servers are on; at first what an earlier run of the daemon knew.
    """

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        make_reader: Callable[[Clock], Reader],
        *,
        processes: Processes | None = None,
        is_installed: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(threading.Thread(target=self._run, name="gpu", daemon=True), clock)
        self._errors = errors
        self._make_reader = make_reader
        self._processes = processes or WatchedProcesses()
        self._is_installed = is_installed or has_module
        self._followed = _Followed(Config(), ())
        self.known: tuple[KnownUse, ...] = ()
        self._assignments: GpuAssignments | None = None
        self._report: tuple[GpuReport, float] | None = None
        """The last reading, and until when it is current."""
        self._users = GpuUsers(())
        self._used: dict[str, tuple[str, ...]] = {}

    def follow(self, config: Config, servers: Sequence[Told]) -> None:
        """Read the GPUs of these servers from now on, as far as the configuration says so."""
        self._followed = _Followed(config, servers)
        if self.is_started or wants_driver(config, is_installed=self._is_installed()):
            self.start()
            self._wake.set()
        else:  # What the configuration alone says needs no thread.
            self._tell(self._followed, None, configured_users(config))

    def status(self) -> GpusStatus | None:
        """Return how many whole GPUs there are, as far as that is current; any thread may call it."""
        known = self._report
        if known is None or known[0].reason != "ok" or self._clock.now() > known[1]:
            return None
        return GpusStatus(sum(not is_instance(each.gpu) for each in known[0].gpus), known[0].duration)

    def readings(self) -> tuple[GpuReading, ...]:
        """Return what the last reading shows, current or not; any thread may call it."""
        return self._report[0].gpus if self._report is not None else ()

    def _run(self) -> None:
        reader: Reader | None = None
        try:
            while not self._stop.is_set():
                self._wake.clear()
                followed = self._followed
                is_wanted = wants_driver(followed.config, is_installed=self._is_installed())
                if is_wanted and reader is None:
                    reader = self._make_reader(self._clock)
                elif reader is not None and not is_wanted:  # It is kept: what it started may still be in a call.
                    reader.close()
                self._read(followed, reader if is_wanted else None)
                self._clock.wait(self._wake, followed.config.gpu.interval)
        finally:
            if reader is not None:
                reader.close()

    def _read(self, followed: _Followed, reader: Reader | None) -> None:
        """Read once, and tell the servers; whatever fails, the next reading is made."""
        interval = followed.config.gpu.interval
        try:
            report = None if reader is None else reader.report()
            shown = report or GpuReport(self._clock.now(), "starting")
            self._users = self._processes.users(followed.config.servers, shown, self._clock.now())
            self._tell(followed, report, self._users)
        except Exception:
            log.exception("gpu.failed")
            self._errors.count("gpu")
            report = GpuReport(self._clock.now(), "internal_error")
            with suppress(Exception):  # What failed may be the telling itself.
                self._tell(followed, report, GpuUsers([user._replace(pids=None) for user in self._users.servers]))
        self._report = None if report is None else (report, report.at + MAX_INTERVALS * interval)

    def _tell(self, followed: _Followed, report: GpuReport | None, users: GpuUsers) -> None:
        """Tell each server what a reading says of its GPUs."""
        self._assignments = self._assignments or GpuAssignments(self.known)
        uses = self._assignments.uses(report, users, self._clock.now())
        self.known = self._assignments.known()
        for server in followed.servers:
            if server.name in uses:
                server.apply_gpus(uses[server.name], followed.config.gpu.interval)
        self._log(uses)

    def _log(self, uses: Mapping[str, GpuUse]) -> None:
        """Log which GPUs a server uses when that changes."""
        for name, use in uses.items():
            gpus = tuple(each.gpu for each in use.gpus)
            if gpus != self._used.get(name, ()):
                log.info("gpu.used", server=name, gpus=list(gpus))
        self._used = {name: tuple(each.gpu for each in use.gpus) for name, use in uses.items()}
