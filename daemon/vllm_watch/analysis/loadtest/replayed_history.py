# SPDX-License-Identifier: Apache-2.0
"""
The history of a server of which there is only a log, in files or recorded: each statistics line is a point.

Of a finished log, also of one that was rotated, a point has its line's printed time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from vllm_watch.analysis.loadtest.energy_and_cost import energy_reading
from vllm_watch.analysis.loadtest.history_builder import (
    LOG_ALONE,
    LOG_ALONE_AFTER,
    HistoryBuilder,
    snapshot_point,
    worst_state,
)
from vllm_watch.analysis.loadtest.server_history import (
    COMPUTED,
    DRAFTS,
    GENERATED,
    GPU_MEMORY,
    EnergyReading,
    ServerHistory,
)
from vllm_watch.analysis.replay.finished_log import FinishedLog, LogBytes, Progress
from vllm_watch.analysis.replay.recording import GpusRead, LogWritten, MetricsRead, Recording
from vllm_watch.analysis.replay.replay import recorded_scrape
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.engine_log import name_of
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.support.errors import FileError
from vllm_watch_parsers.events import EngineStats, Failure, Lifecycle, SpecDecoding
from vllm_watch_parsers.scrape import MetricsReading


_STATISTICS = (EngineStats, SpecDecoding)
"""Lines that have numbers; that on drafts belongs to the line of statistics before it, and completes its point."""

_TELLING = (*_STATISTICS, Lifecycle, Failure)

_SILENCE_STEP = 10.0
_SETTLED_SECONDS = 1800.0
"""After this time since a log's last line no state changes any more."""

_USUAL_INTERVAL = 10.0
_LONGEST_INTERVAL = 60.0
_GAPS = 9
_ALIKE = 1.2
_PAUSE = 1.6
"""A gap of this many intervals is a pause without lines."""


def read_logs(paths: Sequence[str], source: str, name: str, progress: Progress = lambda _share: None) -> ServerHistory:
    """Return the history of one server's log, given as its parts; `FileError` if they are unreadable, or no log."""
    logs = sorted((FinishedLog(path) for path in paths), key=lambda log: log.end)
    replay = Replay(ServerSettings(name, has_log=True, metrics_interval=None))
    whole = sum(log.size for log in logs)
    done = 0
    for log in logs:
        for batch in log.read_apart():
            replay.read(batch)
            progress((done + log.share * log.size) / whole)
        done += log.size
    progress(1.0)
    if not replay.has_events:
        # The size of an empty log counts as one byte.
        is_empty = whole <= len(logs)
        reason = "is empty" if is_empty else "is no recording or result, and has no line of a vLLM server's log"
        raise FileError(f"{paths[0]}: {reason}")
    return replay.history(source, name)


