# SPDX-License-Identifier: Apache-2.0
"""
One server's state: events of its log and scrapes of its /metrics in, a snapshot of any moment out.

Pure: every time comes in as an argument. The same code runs live, over an old log and over a recording.

Where both sources are fresh the scrape decides, for it is exact and cannot be forged; where it is missing or stale
the log stands in at once. Counters come from one source and never mix two.
"""

from __future__ import annotations

import math

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.catalog.reasons import SourceName
from vllm_watch.catalog.states import EngineState
from vllm_watch.reading.log_reader import LogBatch
from vllm_watch.state.cross_check import CrossCheck, summed
from vllm_watch.state.engine_state import (
    FIRST_STATS_SECONDS,
    STALL_SECONDS,
    UNKNOWN,
    Judgement,
    has_silent_start,
    is_end_contradicted,
    judge_by_log,
    judge_by_metrics,
    judge_server,
    rests,
    woken_at,
)
from vllm_watch.state.engine_values import (
    Latencies,
    counters_of_log,
    counters_of_metrics,
    excludes_cached,
    facts_of,
    finished_of,
    gauges_of_log,
    gauges_of_metrics,
    histograms_of,
    latencies_of,
    positions_of_log,
    positions_of_metrics,
)
from vllm_watch.state.facts import CommandFacts
from vllm_watch.state.http_labels import http_request_key
from vllm_watch.state.http_source import HttpSource
from vllm_watch.state.hypothetical_traffic import LATER, lines_with_traffic, scrape_with_traffic
from vllm_watch.state.log_source import EngineLog, LogSource, name_of
from vllm_watch.state.probe_source import ProbeResult, ProbeSource
from vllm_watch.state.scrape_source import ScrapeResult, ScrapeSource
from vllm_watch.state.snapshot import (
    Comparison,
    EngineSnapshot,
    EngineTotals,
    HttpRequestKey,
    ProbeSnapshot,
    Reading,
    ServerSnapshot,
    SourceSnapshot,
    TailCounts,
)
from vllm_watch_parsers.events import AGGREGATED, EngineStats
from vllm_watch_parsers.scrape import DEFAULT_ENGINE, EngineKey, MetricsReading


COMPARED = (
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "prefix_cache_hit_ratio",
    "spec_decode_mean_acceptance_length",
)
"""The quantities that both sources' readings are shown of."""

_TIMED_OUT = "timeout"
_WITHOUT_STATISTICS = frozenset({"stats_disabled", "api_servers_more_than_one"})


class ServerSettings(NamedTuple):
    """
    What the configuration says of a server.

    `metrics_interval` is the seconds between scrapes, or `None` without /metrics, `probe_every` those between probes,
    or `None` without them. `slo` holds the objectives by
    series name. `keeps_stale` is for reading what has ended: no value is dropped for its age. `command` is what the
    server's command line says.
    """

    name: str
    has_log: bool
    metrics_interval: float | None
    stall_after: float = STALL_SECONDS
    slo: Mapping[str, float] = {}
    labels: Mapping[str, str] = {}
    keeps_stale: bool = False
    probe_every: float | None = None
    command: CommandFacts = CommandFacts()


class LogStatus(NamedTuple):
    """How reading the log goes: `reason` is ``ok`` or why it cannot be read."""

    is_up: bool
    reason: str
    tail: TailCounts


class _Named(NamedTuple):
    """What the log and the page have called the same model."""

    in_log: str
    on_page: str


