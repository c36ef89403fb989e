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
from tests.parsers.lines import read_line

from vllm_watch.daemon.reading import framing
from vllm_watch.daemon.reading.framing import KEPT, LineFramer, LineReader
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import PrintedTimes, first_printed_time, last_printed
from vllm_watch_parsers.events import AccessRequest
from vllm_watch_parsers.prefix import ACCESS_START


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
    framer = LineFramer()
    _check_wrapping([line for piece in pieces for line in framer.feed(piece)], 1 + len(pieces[0]) if pieces else 1)
    batches = _check_lines(log, pieces)
    _check_reader(batches, [line for batch in batches for line in batch], log)


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
    """Lines are what stands between line feeds; a long one leaves its beginning and a mark."""
    framer = LineFramer(SHORT_LINE)
    found: list[bytes] = []
    for piece in pieces:
        found += framer.feed(piece)
        assert framer.pending <= SHORT_LINE
    *whole, rest = log.replace(b"\0", b"").split(b"\n")
    assert found == [line if len(line) <= SHORT_LINE else _shortened(line, SHORT_LINE // 2) for line in whole]
    assert framer.long_lines == sum(len(line) > SHORT_LINE for line in (*whole, rest))
    assert framer.nul_bytes == log.count(b"\0")
    assert framer.pending == (len(rest) if len(rest) <= SHORT_LINE else 0)


def _shortened(line: bytes, kept: int) -> bytes:
    return line[:kept] + b"\0" + (b"\r" if line.endswith(b"\r") else b"")


def _check_lines(log: bytes, pieces: list[bytes]) -> list[list[bytes]]:
    """
    The same lines come out of any pieces, blank ones aside, a NUL stands only where a line was cut, parts are bounded.

    Returns:
        The lines that each piece completes.
    """
    at_once, in_pieces, small = LineReader(), LineReader(), LineReader()
    batches = [in_pieces.feed(piece) for piece in pieces]
    lines = [line for batch in batches for line in batch if line.strip(b"\r")]
    assert [line for line in at_once.feed(log) if line.strip(b"\r")] == lines
    assert not any(b"\0" in line.removesuffix(b"\r").removesuffix(b"\0") for line in lines)
    with patch.object(framing, "MAX_LINE", SHORT_PARTIAL):
        for piece in pieces:
            small.feed(piece)
            assert set(small._unwrapper._parts) | set(small._unwrapper._dropping) <= {"stdout", "stderr"}
            assert all(len(part) <= SHORT_PARTIAL for part in small._unwrapper._parts.values())
            assert all(len(dropped.start) <= KEPT for dropped in small._unwrapper._dropping.values())
    return [batch for batch in batches if batch]


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
    """What is wrapped is unwrapped; of a line that is too long no part is a line of its own."""
    texts = [line.decode("utf-8", "replace").encode() for line in lines]
    for wrapped, written in ((_docker(lines, size), texts), (_cri(lines, size), lines)):
        data = b"".join(line + b"\n" for line in wrapped)
        assert LineReader().feed(data) == written
        with patch.object(framing, "MAX_LINE", SHORT_PARTIAL):
            found = LineReader().feed(data)
        assert len(found) == len(written)
        for line, whole in zip(found, written, strict=True):
            if len(whole) <= SHORT_PARTIAL:
                assert line == whole
            else:
                beginning, mark, end = line.partition(b"\0")
                assert whole.startswith(beginning)
                assert (mark, end) == (b"\0", b"\r" if whole.endswith(b"\r") else b"")


def _check_reader(framed: list[list[bytes]], lines: list[bytes], log: bytes) -> None:
    """Lines say the same in batches, at once and one by one; a terminal's line ends change nothing."""
    at_once = _read([lines], log)
    # The first of uvicorn's lines decides, for all that are read with it, whether a terminal wrote the log.
    if not any(ACCESS_START in line and line.endswith(b"\r") for line in lines):
        assert at_once == _read(framed, log)
        assert at_once == _read_one_by_one(lines, log)
    plain = [line.rstrip(b"\r") for line in lines]
    if any(line.startswith(ACCESS_START) for line in plain):
        assert _said(_read([plain], log)) == _said(_read([[line + b"\r" for line in plain]], log))


def _times(log: bytes) -> PrintedTimes:
    return PrintedTimes(last_printed(log).time, END, first_printed_time(log))


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
    timed = [each for line in lines for each in read_line(reader, line, times)]
    requests = Counter(each.event for each in timed if isinstance(each.event, AccessRequest))
    events = [each for each in timed if not isinstance(each.event, AccessRequest)]
    return events, requests, len(lines), sum(map(len, lines)) + len(lines)
