# SPDX-License-Identifier: Apache-2.0
"""
Files that were read to their end and then replaced by a new file: their writer may still write to the old file.

This module handles rotation by renaming when the writer opens the new file late or never.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources.log_file import LogFile, ReadCounts
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT


MAX_DRAINING = 16
"""Files with a successor that are kept open."""


@dataclass(slots=True)
class _DrainingFile:
    """A file that has a successor, the reader of its lines, and when it was last found to have grown."""

    log: LogFile
    reader: LogReader
    grown_at: float


class DrainingFiles:
    """Reads what is still written to files that have a successor; closes those that nobody writes to any more."""

    def __init__(self, counts: ReadCounts) -> None:
        self._counts = counts
        self._files: list[_DrainingFile] = []

    @property
    def logs(self) -> list[LogFile]:
        """The files, the oldest first."""
        return [file.log for file in self._files]

    @property
    def last_named(self) -> LogFile | None:
        """The newest file, if it still has a name. Raises `OSError`."""
        if not self._files or self._files[-1].log.is_unlinked():
            return None
        return self._files[-1].log

    def add(self, log: LogFile, reader: LogReader, now: float) -> None:
        """Keep a file for a while; of too many the oldest is closed."""
        self._files.append(_DrainingFile(log, reader, now))
        if len(self._files) > MAX_DRAINING:
            self._close(self._files[0])

    def read(self, now: float, *, is_successor_empty: bool) -> list[LogBatch]:
        """
        Read a piece of each file that has grown.

        If only the path's present file comes after the newest one, and is empty, the writer is silent or has not opened
        it yet.
        """
        batches: list[LogBatch] = []
        for file in list(self._files):
            try:
                if file.log.was_rewritten():
                    # It holds something else now, such as the next copy of the log.
                    self._counts.add(truncations=1)
                    self._close(file)
                    continue
                data = file.log.read()
            except OSError:
                self._counts.add(read_errors=1)
                data = b""
            if data:
                file.grown_at = now
                batch = file.reader.read(file.log.framer.feed(data), ArrivalTimes(now))
                self._counts.add(lines=batch.lines, size=len(data))
                batches.append(batch)
            elif now - file.grown_at >= ROTATE_WAIT and not (is_successor_empty and self._may_be_written(file)):
                self._close(file)
        return batches

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            self._counts.close(file.log)
        self._files.clear()

    def _close(self, file: _DrainingFile) -> None:
        self._files.remove(file)
        self._counts.add(skipped_bytes=file.log.framer.pending)
        self._counts.close(file.log)

    def _may_be_written(self, file: _DrainingFile) -> bool:
        """Tell whether a writer that is silent may still have this file open: it is the newest, and has a name."""
        try:
            return file is self._files[-1] and not file.log.is_unlinked()
        except OSError:
            return False
