# SPDX-License-Identifier: Apache-2.0
"""
A recording: the logs of real servers as they grew, and their /metrics as they were read.

It is one file (`recording_file`) or a folder (`recording_folder`).
"""

from __future__ import annotations

import re

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from vllm_watch.daemon.catalog.reasons import METRICS, MetricsReason
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch_parsers.command_facts import CommandFacts
from vllm_watch_parsers.metric_names import PROCESS_START


BUNDLED = Path(__file__).parent / "recordings" / "day"
"""The recording that comes with the package: ten minutes of a server that is overloaded and crashes."""


class LogWritten(NamedTuple):
    """
    The log grew. `at` is in seconds since the recording's start.

    `is_history` marks lines that were there before it, with a negative `at`; `is_after_gap` those before which lines
    were not read.
    """

    at: float
    data: bytes
    is_history: bool = False
    is_after_gap: bool = False


class MetricsRead(NamedTuple):
    """
    A scrape that took `duration` seconds and ended at `at`.

    `body` is empty where there was no answer, and `status` is the reason.
    """

    at: float
    body: bytes
    status: str
    duration: float = 0.0


class GpusRead(NamedTuple):
    """
    The GPUs of a server were read.

    `use` has its time in seconds since the epoch, and the next reading is due after `interval` seconds.
    """

    at: float
    use: GpuUse
    interval: float


RecordedEvent = LogWritten | MetricsRead | GpusRead


class RecordedSources(NamedTuple):
    """
    What was recorded of a server: its log or not, and /metrics every `interval` seconds or not.

    Its GPUs were read every `gpu_interval` seconds, if they were; `cost_per_hour` is in any currency; `command` are the
    facts on its command line, as far as it was known.
    """

    has_log: bool
    interval: float | None
    gpu_interval: float | None = None
    cost_per_hour: float | None = None
    command: CommandFacts = CommandFacts()

    def settings(self, name: str) -> ServerSettings:
        """Return what the state of a recorded server is configured with."""
        return ServerSettings(name, self.has_log, self.interval, command=self.command)


class RecordedCommand(NamedTuple):
    """A command that ran while it was recorded, from `started` to `ended`; `exit_status` is negative for a signal."""

    argv: tuple[str, ...]
    exit_status: int
    started: float
    ended: float


class RecordedBenchmark(NamedTuple):
    """What a benchmark client wrote: `name` is its file's, ``printed.txt`` for what it printed."""

    name: str
    content: str


class Recording(Protocol):
    """
    A recording that was opened, all of it read once and checked.

    Attributes:
        path: Where it is.
        started: When it was started, in seconds since the epoch.
        seconds: How long it is.
        servers: The names of the recorded servers.
        sources: What was recorded of each of them.
        benchmarks: The results that the recorded command left.
        command: The recorded command.
        removed: How many of each kind of private data were removed.
        broken_off: A sentence that says what is missing at its end, if anything is.
    """

    path: Path
    started: float
    seconds: float
    servers: tuple[str, ...]
    sources: Mapping[str, RecordedSources]
    benchmarks: tuple[RecordedBenchmark, ...]
    command: RecordedCommand | None
    removed: Mapping[str, int]
    broken_off: str | None

    def events(self, server: str | None = None) -> Iterator[RecordedEvent]:
        """
        Yield what happened to a server, in order of time; without a name, to the only one.

        Raises:
            UsageError: There is no such server, or several and no name.
            FileError: It cannot be read any more.
        """


def server_name(recording: Recording, name: str | None) -> str:
    """
    Return the name of the server that is meant.

    Raises:
        UsageError: There is no such server, or several and no name.
    """
    servers = recording.servers
    if name is None and len(servers) == 1:
        return servers[0]
    if name in servers:
        return name
    named = "a server must be chosen" if name is None else f"it has no server {name}"
    raise UsageError(f"{recording.path}: {named}: --server takes {' or '.join(servers)}")


def with_start_moved(body: bytes, seconds: float) -> bytes:
    """Return a body whose process started this many seconds later: a replay at another time is another start."""
    return _PROCESS_START.sub(lambda found: b"%s%.2f" % (found[1], float(found[2]) + seconds), body)


_PROCESS_START = re.compile(rb"^(%s )([0-9.e+]+)$" % PROCESS_START.encode(), re.MULTILINE)


def scrape_failure(status: str) -> MetricsReason:
    """Return the reason for a recorded status: a reason itself, an HTTP status, or Python's name for a failure."""
    if status in METRICS and status != "ok":
        return cast("MetricsReason", status)
    by_status: dict[str, MetricsReason] = {
        "401": "unauthorized",
        "403": "forbidden",
        "404": "not_found",
        "200": "incomplete",
    }
    if status.isdigit():
        return by_status.get(status, "http_error")
    if "timeout" in status.lower():
        return "timeout"
    return "refused" if status in {"URLError", "ConnectionRefusedError"} else "unreachable"
