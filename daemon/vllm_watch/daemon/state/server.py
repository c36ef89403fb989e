# SPDX-License-Identifier: Apache-2.0
"""
The state of one server. Input: events of its log and scrapes of its /metrics. Output: a snapshot for any moment.

The code reads no clock: every time is an argument. So the same code runs live, on an old log and on a recording.
`precedence` decides which source gives a value.
"""

from __future__ import annotations

import math

from collections.abc import Iterable, Mapping

from vllm_watch.daemon.capacity.load import CapacityRange, EngineCapacity
from vllm_watch.daemon.capacity.saturation import Stretch
from vllm_watch.daemon.capacity.tracker import engine_capacity
from vllm_watch.daemon.catalog.reasons import LogReason
from vllm_watch.daemon.catalog.states import Cause, EngineState
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus
from vllm_watch.daemon.state.cross_check import CrossCheck
from vllm_watch.daemon.state.engine_log import GAUGES_OF_DRAFTS, GAUGES_OF_FIRST_LINE
from vllm_watch.daemon.state.engine_state import Judgement, server_state, why_down, why_saturated
from vllm_watch.daemon.state.engine_values import gauges_of_traffic
from vllm_watch.daemon.state.http_source import http_requests
from vllm_watch.daemon.state.latencies import latencies_of
from vllm_watch.daemon.state.precedence import (
    KV_CACHE_TOKENS,
    EngineNames,
    engine_state,
    excludes_cached,
    facts,
    gauge_sides,
    gauges,
    is_any_sleeping,
    kv_gauges,
    missing_metrics,
    position_acceptance,
    start_time,
    step_times,
)
from vllm_watch.daemon.state.present_life import PresentLife
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server_sources import ServerSettings, ServerSources
from vllm_watch.daemon.state.snapshot import (
    ConfigChange,
    Configuration,
    EngineSnapshot,
    Latencies,
    ServerEvent,
    ServerSnapshot,
)
from vllm_watch.daemon.state.source_status import WITHOUT_STATISTICS, log_reason, source_statuses
from vllm_watch.daemon.state.totals import (
    admission_rejections,
    engine_totals,
    former_totals,
    label_values_dropped,
    server_values,
    values_out_of_range,
)
from vllm_watch_parsers.exposition import EngineKey


