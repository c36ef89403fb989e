# SPDX-License-Identifier: Apache-2.0
"""What is counted while a log's files are read."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_watch.reading.log_reader import LogBatch
from vllm_watch.sources.log_file import LogFile


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

    def close(self, log: LogFile) -> None:
        """Close a file, and keep what its framer counted."""
        self.long_lines += log.framer.long_lines
        self.nul_bytes += log.framer.nul_bytes
        log.close()
