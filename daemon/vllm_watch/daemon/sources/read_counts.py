# SPDX-License-Identifier: Apache-2.0
"""What is counted while a log's files are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.state.snapshot import TailCounts, WatchMode


@dataclass(slots=True)
class ReadCounts:
    """What has been read and lost of a server's log files so far; the fields are those of `TailCounts`."""

    lines: int = 0
    size: int = 0
    truncations: int = 0
    rotations: int = 0
    files_lost: int = 0
    long_lines: int = 0
    nul_bytes: int = 0
    skipped_bytes: int = 0
    read_errors: int = 0

    def add(self, batch: LogBatch, size: int) -> None:
        """Count lines, and the bytes that they were read from."""
        self.lines += batch.lines
        self.size += size

    def with_open(
        self, logs: Iterable[LogFile], lag: int | None, ignored_files: int, watch_mode: WatchMode | None
    ) -> TailCounts:
        """
        Return all counts.

        Args:
            logs: The files that are open: what their framers have counted is added.
            lag: Bytes that are not read yet, `None` if that is not known.
            ignored_files: Files that match and are not followed.
            watch_mode: How changes of the files are noticed.
        """
        long_lines, nul_bytes = self.long_lines, self.nul_bytes
        for log in logs:
            long_lines += log.framer.long_lines
            nul_bytes += log.framer.nul_bytes
        return TailCounts(
            lines=self.lines,
            size=self.size,
            lag=lag,
            truncations=self.truncations,
            rotations=self.rotations,
            files_lost=self.files_lost,
            long_lines=long_lines,
            nul_bytes=nul_bytes,
            skipped_bytes=self.skipped_bytes,
            read_errors=self.read_errors,
            ignored_files=ignored_files,
            watch_mode=watch_mode,
        )

    def close(self, log: LogFile) -> None:
        """Close a file, and keep what its framer counted."""
        self.long_lines += log.framer.long_lines
        self.nul_bytes += log.framer.nul_bytes
        log.close()