class ServerState:
    """
    Takes in what one server's sources report, and gives snapshots of it.

    Not thread-safe: the caller holds a lock around each call.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._sources = ServerSources(settings)
        self._names = EngineNames(self._sources)
        self._cross_check = CrossCheck(self._sources)
        self.events = self._sources.events
        """Takes in errors of its GPUs, beside what its sources report."""
        self._was_away = False
        self.gpu = self._sources.gpu
        """Takes in what the driver says of its GPUs."""
        self.life = PresentLife(self._sources)
        """Takes in which process runs, and what a checkpoint keeps of it."""

    @property
    def settings(self) -> ServerSettings:
        """What is configured."""
        return self._sources.settings

    def restore_change(self, change: ConfigChange, ahead: float) -> None:
        """Take back what an earlier process knew of the server's last change of flags, at the wall clock's time."""
        self._sources.flags.restore(change.later(-ahead))

    def last_change(self, now: float, ahead: float) -> ConfigChange | None:
        """Return what the last start that changed any flags has changed, at the wall clock's time, in whole seconds."""
        self._sources.ahead = ahead
        change = self._configuration(now).change
        return None if change is None or change.at is None else change._replace(at=float(round(change.at)))

    def configure(
        self, capacity: CapacityRange | None, cost_per_hour: float | None, peak_flops: float | None = None
    ) -> None:
        """Take in settings that may change meanwhile (`ServerSettings`)."""
        self._sources.settings = self.settings._replace(
            capacity=capacity, cost_per_hour=cost_per_hour, peak_flops=peak_flops
        )

    def apply_log(self, batch: LogBatch) -> None:
        """Take in lines of the log."""
        log = self._sources.log
        if log is None:
            return
        starts, facts, known = log.life.starts, log.facts, (log.life.phase, log.facts_learnt)
        log.apply(batch)
        self.life.note_log(batch.end, is_start=log.facts is not facts, is_history=batch.is_history)
        news = log.life.take_news()
        self.events.note_log(() if batch.is_undated else news)
        if (log.life.phase, log.facts_learnt) != known and self.life.is_certain:
            _note_caches(self._sources, self._names.current(batch.end))
        if log.life.starts != starts:  # Access lines in the same batch may be the old server's.
            self._names.forget_engines()
            self._cross_check.forget()
            return
        if not batch.is_history:
            self._cross_check.compare_with_scrapes(batch)

    def apply_log_status(self, status: LogStatus) -> None:
        """Take in how reading the log goes."""
        self._sources.log_status = status

    def apply_scrape(self, result: ScrapeResult) -> None:
        """Take in an attempt to read /metrics."""
        sources, scrape = self._sources, self._sources.scrape
        if scrape is None:
            return
        restarts = scrape.restarts
        scrape.kv_cache_tokens = sources.logged_kv_cache_tokens()
        scrape.apply(result)
        if result.reading is not None:
            self.life.note_scrape(scrape.process.started_by(result.at), is_restart=scrape.restarts != restarts)
        if scrape.restarts != restarts:
            if sources.readable_log is None:
                self.events.add(ServerEvent(scrape.process.started_by(result.at), "start"))
            self._cross_check.forget()
            if sources.probe is not None:
                sources.probe.start_life()
        if result.reading is not None:
            sources.flags.note_metrics(result.reading.flags)
            is_log_idle = self._log_reason(result.at) == "idle"
            self._cross_check.compare_with_log(result.at, result.reading, is_log_idle=is_log_idle)
            self._names.note_scrape(result.reading)
            if self.life.is_certain:
                _note_caches(sources, self._names.current(result.at))

    def next_probe(self, now: float) -> float | None:
        """Return when the next probe is due, `now` if at once, `None` if there is none or the server sleeps."""
        sources, probe = self._sources, self._sources.probe
        if probe is None:
            return None
        is_sleeping = self._is_sleeping(now)
        is_away = is_sleeping or server_state(sources.log, sources.scrape, now) is not None
        if self._was_away and not is_away:
            probe.start_life()
        self._was_away = is_away
        if is_sleeping:
            return None  # It would hold the request; older releases would compute on memory that is given up.
        due = probe.due_at(_still_since(sources))
        return now if due is None else due

    def start_probe(self, now: float) -> str:
        """Take in that a probe starts; return the model's name, or nothing if no source has reported it."""
        if self._sources.probe is not None:
            self._sources.probe.start(now)
        return self._names.current(now)[0].model_name

    def apply_probe(self, result: ProbeResult) -> None:
        """Take in how a probe ended."""
        if self._sources.probe is not None:
            self._sources.probe.apply(result)

    def engine_states(self, now: float) -> Mapping[EngineKey, EngineState]:
        """Return the state of each engine at `now`, and note changes: a snapshot's, for a tenth of its cost."""
        whole = server_state(self._sources.log, self._sources.scrape, now)
        self._names.last = self._names.current(now)
        states = {key: whole or engine_state(self._sources, key, now).state for key in self._names.last}
        self.events.note_states(now, states)
        return states

    def snapshot(self, now: float, ahead: float = 0.0) -> ServerSnapshot:
        """Return what is known at `now` by the sources' clock, in times of the wall clock, which is `ahead` of it."""
        sources, settings, log, scrape = self._sources, self.settings, self._sources.log, self._sources.scrape
        sources.ahead = ahead
        keys = self._names.last = self._names.current(now)
        is_sleeping = is_any_sleeping(sources, keys, now)
        return ServerSnapshot(
            name=settings.name,
            at=now + ahead,
            version=sources.version,
            engine_generation=log.facts.engine_generation if log else None,
            model_name=keys[0].model_name,
            configuration=self._configuration(now),
            engines=self._engines(now),
            former=former_totals(sources, keys),
            sources=source_statuses(sources, now, is_sleeping=is_sleeping),
            starts=log.life.starts if log else (scrape.restarts if scrape else 0),
            start_time=start_time(sources),  # One by the server's own clock stays.
            http_requests=http_requests(
                log.totals.requests if log else None,
                scrape.reading.http_requests if scrape and scrape.reading else {},
                has_lines=log is not None and log.has_access_lines,
            ),
            admission_rejections=admission_rejections(sources),
            missing_metrics=missing_metrics(sources, now),
            values_out_of_range=values_out_of_range(sources),
            label_values_dropped=label_values_dropped(sources),
            scrape_long_lines=scrape.long_lines if scrape else None,
            log=log.counts() if log else None,
            tail=sources.log_status.tail if log else None,
            scrape_duration=scrape.last.duration if scrape and scrape.last else None,
            probe=None if is_sleeping or sources.probe is None else sources.probe.current(now),
            slo=settings.slo,
            labels=settings.labels,
            events=self._recent_events(now),
            gpus=sources.gpu.gpus(-math.inf if settings.keeps_stale else now),
            cost_per_hour=settings.cost_per_hour,
            gpu_xids=self.events.xids,
            of_server=server_values(sources, now),
        )

    def foresee(self, now: float) -> tuple[ServerSnapshot, frozenset[str]]:
        """
        Return what is known whatever its age, and the series that there will be besides once there is traffic.

        What sources have not shown stays absent, and so does what the log of an idle engine does not print.
        """
        sources, settings, scrape, log = self._sources, self.settings, self._sources.scrape, self._sources.readable_log
        names: set[str] = set()
        if scrape is not None and scrape.last is not None and scrape.last.reading is not None:
            for engine in scrape.last.reading.engines.values():
                names.update(gauges_of_traffic(engine))
        if log is not None and self._log_reason(now) not in WITHOUT_STATISTICS:
            names.update(() if log.engines else GAUGES_OF_FIRST_LINE)
            names.update(GAUGES_OF_DRAFTS if log.facts.num_speculative_tokens else ())
        sources.settings = settings._replace(keeps_stale=True)
        snapshot = self.snapshot(now)
        sources.settings = settings
        return snapshot, frozenset(names)

    def _configuration(self, now: float) -> Configuration:
        sources = self._sources
        is_starting = server_state(sources.log, sources.scrape, now) == "starting"
        return sources.flags.known(is_starting=is_starting, ahead=sources.ahead)

    def _engines(self, now: float) -> tuple[EngineSnapshot, ...]:
        whole = server_state(self._sources.log, self._sources.scrape, now)
        engines = [self._engine(key, whole, now) for key in self._names.last]
        self.events.note_states(now, {engine.key: engine.state for engine in engines})
        ahead = self._sources.ahead
        return tuple(
            engine._replace(
                state_since=self.events.since(engine.key.engine, ahead), stalls=self.events.stalls(engine.key.engine)
            )
            for engine in engines
        )

    def _engine(self, key: EngineKey, whole: EngineState | None, now: float) -> EngineSnapshot:
        """Return one engine; `whole` is the state of a server that is not up."""
        sources, log = self._sources, self._sources.log
        sides = gauge_sides(sources, key, now)
        judged = Judgement(whole) if whole else engine_state(sources, key, now)
        is_present = judged.state not in {"down", "starting"} or self.settings.keeps_stale
        shown = sources.shown_scrape(now) if is_present else None
        present = gauges(sources, key, sides, now) if is_present else {}
        of_start = facts(sources, key)
        started = log.facts.of_engine(key.engine) if log else None
        cause: Cause | None = judged.cause
        if judged.state == "saturated":
            cause = why_saturated(_waiting(sources, key, now), present, of_start)
        elif judged.state == "down":
            cause = why_down(log, sources.scrape)
        return EngineSnapshot(
            key=key,
            state=judged.state,
            gauges=present,
            prompt_excludes_cached=excludes_cached(sources, key, present.get("prompt_tokens_per_second")),
            position_acceptance=position_acceptance(sources, key, now) if is_present else (),
            totals=engine_totals(sources, key),
            latencies=latencies_of(shown, key, sources.version, ahead=sources.ahead) if shown else Latencies(),
            facts=of_start,
            startup_seconds=started.startup_seconds if started else {},
            disagreements=self._cross_check.disagreements(key, now),
            step_times=step_times(sources, key, now) if is_present else {},
            cause=cause,
            capacity=_capacity(sources, key, of_start, len(self._names.last)) if is_present else EngineCapacity(),
            kv=kv_gauges(sources, key, now) if is_present else {},
            by_source=sides,
        )

    def _recent_events(self, now: float) -> tuple[ServerEvent, ...]:
        sources = self._sources
        self.events.note_files(now, sources.log_status.tail)
        return self.events.until(now, sources.flags.whole_change, sources.ahead)

    def _log_reason(self, now: float) -> LogReason:
        return log_reason(self._sources, now, is_sleeping=self._is_sleeping(now))

    def _is_sleeping(self, now: float) -> bool:
        return is_any_sleeping(self._sources, self._names.current(now), now)


