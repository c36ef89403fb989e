# SPDX-License-Identifier: Apache-2.0
"""
A finished log, read once from its start to its end, also a compressed one.

Its times are those that it prints, in this machine's time zone.
"""

from __future__ import annotations

import gzip
import os
import zlib

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, cast

from vllm_watch.daemon.reading.framing import LineReader
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader, TailCounts
from vllm_watch.daemon.reading.times import (
    LineTimes,
    PrintedTimes,
    first_printed_time,
    last_printed,
    local_seconds,
)
from vllm_watch.daemon.state.sleep_reports import PAUSING, WAKE_UP
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.line import is_irrelevant
from vllm_watch_parsers.prefix import ACCESS_HEAD


Progress = Callable[[float], None]
"""Called now and then with the share of the work that is done, 0 to 1."""

READ_SIZE = 1024 * 1024
_END_SIZE = 256 * 1024
_GZIP = b"\x1f\x8b"
_CALLS = tuple(path.encode() for path in (*PAUSING, WAKE_UP))


class LogBytes:
    """The bytes of one log as batches of lines, counted as the daemon counts them."""

    def __init__(self) -> None:
        self._framing = LineReader()
        self._reader = LogReader()
        self._lines = self._size = 0

    def read(self, data: bytes, times: LineTimes) -> LogBatch:
        """Return what the lines report that these bytes complete."""
        return self._reader.read(self._framed(data), times)

    def read_apart(self, data: bytes, times: LineTimes) -> Iterator[LogBatch]:
        """Yield the same in batches: each line that may have an event, or is a call that pauses, is one of its own."""
        lines = self._framed(data)
        self._reader.as_written(lines)  # Whether there is a terminal is seen in all of them.
        # The filter is for lines outside of records.
        has_records = self._reader.is_in_record or b"\r" in data
        numbers = [
            number
            for number, access in enumerate(map(ACCESS_HEAD.match, lines))
            if access is None and (has_records or not is_irrelevant(lines[number]))
        ]
        calls = [call for call in _CALLS if call in data]
        if calls:
            called = [number for number, line in enumerate(lines) if any(call in line for call in calls)]
            numbers = sorted({*numbers, *called})
        start = 0
        for number in numbers:
            if number > start:
                yield self._reader.read(lines[start:number], times)
            yield self._reader.read([lines[number]], times)
            start = number + 1
        if start < len(lines):
            yield self._reader.read(lines[start:], times)

    def lose_place(self) -> None:
        """Continue elsewhere: lines before the next one were not read."""
        self._reader.lose_place()

    @property
    def foreign_lines(self) -> int:
        """How many lines were read of which none has the form of vLLM's; 0 once one has."""
        return self._lines if self._reader.is_foreign else 0

    def _framed(self, data: bytes) -> list[bytes]:
        lines = self._framing.feed(data)
        self._lines += len(lines)
        self._size += len(data)
        return lines

    @property
    def counts(self) -> TailCounts:
        """What was read so far."""
        framing = self._framing
        return TailCounts(self._lines, self._size, 0, long_lines=framing.long_lines, nul_bytes=framing.nul_bytes)


class FinishedLog:
    """A finished log, also a compressed one; all methods raise `FileError` if it cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._bytes = LogBytes()
        self._size = max(_status(path).st_size, 1)
        self._read = 0
        self._modified = _status(path).st_mtime
        first, last = _ends(path)
        self._last_printed = last_printed(last).time
        self._times = _printed_times(self._modified, first, self._last_printed)

    def read(self, *, by_line: bool = False) -> Iterator[LogBatch]:
        """Yield what the lines report, in batches of a megabyte or of a line."""
        for block in self._blocks():
            for part in BytesIO(block) if by_line else (block,):
                yield self._bytes.read(part, self._times)

    def read_apart(self) -> Iterator[LogBatch]:
        """Yield the same, but each line with an event, and each call that pauses, is a batch of its own."""
        for block in self._blocks():
            yield from self._bytes.read_apart(block, self._times)

    def _blocks(self) -> Iterator[bytes]:
        for block in _blocks(self._path):
            self._read += len(block)
            yield block

    @property
    def counts(self) -> TailCounts:
        """What was read so far."""
        return self._bytes.counts

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._size

    @property
    def share(self) -> float:
        """How much of the file was read so far, 0 to 1."""
        return min(self._read / self._size, 1.0)

    @property
    def foreign(self) -> str:
        """That no line that was read is vLLM's, in words; nothing if one is, or there is none."""
        lines = self._bytes.foreign_lines
        return f"{self._path}: none of {lines} lines has the form of vLLM's: is this its log?" if lines else ""

    def silence(self, now: float) -> float:
        """
        Return for how many seconds no line has followed, by the file's time where a time zone explains it, as the
        daemon.
        """
        written = PrintedTimes(self._last_printed, min(self._modified, now)).at(self._last_printed)
        return max(now - written, 0.0)

    @property
    def end(self) -> float:
        """The time of the last line that was read; before reading, that of the first line."""
        return self._times.at("")


def _blocks(path: str) -> Iterator[bytes]:
    with open_log(path) as file, _said_of(path):
        while block := file.read(READ_SIZE):
            yield block


def open_log(path: str) -> IO[bytes]:
    """Open a file, also a compressed one; `FileError` if that fails."""
    with _said_of(path):
        return cast("IO[bytes]", gzip.open(path, "rb")) if is_compressed(path) else Path(path).open("rb")


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed, by its content; `FileError` if it cannot be read."""
    with _said_of(path), Path(path).open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def _status(path: str) -> os.stat_result:
    with _said_of(path):
        return Path(path).stat()


@contextmanager
def _said_of(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileError(f"{path}: cannot be read: {words}") from error


def _printed_times(modified: float, first: bytes, printed: str) -> PrintedTimes:
    """Return the times of a log's lines: `printed`, the last that it prints, is this machine's local time."""
    end = local_seconds(printed, modified) if printed else None
    return PrintedTimes(printed, modified if end is None else end, first_printed_time(first))


def _ends(path: str) -> tuple[bytes, bytes]:
    """Return a log's first and last bytes; a compressed one must be read whole for that."""
    first = last = b""
    blocks = _blocks(path) if is_compressed(path) else _first_and_last_block(path)
    for block in blocks:
        first = first or block[:_END_SIZE]
        last = (last + block)[-_END_SIZE:]
    return first, last


def _first_and_last_block(path: str) -> Iterator[bytes]:
    with open_log(path) as file, _said_of(path):
        yield file.read(_END_SIZE)
        file.seek(max(_status(path).st_size - _END_SIZE, file.tell()))
        yield file.read(_END_SIZE)
