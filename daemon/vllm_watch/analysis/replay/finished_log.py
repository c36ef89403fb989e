# SPDX-License-Identifier: Apache-2.0
"""
A finished log, read once from its start to its end, also a compressed one.

Its times are those that it prints, in this machine's time zone.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

from vllm_watch.analysis.replay.parser_process import (
    ASKED,
    ASKED_BY_BUSY_READER,
    Parse,
    Parsed,
    ParserProcess,
    is_worthwhile,
)
from vllm_watch.daemon.reading.containers import LineReader
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.parsed_text import ParsedSteps, ParsedText, parse_steps, parse_text
from vllm_watch.daemon.reading.printed import count_new_years, first_printed_time, last_printed_time, parts_to_read
from vllm_watch.daemon.reading.times import LineTimes, PrintedTimes, local_seconds
from vllm_watch.daemon.state.sleep_reports import PAUSING, WAKE_UP
from vllm_watch.daemon.state.snapshot import TailCounts
from vllm_watch.daemon.support.errors import FileError


READ_SIZE = 1024 * 1024
_END_SIZE = 256 * 1024
_MANY_BYTES = 16 * 1024
"""So many bytes are read as one text: of fewer it is quicker to look at each line."""

_CALLS = tuple(path.encode() for path in (*PAUSING, WAKE_UP))


class LogBytes:
    """The bytes of one log as batches of lines, counted as the daemon counts them."""

    def __init__(self) -> None:
        self._framing = LineReader()
        self._reader = LogReader()
        self._lines = self._size = 0

    def read(self, data: bytes, times: LineTimes) -> LogBatch:
        """Return what the lines report that these bytes complete."""
        text = self._framing.feed_text(data) if len(data) >= _MANY_BYTES else None
        if text is None:
            batch = self._reader.read(self._framing.feed(data), times)
        else:
            batch = self._reader.read_text(text, times)
        self._count(batch.lines, len(data))
        return batch

    def read_parsed(self, parsed: ParsedText, size: int, times: LineTimes) -> LogBatch | None:
        """Return what `read` returns for bytes that were parsed elsewhere; `None` where they must be read."""
        batch = self._reader.read_parsed(parsed, times) if self._framing.is_plain else None
        if batch is not None:
            self._framing.pass_text(parsed.rest)
            self._count(batch.lines, size)
        return batch

    def read_steps(self, data: bytes, times: LineTimes) -> Iterator[LogBatch]:
        """Yield what the lines report that these bytes complete: each line with an event is a batch of its own."""
        text = self._framing.feed_text(data)
        if text is None:
            yield from self.read_by_line(data, times)
            return
        self._count(text.count(b"\n"), len(data))
        yield from self._reader.read_steps(text, times, _CALLS)

    def read_parsed_steps(self, parsed: ParsedSteps, size: int, times: LineTimes) -> Iterator[LogBatch] | None:
        """Return what `read_steps` yields for bytes that were parsed elsewhere; `None` where they must be read."""
        if not self._framing.is_plain or not self._reader.can_read_parsed():
            return None
        self._framing.pass_text(parsed.rest)
        self._count(parsed.lines, size)
        return self._reader.read_parsed_steps(parsed.steps, times)

    def read_by_line(self, data: bytes, times: LineTimes) -> Iterator[LogBatch]:
        """Yield what each line reports that these bytes complete."""
        lines = self._framing.feed(data)
        self._count(len(lines), len(data))
        for line in lines:
            yield self._reader.read([line], times)

    def lose_place(self) -> None:
        """Continue elsewhere: lines before the next one were not read."""
        self._reader.lose_place()

    @property
    def foreign_lines(self) -> int:
        """How many lines were read of which none has the form of vLLM's; 0 once one has."""
        return self._lines if self._reader.is_foreign else 0

    def _count(self, lines: int, size: int) -> None:
        self._lines += lines
        self._size += size

    @property
    def counts(self) -> TailCounts:
        """What was read so far."""
        framing = self._framing
        return TailCounts(self._lines, self._size, 0, long_lines=framing.long_lines, nul_bytes=framing.nul_bytes)