def _still_since(sources: ServerSources) -> float | None:
    """Return since when an engine with work stands still, once that is half of what makes a stall."""
    scrape = sources.scrape
    if scrape is None or scrape.read_at is None:
        return None
    at, enough = scrape.read_at, sources.settings.stall_after / 2
    still = (progress.still_seconds(at, progress.woke_at) for progress in scrape.progress.values())
    return min((at - seconds + enough for seconds in still if seconds >= enough), default=None)


def _note_caches(sources: ServerSources, keys: Iterable[EngineKey]) -> None:
    """Take in how large the KV caches are, for the server's next start."""
    digest, log = sources.flags.digest, sources.log
    if digest is None or (log is not None and log.life.phase == "starting"):
        return  # While it starts /metrics may be that of the last start.
    sizes = {key: facts(sources, key).get(KV_CACHE_TOKENS) for key in keys}
    known = {key: size for key, size in sizes.items() if size is not None}
    if known:
        sources.caches.note(digest, known)


def _capacity(sources: ServerSources, key: EngineKey, facts: Mapping[str, float], engines: int) -> EngineCapacity:
    """Return an engine's capacity; what was learnt of it in an earlier life of its server does not count."""
    scrape = sources.counted_scrape
    reading = scrape.reading if scrape else None
    # Other servers may have a part of a data parallel group's engines: /metrics shows those of this one.
    own = len(reading.engines) if reading else 0
    tracker = scrape.capacity.get(key) if scrape else None
    return engine_capacity(tracker, facts, sources.settings.capacity, own or facts.get("data_parallel_size") or engines)


def _waiting(sources: ServerSources, key: EngineKey, now: float) -> Stretch | None:
    """Return the time for which an engine's requests have waited until now, if /metrics shows it."""
    scrape = sources.deciding_scrape(now)
    tracker = scrape.capacity.get(key) if scrape else None
    return tracker.meter.present() if tracker else None
