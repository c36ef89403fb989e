# SPDX-License-Identifier: Apache-2.0
"""A log without /metrics beside it, line by line as the daemon would have seen it, as a server's history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.loadtest.history import ServerHistory
from vllm_watch.analysis.loadtest.history_builder import LOG_ALONE, HistoryBuilder
from vllm_watch.analysis.loadtest.log_tokens import LogTokens
from vllm_watch.analysis.loadtest.snapshot_point import snapshot_point, worst_state
from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts
from vllm_watch_parsers.events import EngineStats, Failure, Lifecycle


_SILENCE_STEP = 10.0
_SETTLED_SECONDS = 1800.0
"""This long after a log's last line no state changes any more."""


class LogReplay:
    """
    Replays one log and keeps what is new at each of its lines of statistics, starts, ends and failures.

    Args:
        name: The server's name.
    """

    def __init__(self, name: str) -> None:
        self._state = ServerState(ServerSettings(name, has_log=True, metrics_interval=None))
        self._state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts(lag=0)))
        self._tokens = LogTokens()
        self._builder = HistoryBuilder()
        self._end = 0.0
        self.has_events = False
        """Whether there was a line that shows what the server did."""

    def read(self, batch: LogBatch) -> None:
        """Take in some lines; of those that were written before a recording, only what the server was started with."""
        if batch.is_history:
            self._state.apply_log(batch)
            self._builder.started_with.note_events(batch.events)
            return
        for part in _parts(batch):
            self._note_silence(part.end)
            self._state.apply_log(part)
            self._tokens.note(part)
            self._builder.started_with.note_events(part.events)
            self._end = max(self._end, part.end)
            if any(isinstance(event, EngineStats | Lifecycle | Failure) for _, event in part.events):
                self.has_events = True
                self._add(self._end, is_fresh=True)

    def history(self, source: str, name: str, end: float | None = None, warnings: Sequence[str] = ()) -> ServerHistory:
        """
        Return the history.

        Args:
            source: Where the log is from.
            name: What the history is called.
            end: Until when the log was watched, if that is known: not before its last line.
            warnings: Sentences on what the source lacks.
        """
        if end is not None:
            self._note_silence(end)
            self._end = end
        self._add(self._end, is_fresh=False)
        if not self._tokens.has_statistics:
            self._builder.forget_counters(self._tokens.counters)
        return self._builder.build(source, name, has_metrics=False, warnings=[*warnings, LOG_ALONE])

    def _note_silence(self, end: float) -> None:
        """Add the points since the last one at which the state changed without a line."""
        if not self._builder.points:
            return
        last = self._builder.points[-1]
        # Requests are printed one by one, and tokens with the next statistics line: both count from that line on.
        counted = last.counters
        moment, state = last.at + _SILENCE_STEP, last.state
        while moment <= min(end - _SILENCE_STEP / 2, last.at + _SETTLED_SECONDS):
            now = worst_state(self._state.engine_states(moment).values())
            if now != state:
                state = now
                self._add(moment, counted, is_fresh=False)
            moment += _SILENCE_STEP

    def _add(self, at: float, counted: Mapping[str, float] | None = None, *, is_fresh: bool) -> None:
        snapshot = self._state.snapshot(at)
        point = snapshot_point(snapshot, None, is_fresh=is_fresh)
        self._builder.note(snapshot)
        counters = {**self._tokens.counters, **point.counters} if counted is None else counted
        self._builder.add(point._replace(counters=counters))


def _parts(batch: LogBatch) -> Iterator[LogBatch]:
    """Yield a batch in parts that end with a start, an end or a failure, so that each of them is seen."""
    start = 0
    for index, (at, event) in enumerate(batch.events):
        if isinstance(event, Lifecycle | Failure):
            yield batch._replace(events=batch.events[start : index + 1], requests={}, lines=1, size=0, end=at)
            start = index + 1
    rest = batch.events[start:]
    # The line of statistics ends the batch, unless the block did.
    stats_at = [at for at, event in rest if isinstance(event, EngineStats)]
    yield batch._replace(events=rest, end=stats_at[-1] if stats_at else batch.end)
