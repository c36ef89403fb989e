# SPDX-License-Identifier: Apache-2.0
"""The file that a recording is written into, for the threads that record: one writes at a time."""

from __future__ import annotations

import contextlib
import os
import threading

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from vllm_watch import __version__
from vllm_watch.analysis.recorder.redaction import KINDS
from vllm_watch.analysis.replay.recording_lines import (
    FORMAT,
    Benchmark,
    Command,
    CommandLine,
    Header,
    Line,
    RecordingWriter,
    Sources,
    history_line,
    log_line,
    recorded_gpus,
    scrape_line,
)
from vllm_watch.daemon.catalog.reasons import GpuReason
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.log_reader import KeptLines
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import FileError


WRITE_OUT_SECONDS = 30.0
"""How much is lost at most if this process is killed."""


@dataclass
class ServerCounts:
    """What was recorded of one server, and the reason why its source failed last, if it did."""

    lines: int = 0
    scrapes: int = 0
    failed_scrapes: int = 0
    gpu_readings: int = 0
    log_reason: str | None = None
    scrape_reason: str | None = None
    gpu_reason: GpuReason | None = None


@dataclass
class Counts:
    """
    What was recorded so far: of each server, bytes of the file, results of benchmarks, and what was removed.

    `foreign` are the results of other clients than vLLM's, which were not recorded.
    """

    servers: dict[str, ServerCounts]
    size: int = 0
    benchmarks: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)


def create_file(path: Path, *, force: bool) -> IO[bytes]:
    """Create the file of a recording; `FileError` if it is there already without `force`, or cannot be written."""
    try:
        return path.open("wb" if force else "xb")
    except FileExistsError:
        raise FileError(f"-o: {path} is there already; --force writes over it") from None
    except OSError as error:
        raise FileError(f"-o: {path}: cannot be written: {error.strerror}") from None


def sources_of(server: ServerConfig, gpu_interval: float | None) -> Sources:
    """Return what is recorded of a server, whose GPUs are read at this interval, if they are."""
    scrape_interval = server.metrics.interval if server.metrics else None
    command = server.command
    said = None if command.flags is None else CommandLine.of(command)
    return Sources(server.has_log, scrape_interval, gpu_interval, server.cost_per_hour, said)


class RecordingSession:
    """A recording that is being written, from any thread; `stop` is set when it cannot go on. `end` closes the file."""

    def __init__(
        self,
        file: IO[bytes],
        servers: Mapping[str, Sources],
        clock: Clock,
        stop: threading.Event,
        *,
        keeps_all: bool = False,
    ) -> None:
        self.counts = Counts({name: ServerCounts() for name in servers})
        self.problem: Exception | None = None
        """Why recording cannot go on."""
        self.path = Path(file.name)
        """The file's path."""
        self.clock = clock
        self._file, self._stop = file, stop
        self._lock = threading.Lock()
        self._started = self._written_at = clock.now()
        removed: dict[str, bool] = dict.fromkeys(KINDS, not keeps_all)
        try:
            self._writer = RecordingWriter(
                file, Header(FORMAT, clock.wall(self._started), servers, __version__, removed)
            )
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.clock.now() - self._started

    def add_log(self, server: str, kept: KeptLines, *, is_after_gap: bool) -> None:
        """Add complete lines of a log that were just read."""
        data = b"".join(line + b"\n" for line in kept.lines)
        if data and self._add(log_line(self.seconds, server, data, is_after_gap=is_after_gap)):
            self.counts.servers[server].lines += len(kept.lines)
            self.count_removed(kept.removed)

    def add_history(self, server: str, at: float, data: bytes) -> None:
        """Add lines that were written before; `at` is when, by the clock."""
        self._add(history_line(at - self._started, server, data))

    def add_scrape(self, server: str, duration: float, body: bytes, reason: str) -> None:
        """Add a scrape that ended just now: its body, or the reason why it has none."""
        counts = self.counts.servers[server]
        if self._add(scrape_line(self.seconds, server, duration, body, reason)):
            if reason == "ok":
                counts.scrapes += 1
            else:
                counts.failed_scrapes += 1
                counts.scrape_reason = reason

    def add_gpus(self, server: str, use: GpuUse) -> None:
        """Add what a reading says of a server's GPUs, or why there is none."""
        counts = self.counts.servers[server]
        if self._add(Line(t=self.seconds, server=server, gpus=recorded_gpus(use, self._started))):
            counts.gpu_readings += use.reason == "ok"
            counts.gpu_reason = use.reason

    def add_command(self, argv: Sequence[str], exit_status: int, started: float) -> None:
        """Add a command that has just ended; `started` is of `seconds`."""
        now = self.seconds
        self._add(Line(t=now, command=Command(tuple(argv), exit_status, started, now)))

    def add_benchmark(self, name: str, content: str) -> None:
        """Add a result that a benchmark left."""
        if self._add(Line(t=self.seconds, benchmark=Benchmark(name, content))):
            self.counts.benchmarks.append(name)

    def count_removed(self, removed: Mapping[str, int]) -> None:
        """Count what was removed from anything but the logs."""
        with self._lock:
            self.counts.removed.update(removed)

    def write_out(self) -> None:
        """Write what is held in memory, if that is due."""
        if self.clock.now() - self._written_at >= WRITE_OUT_SECONDS:
            self._written_at = self.clock.now()
            self._write(lambda writer: writer.write_out())

    def fail(self, error: Exception) -> None:
        """Note that recording cannot go on, and have it end."""
        self.problem = self.problem or error
        self._stop.set()

    def end(self, reason: str) -> None:
        """Write the end, and close the file; nothing is added after that."""
        self._write(lambda writer: writer.end(self.seconds, reason, self.counts.removed))
        with self._lock:
            self._file.close()

    def _add(self, line: Line) -> bool:
        """Add a line; return whether the file was open, and still is."""
        return self._write(lambda writer: writer.add(line))

    def _write(self, write: Callable[[RecordingWriter], None]) -> bool:
        with self._lock:
            if self._file.closed:
                return False
            try:
                write(self._writer)
            except OSError as error:
                self.fail(_cannot_write(self.path, error))
                with contextlib.suppress(OSError):
                    self._file.close()
                with contextlib.suppress(OSError):  # What is complete stays, and nothing after it.
                    os.truncate(self.path, self._writer.size)
            self.counts.size = self._writer.size
            return not self._file.closed


def _cannot_write(path: Path, error: OSError) -> FileError:
    return FileError(f"{path}: cannot be written: {error.strerror or error}")
