# SPDX-License-Identifier: Apache-2.0
"""A file that waits to be read."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes, PrintedTimes
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.sources.startup_scan import times_of


@dataclass(slots=True)
class QueuedFile:
    """
    A file to be read, and when its lines were written.

    Attributes:
        log: The file.
        is_after_gap: Whether a file that came before it is lost.
        printed: The times of what the file held when it was found; of later lines the time is that of their arrival.
        printed_until: Up to which offset they hold.
        failing_since: When reading it first failed, if it has failed ever since.
    """

    log: LogFile
    is_after_gap: bool = False
    printed: PrintedTimes | None = None
    printed_until: int = 0
    failing_since: float | None = None

    def times(self, now: float) -> LineTimes:
        """Return the times of the lines that are read next."""
        if self.printed is not None and self.log.offset < self.printed_until:
            return self.printed
        return ArrivalTimes(now)

    def note_backlog(self, now: float) -> None:
        """Note that what the file holds now was written before it was found."""
        self.printed, self.printed_until = times_of(self.log, self.log.offset, now), self.log.size()
