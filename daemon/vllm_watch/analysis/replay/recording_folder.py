# SPDX-License-Identifier: Apache-2.0
"""
A folder with one recorded server: its log as the bytes came, and its /metrics as they were read.

It holds ``vllm.log``, ``timeline.jsonl`` and the bodies. The timeline's first line is ``{"started_unix": …}``; each
other is ``{"t": seconds, "log_bytes": n}`` (so many bytes more of the log) or
``{"t": seconds, "scrape": "metrics/0001.txt.gz" or null, "status": 200 or why not}``.
"""

from __future__ import annotations

import gzip
import zlib

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from vllm_watch.analysis.replay.recording import (
    LogWritten,
    MetricsRead,
    RecordedBenchmark,
    RecordedCommand,
    RecordedEvent,
    RecordedSources,
    server_name,
)
from vllm_watch.daemon.support.errors import FileError


TIMELINE = "timeline.jsonl"

_SCRAPE_INTERVAL = 5.0


class _Line(msgspec.Struct, frozen=True):
    t: float = 0.0
    started_unix: float | None = None
    log_bytes: int | None = None
    scrape: str | None = None
    status: int | str | None = None


class RecordingFolder:
    """
    A `Recording` in a folder; the folder's name is the server's.

    Raises:
        FileError: The folder is no recording, or its timeline is not what this module's docstring says.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        _check_is_recording(folder)
        self._lines = _read_timeline(folder / TIMELINE)
        self._log = _read(folder / "vllm.log")
        self.started = self._lines[0].started_unix or 0.0
        self.seconds = self._lines[-1].t
        self.servers: tuple[str, ...] = (folder.resolve().name,)
        self.sources: Mapping[str, RecordedSources] = {self.servers[0]: RecordedSources(True, _SCRAPE_INTERVAL)}
        self.benchmarks: tuple[RecordedBenchmark, ...] = ()
        self.command: RecordedCommand | None = None
        self.removed: Mapping[str, int] = MappingProxyType({})
        self.broken_off: str | None = None

    def events(self, server: str | None = None) -> Iterator[RecordedEvent]:
        """Yield what happened, in order of time."""
        server_name(self, server)
        offset = 0
        for line in self._lines[1:]:
            if line.log_bytes is not None:
                yield LogWritten(line.t, self._log[offset : offset + line.log_bytes])
                offset += line.log_bytes
            else:
                body = _unzip(self.path / line.scrape) if line.scrape else b""
                yield MetricsRead(line.t, body, str(line.status))


def _check_is_recording(folder: Path) -> None:
    """Raise `FileError` for a folder of recordings, which is none itself."""
    inside = sorted(path.parent.name for path in folder.glob(f"*/{TIMELINE}"))
    if inside and not (folder / TIMELINE).exists():
        one = folder / inside[0]
        raise FileError(f"{folder}: is no recording, but has {len(inside)} in it: give one, such as {one}")


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