class FinishedLog:
    """
    A finished log.

    Args:
        path: A file; one whose name ends in ``.gz`` is compressed.

    Raises:
        FileError: It cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._bytes = LogBytes()
        self._size = max(_status(path).st_size, 1)
        self._read = 0
        self._modified = _status(path).st_mtime
        first, last = _ends(path)
        self._last_printed = last_printed_time(last)
        self._times = _printed_times(path, self._modified, first, self._last_printed)

    def read(self, *, by_line: bool = False) -> Iterator[LogBatch]:
        """
        Yield what the lines report, in large batches or line by line.

        Raises:
            FileError: It cannot be read.
        """
        if by_line:
            for block in _blocks(self._path):
                self._read += len(block)
                yield from self._bytes.read_by_line(block, self._times)
            return
        with _open(self._path) as file:  # Once: the path may name another file soon.
            for parsed in self._parsed_blocks(file, parse_text, ASKED):
                batch = None if parsed is None else self._bytes.read_parsed(parsed, READ_SIZE, self._times)
                if batch is None:
                    batch = self._bytes.read(self._next_block(file), self._times)
                else:
                    self._read += READ_SIZE
                yield batch
            for block in _blocks_of(file, self._path, self._read):
                self._read += len(block)
                yield self._bytes.read(block, self._times)

    def read_steps(self) -> Iterator[LogBatch]:
        """
        Yield what the lines report, in batches: each line with an event, and each call that pauses, is one of its own.

        Raises:
            FileError: It cannot be read.
        """
        with _open(self._path) as file:
            parse = partial(parse_steps, alone=_CALLS)
            for parsed in self._parsed_blocks(file, parse, ASKED_BY_BUSY_READER):
                batches = None if parsed is None else self._bytes.read_parsed_steps(parsed, READ_SIZE, self._times)
                if batches is None:
                    batches = self._bytes.read_steps(self._next_block(file), self._times)
                else:
                    self._read += READ_SIZE
                yield from batches
            for block in _blocks_of(file, self._path, self._read):
                self._read += len(block)
                yield from self._bytes.read_steps(block, self._times)

    def _parsed_blocks(self, file: IO[bytes], parse: Parse[Parsed], asked: int) -> Iterator[Parsed | None]:
        """
        Yield what the whole blocks of a large log hold, parsed by two processes; nothing if no second one can help.

        `None` is a block that has to be read. Whoever takes one moves on by a block before the next.
        """
        count = self._size // READ_SIZE
        if self._path.endswith(".gz") or not is_worthwhile(self._size):
            return
        try:
            blocks = ParserProcess(file, READ_SIZE, count, parse, asked)
        except OSError:
            return
        with closing(blocks):
            for number in range(count):
                with _said_of(self._path):
                    parsed = blocks.take(number)
                yield parsed
                if self._read < (number + 1) * READ_SIZE:
                    return  # The file was cut meanwhile, and this is its end.

    def _next_block(self, file: IO[bytes]) -> bytes:
        with _said_of(self._path):
            data = os.pread(file.fileno(), READ_SIZE, self._read)
        self._read += len(data)
        return data

    def read_until(self, mark: re.Pattern[bytes]) -> Iterator[LogBatch]:
        """
        Yield what the lines report, in batches that end where `mark` does, and at least every megabyte.

        Raises:
            FileError: It cannot be read.
        """
        for block in _blocks(self._path):
            self._read += len(block)
            start = 0
            for found in mark.finditer(block):
                yield self._bytes.read(block[start : found.end()], self._times)
                start = found.end()
            yield self._bytes.read(block[start:], self._times)

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
        Return for how many seconds no line has followed the last one, at `now` by this machine's clock.

        The last line's time is told as the daemon tells it, that is by the file's time where a time zone explains it.
        """
        written = PrintedTimes(self._last_printed, min(self._modified, now)).at(self._last_printed)
        return max(now - written, 0.0)

    @property
    def end(self) -> float:
        """The time of the last line that was read; before reading, that of the first line."""
        return self._times.at("")


def _blocks(path: str) -> Iterator[bytes]:
    with _open(path) as file:
        yield from _blocks_of(file, path, 0)


def _blocks_of(file: IO[bytes], path: str, start: int) -> Iterator[bytes]:
    with _said_of(path):
        file.seek(start)
        while block := file.read(READ_SIZE):
            yield block


def _open(path: str) -> IO[bytes]:
    with _said_of(path):
        if path.endswith(".gz"):
            return cast("IO[bytes]", gzip.open(path, "rb"))
        return Path(path).open("rb")


def _status(path: str) -> os.stat_result:
    with _said_of(path):
        return Path(path).stat()


@contextmanager
def _said_of(path: str) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileError(f"{path}: cannot be read: {words}") from error


def _printed_times(path: str, modified: float, first: bytes, printed: str) -> PrintedTimes:
    """Return the times of a log's lines: `printed`, the last that it prints, is this machine's local time."""
    end = local_seconds(printed, modified) if printed else None
    new_years = count_new_years(_parts(path))
    return PrintedTimes(printed, modified if end is None else end, first_printed_time(first), new_years)


def _parts(path: str) -> Iterator[bytes]:
    """Yield the parts of a log that show when its years end."""
    if path.endswith(".gz"):
        yield from _blocks(path)
        return
    with _open(path) as file, _said_of(path):
        for offset, size in parts_to_read(0, _status(path).st_size):
            file.seek(offset)
            yield file.read(size)


def _ends(path: str) -> tuple[bytes, bytes]:
    """Return a log's first and last bytes; a compressed one must be read whole for that."""
    first = last = b""
    blocks = _blocks(path) if path.endswith(".gz") else _first_and_last_block(path)
    for block in blocks:
        first = first or block[:_END_SIZE]
        last = (last + block)[-_END_SIZE:]
    return first, last


def _first_and_last_block(path: str) -> Iterator[bytes]:
    with _open(path) as file, _said_of(path):
        yield file.read(_END_SIZE)
        file.seek(max(_status(path).st_size - _END_SIZE, file.tell()))
        yield file.read(_END_SIZE)
