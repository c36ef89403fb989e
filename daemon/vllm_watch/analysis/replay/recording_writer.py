# SPDX-License-Identifier: Apache-2.0
"""
Writes a recording into one file (`recording_lines` has the format).

What was added is held in memory until `write_out`, which writes it as one complete xz stream: whoever kills the writer
loses what came since then, and nothing else.
"""

from __future__ import annotations

import lzma

from collections.abc import Mapping
from typing import IO

from vllm_watch.analysis.replay.recording_lines import Benchmark, Command, Header, Line, RecordedGpus, encoded


MAX_HELD = 4 * 1024 * 1024
"""Bytes after which what is held is written out. Bodies repeat, so that this much compresses well."""

# The fastest preset: bodies repeat each other, and a slower one gains 6 %. The machine has a server to run.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": MAX_HELD}]


class RecordingWriter:
    """
    Adds lines to a file, each after the one before it; not for several threads at a time.

    Each method raises `OSError` if the file cannot be written.

    Args:
        file: Where to write; not closed.
        header: The first line, written at once.
    """

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file = file
        self._held = [encoded(header)]
        self._held_size = 0
        self._last = 0.0
        self.size = 0
        """Bytes in the file."""
        self.write_out()

    def add_log(self, t: float, server: str, data: bytes, *, is_after_gap: bool = False) -> None:
        """Add complete lines of a log."""
        text, rest = _text(data)
        self._add(Line(t=self._after(t), server=server, gap=is_after_gap, log=text, log_base64=rest))

    def add_history(self, t: float, server: str, data: bytes) -> None:
        """Add lines that were written before the recording: `t` is negative."""
        text, rest = _text(data)
        self._add(Line(t=min(round(t, 3), 0.0), server=server, history=text, history_base64=rest))

    def add_scrape(self, t: float, server: str, duration: float, body: bytes) -> None:
        """Add a scrape and what was answered."""
        text, rest = _text(body)
        self._add(Line(t=self._after(t), server=server, status=200, duration=duration, body=text, body_base64=rest))

    def add_failed_scrape(self, t: float, server: str, duration: float, reason: str) -> None:
        """Add a scrape without a complete answer."""
        self._add(Line(t=self._after(t), server=server, status=reason, duration=duration))

    def add_gpus(self, t: float, server: str, gpus: RecordedGpus) -> None:
        """Add a reading of a server's GPUs."""
        self._add(Line(t=self._after(t), server=server, gpus=gpus))

    def add_command(self, t: float, command: Command) -> None:
        """Add the command that ran meanwhile."""
        self._add(Line(t=self._after(t), command=command))

    def add_benchmark(self, t: float, file: str, content: str) -> None:
        """Add a result that the command left."""
        self._add(Line(t=self._after(t), benchmark=Benchmark(file, content)))

    def end(self, t: float, reason: str, removed: Mapping[str, int]) -> None:
        """Add how much private data was removed and why the recording ended, and write all out."""
        self._add(Line(t=self._after(t), removed=removed))
        self._add(Line(t=self._after(t), end=reason))
        self.write_out()

    def write_out(self) -> None:
        """Write what is held as one xz stream."""
        if self._held:
            packed = lzma.compress(b"".join(self._held), filters=_FILTERS)
            self._held, self._held_size = [], 0
            self._file.write(packed)
            self._file.flush()
            self.size += len(packed)

    def _add(self, line: Line) -> None:
        self._held.append(encoded(line))
        self._held_size += len(self._held[-1])
        if self._held_size >= MAX_HELD:
            self.write_out()

    def _after(self, t: float) -> float:
        """Return a time that is not before the last line's, in whole milliseconds."""
        self._last = max(round(t, 3), self._last)
        return self._last


def _text(data: bytes) -> tuple[str | None, bytes | None]:
    """Return bytes as text, or as they are where they are none."""
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, data