class Replay:
    """
    Replays a server as the daemon would have seen it: each scrape is a point.

    While there is none, each line of statistics is one; so is a start, an end or a failure of a server of which only
    the log is known.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._state = ServerState(settings)
        self._state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts(lag=0)))
        self._is_log_alone = settings.metrics_interval is None
        self._tokens = LogTokens()
        self._builder = HistoryBuilder()
        self._energy: EnergyReading | None = None
        self._gpu_memory: dict[str, float] = {}
        self._reading: MetricsReading | None = None
        self._first_scraped_at: float | None = None
        self._scraped_at = self._end = 0.0
        self.has_events = False
        """Whether there was a line that shows what the server did."""

    def add(self, event: MetricsRead | GpusRead, at: float) -> None:
        """Take in a scrape, or what the GPUs report."""
        if isinstance(event, GpusRead):
            self._state.gpu.apply(event.use, event.interval)
            self._energy = energy_reading(event.use.at, event.use.gpus)
            self._gpu_memory = _memory_in_use(event.use.gpus)
            return
        result = recorded_scrape(event, at)
        self._state.apply_scrape(result)
        if result.reading is not None:
            self._reading, self._scraped_at = result.reading, at
            self._first_scraped_at = self._first_scraped_at or at
        self._add_point(at, is_fresh=result.reading is not None)

    def read(self, batch: LogBatch) -> None:
        """Take in lines of which one at most has an event; of history only what the server was started with."""
        if self._is_log_alone and not batch.is_history:
            self._note_silence(batch.end)
        self._state.apply_log(batch)
        self._builder.started_with.note_events(batch.events)
        if batch.is_history:
            return
        self._tokens.note(batch)
        self._end = max(self._end, batch.end)
        telling = _TELLING if self._is_log_alone else _STATISTICS
        if any(isinstance(event, telling) for _, event in batch.events):
            self.has_events = True
            if self._end - self._scraped_at > LOG_ALONE_AFTER:
                self._add_point(self._end, is_fresh=True)

    def history(self, source: str, name: str, end: float | None = None, warnings: Sequence[str] = ()) -> ServerHistory:
        """Return the history; that of a log alone ends at its last line, or at `end`, when it was watched no more."""
        if self._is_log_alone:
            if end is not None:
                self._note_silence(end)
                self._end = end
            self._add_point(self._end, is_fresh=False)
        if self._first_scraped_at is not None:
            self._builder.forget_counters(self._tokens.counters, self._first_scraped_at)
        elif not self._tokens.has_statistics:
            self._builder.forget_counters(self._tokens.counters)
        has_metrics = self._reading is not None
        said = warnings if has_metrics else [*warnings, _(LOG_ALONE)]
        return self._builder.build(source, name, has_metrics=has_metrics, warnings=said)

    def _note_silence(self, end: float) -> None:
        """Add the points since the last one at which the state changed without a line."""
        if not self._builder.points:
            return
        last = self._builder.points[-1]
        moment, state = last.at + _SILENCE_STEP, last.state
        while moment <= min(end - _SILENCE_STEP / 2, last.at + _SETTLED_SECONDS):
            now = worst_state(self._state.engine_states(moment).values())
            if now != state:
                state = now
                # Requests are printed one by one, and tokens with the next statistics line: both count from then on.
                self._add_point(moment, last.counters, is_fresh=False)
            moment += _SILENCE_STEP

    def _add_point(self, at: float, counters: Mapping[str, float] | None = None, *, is_fresh: bool) -> None:
        snapshot = self._state.snapshot(at)
        point = snapshot_point(snapshot, self._reading, is_fresh=is_fresh)
        point = point._replace(energy=self._energy, gauges={**point.gauges, **self._gpu_memory})
        if self._reading is None:
            point = point._replace(counters=counters or {**self._tokens.counters, **point.counters})
        self._builder.note(snapshot)
        self._builder.add(point)


def _memory_in_use(gpus: Sequence[ServerGpu]) -> dict[str, float]:
    values = [gpu.reading.values for gpu in gpus if gpu.reading is not None]
    used, whole = ("gpu_memory_used_bytes",), ("gpu_memory_total_bytes",)
    shares = [each[used] / each[whole] for each in values if used in each and each.get(whole)]
    return {GPU_MEMORY: max(shares)} if shares else {}


class LogTokens:
    """
    Adds up tokens and drafts by the statistics lines of one log, over all its engines.

    A line has tokens per second since the line before it, or, after a pause, over one interval: rate times seconds.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._gaps: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_GAPS))
        self.counters: dict[str, float] = {GENERATED: 0.0, COMPUTED: 0.0}

    @property
    def has_statistics(self) -> bool:
        """Whether there was any line of statistics: without one nothing was counted, and not 0."""
        return bool(self._at)

    def note(self, batch: LogBatch) -> None:
        """Take in the lines of statistics among some lines."""
        for at, event in batch.events:
            # V0's line of hit ratios has no requests.
            if isinstance(event, EngineStats) and event.requests_running is not None:
                seconds = self._seconds(name_of(event), at)
                self.counters[GENERATED] += (event.generation_tokens_per_second or 0.0) * seconds
                self.counters[COMPUTED] += (event.prompt_tokens_per_second or 0.0) * seconds
            elif isinstance(event, SpecDecoding):
                length, accepted = event.mean_acceptance_length, event.accepted_tokens
                # Each draft gives one token more than those of it that are accepted.
                if length is not None and accepted is not None and length > 1:
                    self.counters[DRAFTS] = self.counters.get(DRAFTS, 0.0) + accepted / (length - 1)

    def _seconds(self, engine: str, at: float) -> float:
        last = self._at.get(engine)
        self._at[engine] = at
        gaps = self._gaps[engine]
        gap = at - last if last is not None else 0.0
        if 1 <= gap <= _LONGEST_INTERVAL:
            gaps.append(gap)
        usual = _interval(gaps)
        return gap if 0 < gap <= _PAUSE * usual else usual


def _interval(gaps: Iterable[float]) -> float:
    """
    Return the interval between a log's lines: the shortest gap that came twice.

    Idle lines are left out, so one gap may be several intervals; and a line that was read late makes one too short.
    """
    return next((one for one, other in pairwise(sorted(gaps)) if other <= _ALIKE * one), _USUAL_INTERVAL)


def read_recording(
    recording: Recording, source: str, server: str, progress: Progress = lambda _share: None
) -> ServerHistory:
    """Return the history of one server of a recording."""
    sources = recording.sources[server]
    replay, log = Replay(sources.settings(server)), LogBytes()
    is_after_gap = False
    for event in recording.events(server):
        at = recording.started + event.at
        if isinstance(event, LogWritten):
            if event.is_after_gap:
                log.lose_place()
                is_after_gap = True
            for batch in log.read_apart(event.data, ArrivalTimes(at)):
                replay.read(batch._replace(is_history=event.is_history, is_after_gap=is_after_gap))
                is_after_gap = False
        else:
            replay.add(event, at)
        progress(min(max(event.at, 0.0) / max(recording.seconds, 1e-9), 1.0))
    progress(1.0)
    broken_off = recording.broken_off
    warnings = [] if broken_off is None else [f"{broken_off[0].upper()}{broken_off[1:]}."]
    history = replay.history(source, server, recording.started + recording.seconds, warnings)
    return history._replace(cost_per_hour=sources.cost_per_hour)
