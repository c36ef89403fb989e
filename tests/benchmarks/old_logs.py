# SPDX-License-Identifier: Apache-2.0
"""Logs of a million lines, made of the recorded day; their times move on as a server's do."""

from __future__ import annotations

import datetime as dt
import itertools
import re

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.recordings import log_of


LINES = 1_000_000
_READY = b"INFO:     Application startup complete."
_CRASH = b"(APIServer pid=20778) WARNING 11-21 02:26:16 [core_client.py:817]"
_TIME = re.compile(rb"(?<= )\d\d-\d\d \d\d:\d\d:\d\d(?= \[)")
_FORM = "%m-%d %H:%M:%S"
_YEAR = "2026"
_INFERENCE = re.compile(rb'(?m)^INFO:     \S+ - "POST /v1/completions ')
_BUSY_FACTOR = 50


def write_day(path: Path) -> int:
    """Write the recorded day: its start once, its service again and again, its crash and its second start once."""
    return _write(path, lambda service: service)


def write_busy_day(path: Path, lines: int = LINES) -> int:
    """Write the same of a busy server: fifty times as many requests, 95 lines a second, nearly all access lines."""
    return _write(path, _busy, lines)


def _write(path: Path, change: Callable[[bytes], bytes], least: int = LINES) -> int:
    recorded = log_of("day")
    ready, crash = recorded.index(_READY), recorded.index(_CRASH)
    service = change(recorded[ready:crash])
    first, *_, last = (_moment(time) for time in _TIME.findall(service))
    period = last - first + dt.timedelta(seconds=10)
    lines = recorded.count(b"\n")
    with path.open("wb") as file:
        file.write(recorded[:ready])
        shift = dt.timedelta()
        for block in _again(service, period):
            file.write(block)
            lines += block.count(b"\n")
            if lines >= least:
                break
            shift += period
        file.write(_later(recorded[crash:], shift))
    return lines


def _again(service: bytes, period: dt.timedelta) -> Iterator[bytes]:
    for number in itertools.count():
        yield _later(service, number * period)


def _later(text: bytes, shift: dt.timedelta) -> bytes:
    return _TIME.sub(lambda found: (_moment(found[0]) + shift).strftime(_FORM).encode(), text)


def _moment(printed: bytes) -> dt.datetime:
    return dt.datetime.strptime(f"{_YEAR}-{printed.decode()}", f"%Y-{_FORM}")  # noqa: DTZ007  # Only differences count.


def _busy(service: bytes) -> bytes:
    lines = service.splitlines(keepends=True)
    return b"".join(line * (_BUSY_FACTOR if _INFERENCE.match(line) else 1) for line in lines)
