# SPDX-License-Identifier: Apache-2.0
"""One reading of the GPUs, for a command that prints what it finds and exits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses
from vllm_watch.daemon.gpu.reader import GpuReader, has_module
from vllm_watch.daemon.service.gpu_thread import Processes, Reader, configured_users, wants_driver
from vllm_watch.daemon.state.gpu_report import GpuReport
from vllm_watch.daemon.state.gpu_use import GpuAssignments, GpuUse
from vllm_watch.daemon.support.clock import Clock


ANSWER_SECONDS = 10.0
"""How long the first reading may take: without nvidia-persistenced the driver first prepares each card."""

_PAUSE_SECONDS = 0.05


class GpusOnce(NamedTuple):
    """
    What was read.

    Args:
        uses: What it says of each server, by its name.
        unopened: The GPUs that the driver does not open, as in `GpuReport`.
    """

    uses: Mapping[str, GpuUse]
    unopened: Mapping[int, GpuState | None] = MappingProxyType({})


def read_once(
    config: Config,
    clock: Clock,
    *,
    make_reader: Callable[[Clock], Reader] = GpuReader,
    processes: Processes | None = None,
    is_installed: Callable[[], bool] | None = None,
) -> GpusOnce:
    """
    Return which GPUs each server of a configuration uses, and what the driver says of them.

    Args:
        config: The servers.
        clock: The time.
        make_reader: Returns what reads the driver.
        processes: Finds the servers' processes.
        is_installed: Returns whether the extra is there; by default it is looked for.
    """
    assignments = GpuAssignments()
    if not wants_driver(config, is_installed=(is_installed or has_module)()):
        return GpusOnce(assignments.uses(None, configured_users(config), clock.now()))
    report = _first_report(make_reader(clock), clock)
    users = (processes or WatchedProcesses()).users(config.servers, report, clock.now())
    return GpusOnce(assignments.uses(report, users, clock.now()), report.unopened)


def _first_report(reader: Reader, clock: Clock) -> GpuReport:
    """Return the first reading, or why there is none; a driver that does not answer in time hangs."""
    end, pause = clock.now() + ANSWER_SECONDS, Event()
    try:
        report = reader.report()
        while report.reason == "starting" and clock.now() < end:
            clock.wait(pause, _PAUSE_SECONDS)
            report = reader.report()
        return report if report.reason != "starting" else GpuReport(clock.now(), "call_hangs")
    finally:
        reader.close()
