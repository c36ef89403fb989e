# SPDX-License-Identifier: Apache-2.0
"""
Bytes to lines, out of containers' wrapping, to events: however the bytes come in pieces, the same comes out.

The first three bytes say how long the pieces are, the rest is the log.
"""

from __future__ import annotations

import json

from collections import Counter
from itertools import cycle
from unittest.mock import patch

from tests.fuzz import seeds as sources

from vllm_watch.reading import containers
from vllm_watch.reading.containers import Unwrapper
from vllm_watch.reading.framing import LineFramer
from vllm_watch.reading.log_reader import LogReader
from vllm_watch.reading.printed import first_printed_time, last_printed_time
from vllm_watch.reading.times import PrintedTimes
from vllm_watch_parsers.access import ACCESS_START
from vllm_watch_parsers.events import AccessRequest


SHORT_LINE = 96
SHORT_PARTIAL = 64
"""Limits that small inputs reach."""

END = 1_795_000_000.0
HEADER = 3

TOKENS = (
    *sources.LOG_TOKENS,
    b'{"log":"', b'\\n","stream":"stdout","time":"2026-11-21T02:17:58.1Z"}', b'","stream":"stderr"}', b"\\u0000",
    b"2026-11-21T02:17:58.1Z stdout F ", b"2026-11-21T02:17:58.1Z stderr P ", b"x" * SHORT_LINE, b"\0\0\0\0",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return pieces of real logs, plain and as containers' runtimes keep them."""
    logs = [b"\n".join(lines) + b"\n" for lines in sources.log_excerpts(12)]
    wrapped = [wrap(log.split(b"\n")[:5], 1000) for log in logs[:6] for wrap in (_docker, _cri)]
    terminal = [log.replace(b"\n", b"\r\n") for log in logs[:2]]
    return [b"\x07\x1f\xff" + log for log in (*logs, *(b"\n".join(lines) + b"\n" for lines in wrapped), *terminal)]


def check(data: bytes) -> None:
    """Raise AssertionError where pieces change what is read."""
    log = data[HEADER:]
    pieces = _pieces(log, data[:HEADER])
    _check_framer(log, pieces)
    framed = [framer_lines for framer_lines in _framed(pieces) if framer_lines]
    lines = [line for some in framed for line in some]
    _check_unwrapper(framed, lines)
    _check_wrapping(lines, 1 + len(pieces[0]) if pieces else 1)
    _check_reader(framed, lines, log)


def _pieces(log: bytes, sizes: bytes) -> list[bytes]:
    """Cut a log into pieces whose lengths take turns."""
    pieces, at = [], 0
    for size in cycle(sizes or b"\0"):
        if at >= len(log):
            return pieces
        pieces.append(log[at : at + size + 1])
        at += size + 1
    return pieces


def _check_framer(log: bytes, pieces: list[bytes]) -> None:
    framer = LineFramer(SHORT_LINE)
    found: list[bytes] = []
    for piece in pieces:
        found += framer.feed(piece)
        assert framer.pending <= SHORT_LINE
    *whole, rest = log.replace(b"\0", b"").split(b"\n")
    assert found == [line for line in whole if len(line) <= SHORT_LINE]
    assert framer.long_lines == sum(len(line) > SHORT_LINE for line in (*whole, rest))
    assert framer.nul_bytes == log.count(b"\0")
    assert framer.pending == (len(rest) if len(rest) <= SHORT_LINE else 0)


def _framed(pieces: list[bytes]) -> list[list[bytes]]:
    framer = LineFramer()
    return [framer.feed(piece) for piece in pieces]


def _check_unwrapper(framed: list[list[bytes]], lines: list[bytes]) -> None:
    """A wrapping is taken away the same from lines that come one by one, and what waits is bounded."""
    at_once = Unwrapper().feed(list(lines))
    in_pieces = Unwrapper()
    with patch.object(containers, "MAX_PARTIAL", SHORT_PARTIAL):
        small = Unwrapper()
        for some in framed:
            small.feed(some)
        assert sum(len(part or b"") for part in small._parts.values()) <= 2 * SHORT_PARTIAL
        assert len(small._parts) <= 2
    assert at_once == [line for some in framed for line in in_pieces.feed(some)]
    assert not any(b"\0" in line for line in at_once)


def _docker(lines: list[bytes], size: int) -> list[bytes]:
    """Wrap lines as Docker does, which writes text, in pieces of so many characters."""
    wrapped = []
    for number, line in enumerate(lines):
        text = line.decode("utf-8", "replace") + "\n"
        stream = "stderr" if number % 3 == 1 else "stdout"
        for at in range(0, len(text), size):
            record = {"log": text[at : at + size], "stream": stream, "time": "2026-11-21T02:17:58.123456789Z"}
            wrapped.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode())
    return wrapped


