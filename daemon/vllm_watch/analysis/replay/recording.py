# SPDX-License-Identifier: Apache-2.0
"""
A recording: the logs of real servers as they grew, and their /metrics as they were read.

It is one file (`recording_lines` has the format), which is read in bounded memory. One that breaks off because its
writer was killed is read as far as it is complete.
"""

from __future__ import annotations

import contextlib
import lzma
import re

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

import msgspec

from vllm_watch.analysis.replay.recording_lines import (
    FORMAT,
    GPU_INTERVAL,
    Benchmark,
    Command,
    Header,
    Line,
    Sources,
    decode_header,
    decode_line,
    gpu_use,
)
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.catalog.reasons import METRICS, MetricsReason
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch_parsers.metric_names import PROCESS_START


BUNDLED = Path(__file__).parent / "recordings" / "day.jsonl.xz"
"""The recording that comes with the package: ten minutes of a server that is overloaded and crashes."""

MAGIC = b"\xfd7zXZ\x00"
"""How each xz file starts."""

MAX_LINE = 512 * 1024 * 1024
"""The longest line that is read, in bytes: the longest body of /metrics, every character of it escaped."""

_PIECE = 256 * 1024
_MAX_MEMORY = 256 * 1024 * 1024
"""For decompression; what is written here takes a few MiB."""


class LogWritten(NamedTuple):
    """The log grew, `at` seconds after the recording's start; history, which was there before, is negative."""

    at: float
    data: bytes
    is_history: bool = False
    is_after_gap: bool = False


class MetricsRead(NamedTuple):
    """A scrape of `duration` seconds, ended `at`; without an answer the body is empty, `status` the reason."""

    at: float
    body: bytes
    status: str
    duration: float = 0.0


class GpusRead(NamedTuple):
    """The GPUs of a server were read; `use` has its time since the epoch; `interval` is in seconds."""

    at: float
    use: GpuUse
    interval: float


RecordedEvent = LogWritten | MetricsRead | GpusRead


def is_recording(path: Path) -> bool:
    """Tell by its content whether a path names a recording; raise `FileError` if it cannot be read."""
    if path.is_dir():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error


class Recording:
    """A recording, all of it read once and checked. `broken_off` says what is missing at its end, if anything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = 0.0
        self.seconds = 0.0
        self.servers: tuple[str, ...] = ()
        self.sources: Mapping[str, Sources] = MappingProxyType({})
        self.benchmarks: tuple[Benchmark, ...] = ()
        self.command: Command | None = None
        self.broken_off: str | None = None
        self._read_once()

    def events(self, server: str | None = None) -> Iterator[RecordedEvent]:
        """Yield what happened to a server, in order of time; `UsageError` without a name if there are several."""
        wanted = server_name(self, server)
        interval = self.sources[wanted].gpu_interval or GPU_INTERVAL
        lines = _lines(self.path)
        next(lines, None)
        for number, text in lines:
            line = _line(self.path, number, text)
            if line.server != wanted:
                continue
            if line.gpus is not None:
                yield GpusRead(line.t, gpu_use(line.gpus, self.started), interval)
            elif (event := _event(line)) is not None:
                yield event

    def _read_once(self) -> None:
        lines = _lines(self.path)
        header = _header(self.path, next(lines, (1, b""))[1])
        self.started, self.servers = header.started_unix, tuple(header.servers)
        self.sources = header.servers
        benchmarks, end = [], None
        for number, text in lines:
            line = _line(self.path, number, text)
            if line.server is not None and line.server not in self.servers:
                raise FileError(f"{self.path}:{number}: server: {line.server} is not one of the first line's servers")
            if line.t < self.seconds and line.t >= 0:
                raise FileError(f"{self.path}:{number}: t: {line.t} comes after {self.seconds}")
            self.seconds = max(self.seconds, line.t)
            if line.benchmark is not None:
                benchmarks.append(line.benchmark)
            self.command = line.command or self.command
            end = line.end or end
        self.benchmarks = tuple(benchmarks)
        if end is None:
            self.broken_off = _(
                "the recording breaks off after {seconds:.0f} s: it was not ended, or the rest is damaged",
                seconds=self.seconds,
            )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines that are whole."""
    number, parts, size = 0, [b""], 0
    for piece in _pieces(path):
        first, *others = piece.split(b"\n")
        parts.append(first)
        size += len(first)
        for other in others:
            number += 1
            yield number, b"".join(parts)
            parts, size = [other], len(other)
        if size > MAX_LINE:
            raise FileError(f"{path}:{number + 1}: a line is longer than {MAX_LINE} bytes")


def _pieces(path: Path) -> Iterator[bytes]:
    """
    Yield what a file holds, in pieces, up to where it is cut off or damaged.

    `lzma.open` has no limit of memory, and hands out much that no checksum has covered yet.
    """
    try:
        with path.open("rb") as packed, contextlib.suppress(lzma.LZMAError):
            rest = packed.read(_PIECE)
            if not rest.startswith(MAGIC):
                raise FileError(f"{path}: is not a recording: it does not start as an xz file does")
            unpacker = _unpacker()
            while rest or not unpacker.needs_input or (rest := packed.read(_PIECE)):
                if piece := unpacker.decompress(rest, _PIECE):
                    yield piece
                rest = b""
                if unpacker.eof:
                    rest, unpacker = unpacker.unused_data, _unpacker()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpacker() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_MEMORY)


def _header(path: Path, text: bytes) -> Header:
    try:
        header = decode_header(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}:1: is not the first line of a recording: {error}") from error
    if header.vllm_watch_recording > FORMAT:
        raise FileError(
            f"{path}:1: was written by vllm-watch {header.vllm_watch} in format {header.vllm_watch_recording}; "
            f"this version reads up to format {FORMAT}"
        )
    if not header.servers:
        raise FileError(f"{path}:1: servers: expected at least one name")
    return header


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        return decode_line(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}:{number}: {error}") from error


def _event(line: Line) -> LogWritten | MetricsRead | None:
    for is_history, text, data in ((False, line.log, line.log_base64), (True, line.history, line.history_base64)):
        if text is not None or data is not None:
            return LogWritten(line.t, _bytes(text, data), is_history, line.gap)
    if line.status is None:
        return None
    return MetricsRead(line.t, _bytes(line.body, line.body_base64), str(line.status), line.duration or 0.0)


def _bytes(text: str | None, data: bytes | None) -> bytes:
    return text.encode() if text is not None else data or b""


def server_name(recording: Recording, name: str | None) -> str:
    """Return the name of the server that is meant; `UsageError` if there is none such, or several and no name."""
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


_BY_STATUS: Mapping[str, MetricsReason] = {
    "200": "incomplete",
    "401": "unauthorized",
    "403": "forbidden",
    "404": "not_found",
}


def scrape_failure(status: str) -> MetricsReason:
    """Return the reason for a recorded status: a reason itself, an HTTP status, or Python's name for a failure."""
    if status in METRICS and status != "ok":
        return cast("MetricsReason", status)
    if status.isdigit():
        return _BY_STATUS.get(status, "http_error")
    if "timeout" in status.lower():
        return "timeout"
    return "refused" if status in {"URLError", "ConnectionRefusedError"} else "unreachable"
