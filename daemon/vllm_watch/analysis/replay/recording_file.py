# SPDX-License-Identifier: Apache-2.0
"""
Reads a recording in one file (`recording_lines` has the format), in bounded memory.

This module handles files that break off because their writer was killed: all that is complete is read.
"""

from __future__ import annotations

import lzma

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO

import msgspec

from vllm_watch.analysis.replay.recorded_gpus import gpu_use
from vllm_watch.analysis.replay.recording import (
    GpusRead,
    LogWritten,
    MetricsRead,
    RecordedBenchmark,
    RecordedCommand,
    RecordedEvent,
    RecordedSources,
    server_name,
)
from vllm_watch.analysis.replay.recording_lines import (
    FORMAT,
    GPU_INTERVAL,
    Header,
    Line,
    Sources,
    decode_header,
    decode_line,
)
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.command_facts import CommandFacts


MAGIC = b"\xfd7zXZ\x00"
"""How each xz file starts."""

MAX_LINE = 512 * 1024 * 1024
"""The longest line that is read, in bytes: the longest body of /metrics, every character of it escaped."""

_PIECE = 256 * 1024
_MAX_MEMORY = 256 * 1024 * 1024
"""For decompression; what `recording_writer` makes takes a few MiB."""


class RecordingFile:
    """
    A `Recording` in one file.

    Raises:
        FileError: It cannot be read, or is not what `recording_lines` says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = 0.0
        self.seconds = 0.0
        self.servers: tuple[str, ...] = ()
        self.sources: Mapping[str, RecordedSources] = MappingProxyType({})
        self.benchmarks: tuple[RecordedBenchmark, ...] = ()
        self.command: RecordedCommand | None = None
        self.removed: Mapping[str, int] = MappingProxyType({})
        self.broken_off: str | None = None
        self._read_once()

    def events(self, server: str | None = None) -> Iterator[RecordedEvent]:
        """Yield what happened to a server, in order of time; without a name, to the only one."""
        wanted = server_name(self, server)
        interval = self.sources[wanted].gpu_interval or GPU_INTERVAL
        lines = iter(_Lines(self.path))
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
        """Read and check all lines, and keep what is not an event of a server."""
        lines = _Lines(self.path)
        numbered = iter(lines)
        header = _header(self.path, next(numbered, (1, b""))[1])
        self.started, self.servers = header.started_unix, tuple(header.servers)
        self.sources = {name: _sources(each) for name, each in header.servers.items()}
        benchmarks, end = [], None
        for number, text in numbered:
            line = _line(self.path, number, text)
            if line.server is not None and line.server not in self.servers:
                raise FileError(f"{self.path}:{number}: server: {line.server} is not one of the first line's servers")
            if line.t < self.seconds and line.t >= 0:
                raise FileError(f"{self.path}:{number}: t: {line.t} comes after {self.seconds}")
            self.seconds = max(self.seconds, line.t)
            if line.benchmark is not None:
                benchmarks.append(RecordedBenchmark(line.benchmark.file, line.benchmark.content))
            if line.command is not None:
                self.command = RecordedCommand(*msgspec.structs.astuple(line.command))
            self.removed = line.removed or self.removed
            end = line.end or end
        self.benchmarks = tuple(benchmarks)
        if end is None:
            self.broken_off = (
                f"the recording breaks off after {self.seconds:.0f} s: {lines.problem or 'it was not ended'}"
            )


class _Lines:
    """
    The complete lines of a file with their numbers.

    `problem` says why the last stream is not complete, once all lines were read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        parts: list[bytes] = []
        size = 0
        for piece in self._pieces():
            first, *others = piece.split(b"\n")
            parts.append(first)
            size += len(first)
            for other in others:
                number += 1
                yield number, b"".join(parts)
                parts, size = [other], len(other)
            if size > MAX_LINE:
                raise FileError(f"{self._path}:{number + 1}: a line is longer than {MAX_LINE} bytes")

    def _pieces(self) -> Iterator[bytes]:
        """Yield the file's text up to where it breaks off."""
        try:
            with self._path.open("rb") as packed:
                if packed.read(len(MAGIC)) != MAGIC:
                    raise FileError(f"{self._path}: is not a recording: it does not start as an xz file does")
                packed.seek(0)
                yield from self._unpacked(packed)
        except OSError as error:
            raise FileError(f"{self._path}: cannot be read: {error.strerror or error}") from error

    def _unpacked(self, packed: IO[bytes]) -> Iterator[bytes]:
        unpacker, rest, is_inside = _unpacker(), b"", False
        try:
            while True:
                if unpacker.eof:
                    unpacker, rest, is_inside = _unpacker(), unpacker.unused_data, False
                if unpacker.needs_input and not rest and not (rest := packed.read(_PIECE)):
                    break
                text = unpacker.decompress(rest, _PIECE)
                rest, is_inside = b"", True
                if text:
                    yield text
        except lzma.LZMAError as error:
            self.problem = f"the rest of the file is damaged ({error})"
            return
        if is_inside:
            self.problem = "its last part is not complete"


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


def _sources(said: Sources) -> RecordedSources:
    command = CommandFacts() if said.command_line is None else said.command_line.facts
    return RecordedSources(said.log, said.scrape_interval, said.gpu_interval, said.cost_per_hour, command)


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        return decode_line(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}:{number}: {error}") from error


def _event(line: Line) -> LogWritten | MetricsRead | None:
    """Return what a line says of its server's log or /metrics."""
    for is_history, text, data in (
        (False, line.log, line.log_base64),
        (True, line.history, line.history_base64),
    ):
        if text is not None or data is not None:
            return LogWritten(line.t, _bytes(text, data), is_history, line.gap)
    if line.status is None:
        return None
    return MetricsRead(line.t, _bytes(line.body, line.body_base64), str(line.status), line.duration or 0.0)


def _bytes(text: str | None, data: bytes | None) -> bytes:
    return text.encode() if text is not None else data or b""