class ServerState:
    """Not thread-safe: the caller holds a lock around each call."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._log = LogSource() if settings.has_log else None
        interval = settings.metrics_interval
        self._metrics = ScrapeSource(interval) if interval is not None else None
        self._probe = ProbeSource(settings.probe_every) if settings.probe_every is not None else None
        self._was_away = False
        self._log_status = LogStatus(is_up=False, reason="starting", tail=TailCounts())
        self._keys: tuple[EngineKey, ...] = ()
        self._agreements: dict[EngineKey, CrossCheck] = {}
        self._named = _Named("", "")
        self._http_source = HttpSource(has_log=settings.has_log)

    def apply_command(self, command: CommandFacts) -> None:
        """Take in what the command line says of a server that was started anew."""
        self.settings = self.settings._replace(command=command)

    def apply_log(self, batch: LogBatch, *, is_history: bool = False) -> None:
        """Take in lines of the log; history informs and is not counted."""
        if self._log is not None:
            starts = self._log.starts
            self._log.apply(batch, is_history=is_history)
            if self._log.starts != starts:  # Access lines that were read with it may be the old server's.
                self._http_source.begin_life()
                self._keys = ()
                self._agreements.clear()
            elif self._agreements and not is_history:
                self._hold_against_pages(self._log, batch)
            if batch.requests and self._log.starts == starts:
                self._http_source.note_lines()

    def apply_log_status(self, status: LogStatus) -> None:
        """Take in how reading the log goes."""
        self._log_status = status

    def apply_scrape(self, result: ScrapeResult) -> None:
        """Take in an attempt to read /metrics."""
        if self._metrics is not None:
            restarts = self._metrics.restarts
            self._metrics.apply(result)
            if self._metrics.restarts != restarts:
                self._http_source.begin_life()
                self._agreements.clear()
                if self._probe is not None:
                    self._probe.begin_anew()
            if result.reading is not None:
                self._http_source.note_page(result.at, result.reading, is_log_up=self._log_status.is_up)
            if self._log is not None and result.reading is not None:
                self._hold_against_log(self._log, result.at, result.reading)
                if result.reading.engines:
                    self._named = _Named(self._log.facts.model_name, next(iter(result.reading.engines)).model_name)

    def next_probe(self, now: float) -> float | None:
        """Return when the next probe is due, `now` if at once, `None` if there is none to make or the server rests."""
        if self._probe is None:
            return None
        is_resting = self._is_resting(now)
        is_away = is_resting or judge_server(self._log, self._metrics, now) is not None
        if self._was_away and not is_away:
            self._probe.begin_anew()
        self._was_away = is_away
        if is_resting:
            return None  # It would hold the request, or, before it kept requests out, compute on memory that is gone.
        due = self._probe.due_at()
        return now if due is None else due

    def begin_probe(self, now: float) -> str:
        """Take in that a probe begins; return the model's name, or nothing if no source has said it."""
        if self._probe is not None:
            self._probe.begin(now)
        return self._engine_keys(now)[0].model_name

    def apply_probe(self, result: ProbeResult) -> None:
        """Take in how a probe ended."""
        if self._probe is not None:
            self._probe.apply(result)

    def snapshot(self, now: float) -> ServerSnapshot:
        """Return what is known at `now`, in seconds since the epoch."""
        log, metrics = self._log, self._metrics
        server_state = judge_server(log, metrics, now)
        self._keys = self._engine_keys(now)
        engines = tuple(self._engine(key, server_state, now) for key in self._keys)
        is_recent = metrics is not None and self._shows_metrics(now)
        reading = metrics.reading if metrics is not None and is_recent else None
        return ServerSnapshot(
            name=self.settings.name,
            at=now,
            version=log.facts.version if log else None,
            engine_generation=log.facts.engine_generation if log else None,
            model_name=self._keys[0].model_name if self._keys else "",
            engines=engines,
            former=self._former(),
            sources=self._sources(now),
            comparisons=self._comparisons(now),
            starts=log.starts if log else (metrics.restarts if metrics else 0),
            start_time=self._start_time(),
            http_requests=self._http_requests(),
            admission_rejections=self._admission_rejections(),
            missing_metrics=metrics.missing() if metrics and reading else {},
            refused_values=self._refused(),
            dropped_names=self._dropped(),
            page_long_lines=metrics.long_lines if metrics else None,
            log=log.counts(math.inf if self.settings.keeps_stale else now) if log else None,
            tail=self._log_status.tail if log else None,
            scrape_duration=metrics.last.duration if metrics and metrics.last else None,
            probe=self._probe_snapshot(now),
            slo=self.settings.slo,
            labels=self.settings.labels,
        )

    def engine_states(self, now: float) -> frozenset[EngineState]:
        """Return the states that engines are in at `now`: a snapshot's, for a tenth of its cost."""
        server_state = judge_server(self._log, self._metrics, now)
        self._keys = self._engine_keys(now)
        return frozenset(server_state or self._judge(key, now).state for key in self._keys)

    def foresee(self, now: float) -> ServerSnapshot:
        """
        Return what there will be to see once there is traffic: what sources have not shown stays absent.

        Of a source that cannot be read nothing is made up. The state is of no use afterwards.
        """
        self.settings = self.settings._replace(keeps_stale=True)
        later = now + LATER
        log, metrics = self._log, self._metrics
        if metrics is not None and metrics.last is not None and metrics.last.reading is not None:
            metrics.apply(metrics.last._replace(at=later, reading=scrape_with_traffic(metrics.last.reading)))
        if log is not None and self._log_status.is_up and self._log_reason(now) not in _WITHOUT_STATISTICS:
            log.apply(lines_with_traffic(log, later))
        return self.snapshot(later)

    def _probe_snapshot(self, now: float) -> ProbeSnapshot | None:
        result = self._probe.current(now) if self._probe is not None and not self._is_resting(now) else None
        return None if result is None else ProbeSnapshot(result.reason == "ok", result.first_token_seconds)

    def _is_resting(self, now: float) -> bool:
        """Whether any engine was put to sleep or paused, by the last that was heard of it, however long ago."""
        return any(self._rests(key, now, self._metrics) for key in self._engine_keys(now))

    def _rests(self, key: EngineKey, now: float, metrics: ScrapeSource | None) -> bool:
        log, engine = (self._log, self._in_log(key)) if self._log_status.is_up else (None, None)
        return rests(log, engine, metrics, key, now)

    def _hold_against_pages(self, log: LogSource, batch: LogBatch) -> None:
        for at, event in batch.events:
            if isinstance(event, EngineStats) and event.requests_running is not None:
                name = name_of(event)
                for key, agreement in self._agreements.items():
                    if self._name_in_log(key) == name and name in log.engines:
                        agreement.add_line(at, log.engines[name].interval, event)

    def _hold_against_log(self, log: LogSource, at: float, reading: MetricsReading) -> None:
        engines = dict(reading.engines)
        if AGGREGATED in log.engines and len(engines) > 1:
            engines = {next(iter(engines))._replace(engine=AGGREGATED): summed(engines.values())}
        self._agreements = {key: self._agreements.get(key) or CrossCheck() for key in engines}
        is_idle = self._log_reason(at) == "idle"
        for key, agreement in self._agreements.items():
            said = log.engines.get(self._name_in_log(key))
            if said is not None and is_idle:
                agreement.add_silence(at, said.interval)
            agreement.add_page(at, engines[key])

    def _name_in_log(self, key: EngineKey) -> str:
        """Return what the log calls an engine: lines that are of all engines are of the only one, too."""
        log, reading = self._log, self._metrics.reading if self._metrics else None
        if log is None or key.engine in log.engines or AGGREGATED not in log.engines:
            return key.engine
        is_lone = len(reading.engines) == 1 if reading and reading.engines else key.engine == log.facts.lone_engine
        return AGGREGATED if is_lone else key.engine

    def _in_log(self, key: EngineKey) -> EngineLog | None:
        return self._log.engines.get(self._name_in_log(key)) if self._log else None

    def _disagreements(self, key: EngineKey, now: float) -> dict[str, bool]:
        # What is said of all engines together differs from the pages of all of them.
        agreement = self._agreements.get(key) or self._agreements.get(key._replace(engine=AGGREGATED))
        found = agreement.disagreements(now) if agreement else {}
        if self._log is not None and self._log_status.is_up and self._metrics is not None:
            is_contradicted = is_end_contradicted(self._log, self._metrics, now)
            if is_contradicted is not None:
                found["engine_state"] = is_contradicted
        return found

    def _shows_metrics(self, now: float) -> bool:
        return self._metrics is not None and (self._metrics.is_recent(now) or self.settings.keeps_stale)

    def _engine_keys(self, now: float) -> tuple[EngineKey, ...]:
        """Return the engines that are known, by the freshest source; while all are silent, the last ones."""
        log, metrics = self._log, self._metrics
        if metrics is not None and metrics.reading is not None and self._shows_metrics(now) and metrics.reading.engines:
            return tuple(metrics.reading.engines)
        if log is not None and log.engines:
            lone = log.facts.lone_engine or AGGREGATED
            names = {lone if engine == AGGREGATED else engine for engine in log.engines}
            return tuple(EngineKey(self._model_name(log), engine) for engine in sorted(names))
        if self._keys:
            return self._keys
        return (EngineKey(self._model_name(log) if log else self.settings.command.model_name, DEFAULT_ENGINE),)

    def _model_name(self, log: LogSource) -> str:
        """
        Return the model's name without a page.

        A page of the same model is remembered: it has the name that clients use, and the log often only the path.
        """
        said = log.facts.model_name
        if said and said == self._named.in_log:
            return self._named.on_page
        last = self._keys[0].model_name if self._keys else ""
        return said or last or self.settings.command.model_name

    def _engine(self, key: EngineKey, server_state: EngineState | None, now: float) -> EngineSnapshot:
        judged = Judgement(server_state) if server_state else self._judge(key, now)
        state = judged.state
        is_present = state not in {"down", "starting"} or self.settings.keeps_stale
        metrics = self._metrics if is_present and self._shows_metrics(now) else None
        latencies = latencies_of(metrics, key, self._log) if metrics else Latencies()
        gauges = self._gauges(key, now) if is_present else {}
        return EngineSnapshot(
            key=key,
            state=state,
            gauges=gauges,
            prompt_excludes_cached=self._excludes_cached(key, gauges.get("prompt_tokens_per_second")),
            position_acceptance=self._positions(key, now) if is_present else (),
            totals=self._totals(key),
            quantiles=latencies.quantiles,
            means=latencies.means,
            first_bounds=latencies.first_bounds,
            facts=facts_of(self._log, self._counted(), self.settings.command, key.engine),
            disagreements=self._disagreements(key, now),
            stall_reason=judged.stall_reason,
        )

    def _excludes_cached(self, key: EngineKey, reading: Reading | None) -> bool | None:
        return excludes_cached(reading, self._metrics, key, self._log.facts.version if self._log else None)

    def _judge(self, key: EngineKey, now: float) -> Judgement:
        log, metrics, stall_after = self._log, self._metrics, self.settings.stall_after
        if self._rests(key, now, metrics if metrics is not None and metrics.is_recent(now) else None):
            return Judgement("sleeping")
        woke_at = woken_at(log, metrics, key)
        engine = metrics.reading.engines.get(key) if metrics and metrics.reading else None
        progress = metrics.progress.get(key) if metrics else None
        is_recent = metrics is not None and metrics.is_recent(now)
        if metrics is not None and metrics.is_fresh(now) and metrics.is_before_first_request:
            return Judgement("idle")
        if metrics is not None and metrics.is_fresh(now) and engine and progress:
            return judge_by_metrics(engine, progress, metrics.read_at or now, stall_after, woke_at)
        if log is not None and self._log_status.is_up:
            said = judge_by_log(self._in_log(key), log, now, stall_after, woke_at)
            if said.state != "unknown" and not (said.state == "idle" and self._is_lost(now)):
                return said
        if is_recent and metrics is not None and engine and progress:
            return judge_by_metrics(engine, progress, metrics.read_at or now, stall_after, woke_at)
        return UNKNOWN

    def _is_lost(self, now: float) -> bool:
        """Whether no server has answered for a while where one did, or one hangs: its silence does not mean idle."""
        metrics = self._metrics
        if metrics is None or metrics.last is None or metrics.is_recent(now):
            return False
        return metrics.last.reason == _TIMED_OUT or (metrics.is_unanswered and metrics.reading is not None)

    def _log_gauges(self, key: EngineKey, now: float) -> dict[str, Reading]:
        log, engine = self._log, self._in_log(key)
        if log is None or engine is None:
            return {}
        return gauges_of_log(log, engine, now, keeps_stale=self.settings.keeps_stale)

    def _metrics_gauges(self, key: EngineKey, now: float) -> dict[str, Reading | None]:
        if self._metrics is None or not self._shows_metrics(now):
            return {}
        return gauges_of_metrics(self._metrics, key)

    def _gauges(self, key: EngineKey, now: float) -> dict[str, Reading]:
        said_by_log = self._log_gauges(key, now)
        said_by_metrics = self._metrics_gauges(key, now)
        metrics_decide = self._metrics_decide(now)
        if said_by_log and not metrics_decide:
            chosen: dict[str, Reading | None] = dict(said_by_log)
        else:
            # What a page cannot say, the log may; where a page says "nothing to tell", it is not asked.
            chosen = {**said_by_log, **said_by_metrics}
        token = self._token_reading(key)
        if token is not None:
            chosen["last_token_timestamp_seconds"] = token
        return {name: reading for name, reading in chosen.items() if reading is not None}

    def _metrics_decide(self, now: float) -> bool:
        metrics = self._metrics
        return metrics is not None and (
            metrics.is_fresh(now) or (self.settings.keeps_stale and self._shows_metrics(now))
        )

    def _token_reading(self, key: EngineKey) -> Reading | None:
        readings = []
        progress = self._metrics.progress.get(key) if self._metrics else None
        if progress is not None and progress.token_at is not None:
            readings.append(Reading(progress.token_at, progress.token_at, "metrics"))
        token_at = self._log.token_at.get(self._name_in_log(key)) if self._log else None
        if token_at is not None:
            readings.append(Reading(token_at, token_at, "log"))
        return max(readings, default=None)

    def _positions(self, key: EngineKey, now: float) -> tuple[Reading | None, ...]:
        if self._metrics is not None and self._metrics_decide(now):
            ratios = positions_of_metrics(self._metrics, key)
            if ratios is not None:
                return ratios
        engine = self._in_log(key)
        return positions_of_log(engine, now, keeps_stale=self.settings.keeps_stale) if engine else ()

    def _counted(self) -> ScrapeSource | None:
        """
        Return the pages that counters are of: the last ones of a server that is gone, too.

        What it counted just before its end would be lost otherwise, for Prometheus comes later. They last until the
        next life has a page of its own, or is ready and has not shown one yet.
        """
        metrics, log = self._metrics, self._log
        if metrics is None or metrics.read_at is None:
            return None
        has_next = log is not None and log.phase == "ready" and (log.started_at or 0.0) > metrics.read_at
        return None if has_next else metrics

    def _totals(self, key: EngineKey) -> EngineTotals:
        """Return what an engine has counted, of one source."""
        if self._metrics is None:
            return EngineTotals(key, counters_of_log(self._log, self._name_in_log(key)) if self._log else {}, {}, {})
        counted = self._counted()
        if counted is None:
            return EngineTotals(key, {}, {}, {})
        histograms = histograms_of(counted, key, self._log)
        return EngineTotals(key, counters_of_metrics(counted, key), finished_of(counted, key), histograms)

    def _former(self) -> tuple[EngineTotals, ...]:
        counted = self._counted()
        reading = counted.reading if counted else None
        return tuple(self._totals(key) for key in (reading.engines if reading else ()) if key not in self._keys)

    def _admission_rejections(self) -> dict[tuple[str, str], Reading]:
        counted = self._counted()
        newest = counted.window.newest if counted else None
        if newest is None:
            return {}
        rejections = newest.reading.admission_rejections
        return {key: Reading(value, newest.at, "metrics") for key, value in rejections.items()}

    def _sources(self, now: float) -> tuple[SourceSnapshot, ...]:
        sources = []
        if self._log is not None:
            last = max((engine.stats_at for engine in self._log.engines.values()), default=None)
            sources.append(SourceSnapshot("log", self._log_status.is_up, self._log_reason(now), last))
        if self._metrics is not None:
            result = self._metrics.last
            is_up = result is not None and result.reading is not None
            reason = result.reason if result else "starting"
            sources.append(SourceSnapshot("metrics", is_up, reason, self._metrics.read_at))
        if self._probe is not None:
            probed = "sleeping" if self._is_resting(now) else self._probe.reason(now)
            sources.append(SourceSnapshot("probe", probed == "ok", probed, self._probe.succeeded_at))
        return tuple(sources)

    def _log_reason(self, now: float) -> str:
        """Say why the log is quiet, or ``ok`` if it is not."""
        log, status = self._log, self._log_status
        if log is None or not status.is_up:
            return status.reason
        if log.phase == "starting":
            return "silent" if has_silent_start(log, now) else "starting"
        if log.has_ended:
            return "ended"
        if log.has_several_api_servers:
            return "api_servers_more_than_one"
        if log.facts.log_stats_disabled:
            return "stats_disabled"
        engines = log.engines.values()
        if any(engine.is_fresh(now) for engine in engines):
            return "ok"
        if self._is_resting(now):
            return "sleeping"
        if not engines:
            return self._reason_without_stats(log, now)
        if all(engine.ended_idle() for engine in engines):
            return "idle"
        return "stalled" if any(engine.ended_still() for engine in engines) else "silent"

    def _reason_without_stats(self, log: LogSource, now: float) -> str:
        if self.settings.command.has_several_api_servers:
            return "api_servers_more_than_one"
        if self.settings.command.log_stats_disabled:
            return "stats_disabled"
        if log.first_served_at == -math.inf:
            return "silent"
        if log.first_served_at is None:
            return "idle" if log.phase == "ready" else "no_statistics_yet"
        is_waiting = now - log.first_served_at <= FIRST_STATS_SECONDS
        return "no_statistics_yet" if is_waiting else "stats_disabled"

    def _comparisons(self, now: float) -> tuple[Comparison, ...]:
        found = []
        for key in self._keys:
            sides: tuple[tuple[SourceName, Mapping[str, Reading | None]], ...] = (
                ("log", dict(self._log_gauges(key, now))),
                ("metrics", self._metrics_gauges(key, now)),
            )
            for source, gauges in sides:
                for quantity in COMPARED:
                    reading = gauges.get(quantity)
                    if reading is not None:
                        found.append(Comparison(key, source, quantity, reading))
        return tuple(found)

    def _start_time(self) -> Reading | None:
        """Return the later start, with who said it: the log's is by our clock, the page's by the server's."""
        said_by_log = self._log.started_at if self._log else None
        start = self._metrics.start if self._metrics else None
        if start is not None and (said_by_log is None or start.at >= said_by_log):
            return Reading(start.said, start.at, "metrics")
        return None if said_by_log is None else Reading(said_by_log, said_by_log, "log")

    def _http_requests(self) -> dict[HttpRequestKey, float]:
        if self._log is not None and not self._http_source.is_page:
            return dict(self._log.requests)
        reading = self._metrics.reading if self._metrics else None
        counted: Counter[HttpRequestKey] = Counter()
        for request, count in (reading.http_requests if reading else {}).items():
            counted[http_request_key(request.method, request.handler, request.status)] += int(count)
        return dict(counted)

    def _dropped(self) -> dict[SourceName, int]:
        dropped: dict[SourceName, int] = {}
        if self._log is not None:
            dropped["log"] = self._log.dropped
        if self._metrics is not None:
            dropped["metrics"] = self._metrics.dropped
        return dropped

    def _refused(self) -> dict[tuple[SourceName, str], int]:
        refused: dict[tuple[SourceName, str], int] = {}
        if self._log is not None:
            refused.update({("log", quantity): count for quantity, count in self._log.refused.items()})
        if self._metrics is not None:
            refused.update({("metrics", quantity): count for quantity, count in self._metrics.refused.items()})
        return refused


__all__ = ["LogStatus", "ServerSettings", "ServerState"]
