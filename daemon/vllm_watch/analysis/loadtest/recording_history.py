# SPDX-License-Identifier: Apache-2.0
"""The history of a recorded server: each scrape is a point at its own time, as the daemon would have seen it."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.energy_and_cost import energy_reading
from vllm_watch.analysis.loadtest.history_builder import LOG_ALONE, HistoryBuilder, snapshot_point
from vllm_watch.analysis.loadtest.log_history import LogReplay, LogTokens
from vllm_watch.analysis.loadtest.server_history import EnergyReading, ServerHistory
from vllm_watch.analysis.replay.finished_log import LogBytes
from vllm_watch.analysis.replay.recording import GpusRead, LogWritten, MetricsRead, RecordedSources, Recording
from vllm_watch.analysis.replay.replay import Progress, recorded_scrape
from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts
from vllm_watch_parsers.events import EngineStats
from vllm_watch_parsers.scrape import MetricsReading


LOG_ALONE_AFTER = 15.0
"""After this time without a scrape the log's statistics lines make points."""


def read_recording(
    recording: Recording, source: str, server: str, progress: Progress = lambda _share: None
) -> ServerHistory:
    """
    Return the history of one server of a recording.

    Raises:
        FileError: The recording is not whole.
    """
    sources = recording.sources[server]
    # Of a server of which only the log was recorded it is the same as that of its log in a file.
    replay = LogReplay(server) if sources.interval is None else _Replay(server, sources)
    log = LogBytes()
    for event in recording.events(server):
        at = recording.started + event.at
        if isinstance(event, LogWritten):
            replay.read(_batch(log, event, at))
        elif isinstance(replay, _Replay):
            replay.add(event, at)
        progress(min(max(event.at, 0.0) / max(recording.seconds, 1e-9), 1.0))
    progress(1.0)
    broken_off = recording.broken_off
    warnings = [] if broken_off is None else [f"{broken_off[0].upper()}{broken_off[1:]}."]
    return replay.history(source, server, recording.started + recording.seconds, warnings)


def _batch(log: LogBytes, event: LogWritten, at: float) -> LogBatch:
    """Return what the lines report that were written at a moment."""
    if event.is_after_gap:
        log.lose_place()
    batch = log.read(event.data, ArrivalTimes(at))
    return batch._replace(is_history=event.is_history, is_after_gap=event.is_after_gap)


class _Replay:
    """Replays a server whose /metrics was recorded: each scrape is a point."""

    def __init__(self, name: str, sources: RecordedSources) -> None:
        self._state = ServerState(sources.settings(name))
        self._cost_per_hour = sources.cost_per_hour
        self._energy: EnergyReading | None = None
        self._tokens = LogTokens()
        self._builder = HistoryBuilder()
        self._reading: MetricsReading | None = None
        self._first_scraped_at: float | None = None
        self._scraped_at: float | None = None
        self._state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts(0, 0, 0)))

    def add(self, event: MetricsRead | GpusRead, at: float) -> None:
        """Take in a scrape, or what the GPUs report."""
        if isinstance(event, GpusRead):
            self._state.gpu.apply(event.use, event.interval)
            self._energy = energy_reading(event.use.at, event.use.gpus)
            return
        result = recorded_scrape(event, at)
        self._state.apply_scrape(result)
        if result.reading is not None:
            self._reading, self._scraped_at = result.reading, at
            self._first_scraped_at = self._first_scraped_at or at
        self._add_point(at, is_fresh=result.reading is not None)

    def read(self, batch: LogBatch) -> None:
        """Take in some lines of the log."""
        self._state.apply_log(batch)
        self._builder.started_with.note_events(batch.events)
        if not batch.is_history and any(isinstance(event, EngineStats) for _, event in batch.events):
            self._tokens.note(batch)
            if batch.end - (self._scraped_at or 0.0) > LOG_ALONE_AFTER:
                self._add_point(batch.end, is_fresh=True)

    def _add_point(self, at: float, *, is_fresh: bool) -> None:
        snapshot = self._state.snapshot(at)
        point = snapshot_point(snapshot, self._reading, is_fresh=is_fresh)._replace(energy=self._energy)
        if self._reading is None:
            point = point._replace(counters={**self._tokens.counters, **point.counters})
        self._builder.note(snapshot)
        self._builder.add(point)

    def history(self, source: str, name: str, _end: float, warnings: list[str]) -> ServerHistory:
        """Return the history; it ends with the last event."""
        has_metrics = self._reading is not None
        if self._first_scraped_at is not None:
            self._builder.forget_counters(self._tokens.counters, self._first_scraped_at)
        elif not self._tokens.has_statistics:
            self._builder.forget_counters(self._tokens.counters)
        if not has_metrics:
            warnings.append(LOG_ALONE)
        history = self._builder.build(source, name, has_metrics=has_metrics, warnings=warnings)
        return history._replace(cost_per_hour=self._cost_per_hour)