def _cri(lines: list[bytes], size: int) -> list[bytes]:
    """Wrap lines as Kubernetes' runtimes do, in pieces of so many bytes."""
    wrapped = []
    for number, line in enumerate(lines):
        stream = b"stderr" if number % 3 == 1 else b"stdout"
        pieces = [line[at : at + size] for at in range(0, len(line), size)] or [b""]
        tags = [b"P"] * (len(pieces) - 1) + [b"F"]
        wrapped += [b"2026-11-21T02:17:58.1Z %b %b %b" % (stream, *each) for each in zip(tags, pieces, strict=True)]
    return wrapped


def _check_wrapping(lines: list[bytes], size: int) -> None:
    """What is wrapped is unwrapped; a line that is too long is left out whole, and no part of it is a line."""
    texts = [line.decode("utf-8", "replace").encode() for line in lines]
    for wrapped, written in ((_docker(lines, size), texts), (_cri(lines, size), lines)):
        assert Unwrapper().feed(wrapped) == written
        with patch.object(containers, "MAX_PARTIAL", SHORT_PARTIAL):
            found = Unwrapper().feed(wrapped)
        assert set(found) <= set(written)
        short = [line for line in written if len(line) <= SHORT_PARTIAL]
        assert [line for line in found if len(line) <= SHORT_PARTIAL] == short


def _check_reader(framed: list[list[bytes]], lines: list[bytes], log: bytes) -> None:
    """Lines say the same in batches, at once and one by one; a terminal's line ends change nothing."""
    at_once = _read([lines], log)
    if not any(ACCESS_START in line and line.endswith(b"\r") for line in lines):
        assert at_once == _read(framed, log)
        assert at_once == _read_one_by_one(lines, log)
    plain = [line.rstrip(b"\r") for line in lines]
    if any(line.startswith(ACCESS_START) for line in plain):
        assert _said(_read([plain], log)) == _said(_read([[line + b"\r" for line in plain]], log))


def _times(log: bytes) -> PrintedTimes:
    return PrintedTimes(last_printed_time(log), END, first_printed_time(log))


def _read(batches: list[list[bytes]], log: bytes) -> tuple:
    reader, times = LogReader(), _times(log)
    events, requests, lines, size = [], Counter(), 0, 0
    for batch in batches:
        read = reader.read(batch, times)
        events += read.events
        requests.update(read.requests)
        lines += read.lines
        size += read.size
    return events, requests, lines, size


def _said(read: tuple) -> tuple:
    """Return the events and requests, without what tells of the lines' lengths."""
    return read[:2]


def _read_one_by_one(lines: list[bytes], log: bytes) -> tuple:
    reader, times = LogReader(), _times(log)
    timed = [each for line in lines for each in reader.read_line(line, times)]
    requests = Counter(each.event for each in timed if isinstance(each.event, AccessRequest))
    events = [each for each in timed if not isinstance(each.event, AccessRequest)]
    return events, requests, len(lines), sum(map(len, lines)) + len(lines)
