# SPDX-License-Identifier: Apache-2.0
"""Reads a log as the daemon does, and keeps its lines without what is private."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy

from vllm_watch.analysis.recorder.log_redaction import LogRedactor
from vllm_watch.analysis.recorder.private_text import PrivateText
from vllm_watch.daemon.reading.framing import CUT
from vllm_watch.daemon.reading.log_reader import KeptLines, LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes
from vllm_watch_parsers.events import Lifecycle, StartupFact


_LONG = b" [removed: the line is too long]"


class RedactingReader(LogReader):
    """
    A `LogReader` whose batches have their lines.

    A copy of it continues another file, as copies of a `LogReader` do.

    Args:
        private: Removes what is private; used by one thread.
    """

    def __init__(self, private: PrivateText) -> None:
        super().__init__()
        self._private = private
        self._redactor = LogRedactor(private)

    def __copy__(self) -> RedactingReader:
        """Return a reader that knows what is open, and goes its own way from here."""
        other = RedactingReader.__new__(RedactingReader)
        other.__dict__.update({**self.__dict__, "_redactor": copy(self._redactor)})
        return other

    def read(self, lines: Sequence[bytes], times: LineTimes) -> LogBatch:
        """Read lines and keep what is left of them; what they report is of use only where they are history."""
        kept = self._redacted(self.as_written(lines))
        if isinstance(times, ArrivalTimes):
            size = sum(map(len, lines)) + len(lines)
            return LogBatch((), {}, len(lines), size, times.at(""), 0, kept=kept)
        return super().read(lines, times)._replace(kept=kept)

    def start_file(self) -> None:
        """Continue at the start of a file."""
        super().start_file()
        self._redactor.start_file()

    def lose_place(self) -> None:
        """Continue elsewhere."""
        super().lose_place()
        self._redactor.lose_place()

    def skip_lines(self, lines: Sequence[bytes]) -> None:
        """Read lines only to learn what is open after them."""
        self._redacted(self.as_written(lines))
        super().skip_lines(lines)

    def _redacted(self, lines: Sequence[bytes]) -> KeptLines:
        self._private.counts = Counter()
        kept = tuple(self._redactor.redact(_without_mark(line)) for line in lines)
        return KeptLines(kept, self._private.counted)


def start_lines(batch: LogBatch) -> Iterator[tuple[float, bytes]]:
    """Yield those of a batch's lines that tell how the server was started, each record with its time."""
    if batch.kept is None:
        return
    reader = LogReader()
    times = iter([timed.at for timed in batch.events])
    record: list[bytes] = []
    at, is_wanted = batch.end, False
    for line in batch.kept.lines:
        record = [*record, line] if reader.is_in_record else [line]
        for timed in reader.read([line], ArrivalTimes(batch.end)).events:
            at = next(times, batch.end)
            is_wanted = is_wanted or isinstance(timed.event, StartupFact | Lifecycle)
        if is_wanted and not reader.is_in_record:
            yield at, b"".join(line + b"\n" for line in record)
            is_wanted = False


def _without_mark(line: bytes) -> bytes:
    """Return a line that was shortened with words for the mark, which is no text."""
    start, mark, end = line.partition(CUT)
    return start + _LONG + end if mark else line
