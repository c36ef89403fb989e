# SPDX-License-Identifier: Apache-2.0
"""Recordings in one file, made by tests."""

from __future__ import annotations

import lzma

from pathlib import Path

import msgspec

from vllm_watch.analysis.replay.recording import LogWritten, Recording
from vllm_watch.analysis.replay.recording_lines import (
    FORMAT,
    CommandLine,
    Header,
    RecordingWriter,
    Sources,
    log_line,
    scrape_line,
)


STARTED = 1_800_000_000.0


def header(*servers: str, started: float = STARTED, interval: float | None = 5.0) -> Header:
    """Return a first line; of each server the log and /metrics are recorded, without an interval the log alone."""
    return Header(FORMAT, started, {name: Sources(log=True, scrape_interval=interval) for name in servers})


def write_lines(path: Path, *lines: bytes | dict[str, object], first: Header | None = None) -> Path:
    """Write a file with these lines after a first one."""
    rest = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
    path.write_bytes(lzma.compress(b"\n".join([msgspec.json.encode(first or header("a")), *rest, b""])))
    return path


def as_file(
    recording: Recording,
    path: Path,
    *,
    has_metrics: bool = True,
    has_log: bool = True,
    command: CommandLine | None = None,
) -> Path:
    """Write a recording into one file, with or without its log and its scrapes; each server has this command line."""
    said = Sources(log=has_log, scrape_interval=5.0 if has_metrics else None, command_line=command)
    with path.open("wb") as file:
        first = Header(FORMAT, recording.started, dict.fromkeys(recording.servers, said))
        writer = RecordingWriter(file, first)
        for name in recording.servers:
            for event in recording.events(name):
                if isinstance(event, LogWritten):
                    if has_log:
                        writer.add(log_line(event.at, name, event.data))
                elif not has_metrics:
                    continue
                elif event.body:
                    writer.add(scrape_line(event.at, name, event.duration, event.body))
                else:
                    writer.add(scrape_line(event.at, name, event.duration, b"", event.status))
        writer.end(recording.seconds, "interrupted", {})
    return path
