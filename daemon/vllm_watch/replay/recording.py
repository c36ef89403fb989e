# SPDX-License-Identifier: Apache-2.0
"""
A recorded server: its log as the bytes came, and its /metrics as they were read.

A folder holds ``vllm.log``, ``timeline.jsonl`` and the bodies. The timeline's first line is
``{"started_unix": …}``; each other is ``{"t": seconds, "log_bytes": n}`` (so many bytes more of the log) or
``{"t": seconds, "scrape": "metrics/0001.txt.gz" or null, "status": 200 or why not}``.
"""

from __future__ import annotations

import gzip
import re
import zlib

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vllm_watch.catalog.reasons import MetricsReason
from vllm_watch.support.errors import FileError
from vllm_watch_parsers.metric_names import PROCESS_START


BUNDLED = Path(__file__).parent / "recordings" / "day"
"""The recording that comes with the package: ten minutes of a server that is overloaded and crashes."""


class LogWritten(NamedTuple):
    """The log grew. `at` is in seconds since the recording's start."""

    at: float
    data: bytes


class MetricsRead(NamedTuple):
    """A scrape: `body` is empty where there was no answer, and `status` is the reason."""

    at: float
    body: bytes
    status: str


RecordedEvent = LogWritten | MetricsRead

_PROCESS_START = re.compile(rb"^(%s )([0-9.e+]+)$" % PROCESS_START.encode(), re.MULTILINE)


class _Line(msgspec.Struct, frozen=True):
    t: float = 0.0
    started_unix: float | None = None
    log_bytes: int | None = None
    scrape: str | None = None
    status: int | str | None = None


class Recording:
    """
    A recording on disk, its timeline read and checked.

    Raises:
        FileError: The folder is no recording, or its timeline is not what this module's docstring says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = _read_timeline(folder / "timeline.jsonl")
        self._log = _read(folder / "vllm.log")
        self.started = self._lines[0].started_unix or 0.0
        self.seconds = self._lines[-1].t

    def events(self) -> Iterator[RecordedEvent]:
        """Yield what happened, in order of time."""
        offset = 0
        for line in self._lines[1:]:
            if line.log_bytes is not None:
                yield LogWritten(line.t, self._log[offset : offset + line.log_bytes])
                offset += line.log_bytes
            else:
                body = _unzip(self.folder / line.scrape) if line.scrape else b""
                yield MetricsRead(line.t, body, str(line.status))


def with_start_moved(body: bytes, seconds: float) -> bytes:
    """Return a body whose process started this many seconds later: a replay at another time is another start."""
    return _PROCESS_START.sub(lambda found: b"%s%.2f" % (found[1], float(found[2]) + seconds), body)


def scrape_failure(status: str) -> MetricsReason:
    """Return the reason for a recorded status."""
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


def _read_timeline(path: Path) -> tuple[_Line, ...]:
    decode = msgspec.json.Decoder(_Line).decode
    lines = []
    for number, text in enumerate(_read(path).splitlines(), 1):
        try:
            lines.append(decode(text))
        except msgspec.DecodeError as error:
            raise FileError(f"{path}:{number}: {error}") from error
    if not lines or lines[0].started_unix is None:
        raise FileError(f'{path}:1: the first line must be {{"started_unix": …}}')
    return tuple(lines)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: not readable, so {path.parent} is not a recording: {error.strerror}") from error


def _unzip(path: Path) -> bytes:
    try:
        return gzip.decompress(_read(path))
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: not a gzip file: {error}") from error
