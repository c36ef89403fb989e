# SPDX-License-Identifier: Apache-2.0
"""The GPUs of the servers: a thread reads them and tells each server about its own; commands read them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from threading import Event
from types import MappingProxyType
from typing import NamedTuple, Protocol

import structlog

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses, this_machine
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.gpu.reader import GpuReader, has_module
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.state.gpu_report import GpuReading, GpuReport, is_instance
from vllm_watch.daemon.state.gpu_use import MAX_INTERVALS, GpuAssignments, GpuUse, GpuUser, GpuUsers, gpus_need_driver
from vllm_watch.daemon.state.kept_facts import KnownUse
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

ANSWER_SECONDS = 10.0
"""How long the first reading may take: without nvidia-persistenced the driver first prepares each card."""

_PAUSE_SECONDS = 0.05


class Told(Protocol):
    """What is told of a server's GPUs: `ServerMonitor`, and what records them."""

    @property
    def name(self) -> str:
        """The server's name."""

    def apply_gpus(self, use: GpuUse, interval: float) -> None:
        """Take in what a reading says; the next one is due after the interval, in seconds."""


def wants_driver(config: Config) -> bool:
    """Whether the driver's library is to be read, or its absence to be reported: not for servers of other machines."""
    if config.gpu.read == "never" or not config.servers:
        return False
    if config.gpu.read == "always" or any(gpus_need_driver(server.gpus) for server in config.servers):
        return True
    return has_module() and any(map(this_machine().may_run, config.servers))


def configured_users(config: Config) -> GpuUsers:
    """Return the servers as far as the configuration tells."""
    return GpuUsers([GpuUser(each.name, each.gpus) for each in config.servers])


class GpuThread(ServiceThread):
    """
    Reads the GPUs again and again, if there is anything to read; else it is not started.

    It has no heartbeat that anybody checks, and nobody waits for its end for long: whatever a driver does, nothing else
    is held up, and a restart of the daemon would not cure it. A reading that is too old is not shown.

    Args:
        processes: Finds the servers' processes.

    Attributes:
        known: Which GPUs the processes of servers are on; at first what an earlier run of the daemon knew.
    """

    def __init__(self, clock: Clock, errors: InternalErrors, *, processes: WatchedProcesses | None = None) -> None:
        super().__init__("gpu", clock, errors)
        self._processes = processes or WatchedProcesses()
        self._followed: tuple[Config, Sequence[Told]] = (Config(), ())
        self._reader: GpuReader | None = None
        self.known: tuple[KnownUse, ...] = ()
        self._assignments: GpuAssignments | None = None
        self._report: tuple[GpuReport, float] | None = None
        """The last reading, and until when it is current."""
        self._users = GpuUsers(())
        self._used: dict[str, tuple[str, ...]] = {}

    def follow(self, config: Config, servers: Sequence[Told]) -> None:
        """Read the GPUs of these servers from now on, as far as the configuration says so."""
        self._followed = config, servers
        if self.is_started or wants_driver(config):
            self.start()
            self._wake.set()
        else:  # What the configuration alone says needs no thread.
            self._tell(config, servers, None, configured_users(config))

    def samples(self, at: float) -> Iterator[PlainSample]:
        """Yield how many whole GPUs there are, and how long reading them took, as far as that is current."""
        known = self._report
        if known is not None and known[0].reason == "ok" and self._clock.now() <= known[1]:
            yield PlainSample("gpus", (), sum(not is_instance(each.gpu) for each in known[0].gpus), at)
            yield PlainSample("gpu_read_duration_seconds", (), known[0].duration, at)

    def readings(self) -> tuple[GpuReading, ...]:
        """Return what the last reading shows, current or not; any thread may call it."""
        return self._report[0].gpus if self._report is not None else ()

    def _turn(self) -> float:
        config, servers = self._followed
        is_wanted = wants_driver(config)
        if is_wanted and self._reader is None:
            self._reader = GpuReader(self._clock)
        elif not is_wanted:  # It is kept: what it started may still be in a call.
            self._close()
        self._read(config, servers, self._reader if is_wanted else None)
        return config.gpu.interval

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read(self, config: Config, servers: Sequence[Told], reader: GpuReader | None) -> None:
        """Read once, and tell the servers; whatever fails, the next reading is made."""
        try:
            report = None if reader is None else reader.report()
            shown = report or GpuReport(self._clock.now(), "starting")
            self._users = self._processes.users(config.servers, shown, self._clock.now())
            self._tell(config, servers, report, self._users)
        except Exception:
            log.exception("gpu.failed")
            self._errors.count("gpu")
            report = GpuReport(self._clock.now(), "internal_error")
            users = GpuUsers([user._replace(pids=None) for user in self._users.servers])
            with suppress(Exception):  # What failed may be the telling itself.
                self._tell(config, servers, report, users)
        self._report = None if report is None else (report, report.at + MAX_INTERVALS * config.gpu.interval)

    def _tell(self, config: Config, servers: Sequence[Told], report: GpuReport | None, users: GpuUsers) -> None:
        """Tell each server what a reading says of its GPUs, and log which those are when that changes."""
        self._assignments = self._assignments or GpuAssignments(self.known)
        uses = self._assignments.uses(report, users, self._clock.now())
        self.known = self._assignments.known()
        for server in servers:
            if server.name in uses:
                server.apply_gpus(uses[server.name], config.gpu.interval)
        used = {name: tuple(each.gpu for each in use.gpus) for name, use in uses.items()}
        for name, gpus in used.items():
            if gpus != self._used.get(name, ()):
                log.info("gpu.used", server=name, gpus=list(gpus))
        self._used = used


class GpusOnce(NamedTuple):
    """
    What was read once.

    Args:
        uses: What it says of each server, by its name.
        unopened: The GPUs that the driver does not open, as in `GpuReport`.
    """

    uses: Mapping[str, GpuUse]
    unopened: Mapping[int, GpuState | None] = MappingProxyType({})


def read_once(config: Config, clock: Clock, processes: WatchedProcesses | None = None) -> GpusOnce:
    """Return which GPUs each server of a configuration uses, and what the driver says of them."""
    assignments = GpuAssignments()
    if not wants_driver(config):
        return GpusOnce(assignments.uses(None, configured_users(config), clock.now()))
    report = _first_report(clock)
    users = (processes or WatchedProcesses()).users(config.servers, report, clock.now())
    return GpusOnce(assignments.uses(report, users, clock.now()), report.unopened)


def _first_report(clock: Clock) -> GpuReport:
    """Return the first reading, or why there is none; a driver that does not answer in time hangs."""
    end, pause = clock.now() + ANSWER_SECONDS, Event()
    with closing(GpuReader(clock)) as reader:
        report = reader.report()
        while report.reason == "starting" and clock.now() < end:
            clock.wait(pause, _PAUSE_SECONDS)
            report = reader.report()
    return report if report.reason != "starting" else GpuReport(clock.now(), "call_hangs")
