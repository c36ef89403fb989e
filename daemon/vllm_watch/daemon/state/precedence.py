# SPDX-License-Identifier: Apache-2.0
"""
Which source decides a value: the rule of the whole program.

If both sources are fresh, the scrape is used: it is exact and cannot be forged. If it is missing or stale, the log is
used at once. The log may add a quantity that /metrics does not have. If /metrics has the quantity but no value for it
now (a hit ratio without queries), no value is shown. All counters come from one source: see `totals`.
"""

from __future__ import annotations

import math
import re

from collections.abc import Iterable, Mapping

from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.state.configuration import LEAST_DRAFTED, SEATS
from vllm_watch.daemon.state.engine_state import (
    UNKNOWN,
    Judgement,
    is_left_over,
    state_from_log,
    state_from_scrape,
    was_started_after,
    woken_at,
)
from vllm_watch.daemon.state.engine_values import gauges_of_scrape, kv_gauges_of_scrape, positions_of_scrape
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.sleep_reports import is_still_asleep, later
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch.daemon.state.step_times import StepClass, StepTime
from vllm_watch_parsers.events import AGGREGATED
from vllm_watch_parsers.exposition import DEFAULT_ENGINE, EngineKey
from vllm_watch_parsers.kv_transfer import KvKey
from vllm_watch_parsers.readings import MetricsReading


_TIMED_OUT = "timeout"
_BUSY = ("gpu_busy_ratio",)
_AT_WORK = 0.5
"""How busy the busiest GPU of an engine with work is at least."""

KV_CACHE_TOKENS = "kv_cache_capacity_tokens"
_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})")
_FIRST_WITHOUT_CACHED = (0, 16)


def missing_metrics(sources: ServerSources, now: float) -> dict[str, bool]:
    """Return for each required quantity whether the shown scrape lacks it; empty if no scrape is shown."""
    scrape = sources.shown_scrape(now)
    return scrape.missing() if scrape else {}


def engine_state(sources: ServerSources, key: EngineKey, now: float) -> Judgement:
    """
    Return the state of an engine of a server that is up.

    The order: a sleep that any source reports, the last scrape if it is fresh, the log, the last scrape if it is
    recent.
    """
    log, scrape, stall_after = sources.log, sources.scrape, sources.settings.stall_after
    recent = scrape if scrape is not None and scrape.is_recent(now) else None
    if is_sleeping(sources, key, recent, now):
        return Judgement("sleeping")
    if recent is not None and recent.is_fresh(now) and recent.is_before_first_request:
        return Judgement("idle")
    woke_at = woken_at(log, scrape, key)
    by_scrape = None if recent is None else state_from_scrape(recent, key, stall_after, woke_at)
    if recent is not None and by_scrape is not None and by_scrape.state == "stalled" and is_left_over(recent, key):
        by_scrape = _by_witness(sources, by_scrape, now)
    if recent is not None and recent.is_fresh(now) and by_scrape is not None:
        return by_scrape
    readable = sources.readable_log
    if readable is not None:
        by_log = state_from_log(sources.engine_log(key), readable, now, stall_after, woke_at)
        if by_log.state != "unknown" and not (by_log.state == "idle" and _is_unreachable(scrape, now)):
            return by_log
    return by_scrape or UNKNOWN


def is_any_sleeping(sources: ServerSources, keys: Iterable[EngineKey], now: float) -> bool:
    """Return whether any engine was put to sleep or paused, by the last reports, however old they are."""
    return any(is_sleeping(sources, key, sources.scrape, now) for key in keys)


def is_sleeping(sources: ServerSources, key: EngineKey, scrape: ScrapeSource | None, now: float) -> bool:
    """
    Return whether the log or the given scrapes report that an engine was put to sleep or paused.

    Tokens in either source end it, and so does a scrape that says awake after one that did not. Where a log that
    prints each pause has printed none, the counts of calls in /metrics, which have no order, prove none either.
    """
    log = sources.readable_log
    engine = sources.engine_log(key) if log is not None else None
    served = engine.served if engine is not None else None
    logged = None if log is None or was_started_after(scrape, log.sleep.since) else log.sleep.since
    woke_at, slept_until = log.sleep.woke_at if log is not None else -math.inf, -math.inf
    scraped: list[float | None] = []
    progress = scrape.progress.get(key) if scrape is not None else None
    if progress is not None:
        tokens, slept_until = progress.served, progress.slept_until
        if tokens is None or progress.asleep_since is None or tokens.start < progress.asleep_since:
            scraped.append(progress.asleep_since)
        served = later(served, tokens)
    if scrape is not None and (log is None or not log.sleep.prints_pauses or log.sleep.since is not None):
        scraped.append(scrape.sleep.since)
    reports = [logged, *(since for since in scraped if since is not None and since > woke_at)]
    return any(is_still_asleep(since, served, now) for since in reports if since is not None and since > slept_until)


def _by_witness(sources: ServerSources, judged: Judgement, now: float) -> Judgement:
    """Return the state of an engine of which only gauges say that it has work, by how busy its GPUs are."""
    scrape = sources.scrape
    if scrape is None or len(scrape.progress) > 1:
        return UNKNOWN  # Which of its engines a GPU works for is not known.
    readings = [used.reading for used in sources.gpu.gpus(now) if used.reading is not None]
    busy = [reading.values[_BUSY] for reading in readings if _BUSY in reading.values]
    if not busy:
        return UNKNOWN
    return judged if max(busy) >= _AT_WORK else Judgement("idle")


def _is_unreachable(scrape: ScrapeSource | None, now: float) -> bool:
    """Return whether a server that answered no longer does, or hangs: then silence in the log does not mean idle."""
    if scrape is None or scrape.last is None or scrape.is_recent(now):
        return False
    return scrape.last.reason == _TIMED_OUT or (scrape.is_unanswered and scrape.reading is not None)


GaugeSides = Mapping[SourceName, Mapping[str, Reading | None]]
"""An engine's gauges by each source, whether or not it decides; `None` is a quantity without a value."""


def gauge_sides(sources: ServerSources, key: EngineKey, now: float) -> GaugeSides:
    """Return an engine's gauges by the log and by /metrics."""
    log, engine, scrape = sources.log, sources.engine_log(key), sources.shown_scrape(now)
    logged: dict[str, Reading] = {}
    if log is not None and engine is not None:
        logged = engine.gauges(now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)
        if log.hides_prefix_hit_ratio:
            logged.pop("prefix_cache_hit_ratio", None)
    return {"log": logged, "metrics": {} if scrape is None else gauges_of_scrape(scrape, key, ahead=sources.ahead)}


def gauges(sources: ServerSources, key: EngineKey, sides: GaugeSides, now: float) -> dict[str, Reading]:
    """Return an engine's gauges, each by the source that decides it."""
    chosen: dict[str, Reading | None] = dict(sides["log"])
    if not chosen or sources.deciding_scrape(now) is not None:
        chosen.update(sides["metrics"])
    chosen["last_token_timestamp_seconds"] = _last_token(sources, key)
    achieved, peak = chosen.get("achieved_flops_per_second"), sources.settings.peak_flops
    if achieved is not None and peak is not None:
        chosen["flops_utilization_ratio"] = achieved._replace(value=achieved.value / peak)
    return {name: reading for name, reading in chosen.items() if reading is not None}


def excludes_cached(sources: ServerSources, key: EngineKey, rate: Reading | None) -> bool | None:
    """Return whether a rate of prompt tokens is without cached ones, `None` if that is not known."""
    if rate is None:
        return None
    if rate.source == "log":
        release = _RELEASE.match(sources.version or "")
        return (int(release[1]), int(release[2])) >= _FIRST_WITHOUT_CACHED if release else None
    engine = sources.scrape.window.engine(key) if sources.scrape else None
    return engine is not None and not engine.counters.keys().isdisjoint(
        {"prompt_tokens_computed", "prompt_tokens_cached"}
    )


def _last_token(sources: ServerSources, key: EngineKey) -> Reading | None:
    progress = sources.scrape.progress.get(key) if sources.scrape else None
    scraped = progress.token_at if progress is not None else None
    logged = sources.log.token_at.get(sources.name_in_log(key)) if sources.log else None
    found: tuple[tuple[float | None, SourceName], ...] = ((scraped, "metrics"), (logged, "log"))
    readings = [Reading(at + sources.ahead, at + sources.ahead, source) for at, source in found if at is not None]
    return max(readings, default=None)


def position_acceptance(sources: ServerSources, key: EngineKey, now: float) -> tuple[Reading | None, ...]:
    """
    Return the share of drafts accepted at each position: by /metrics if it decides and has them, else by the log.

    vLLM divides by all drafts (vllm/v1/spec_decode/metrics.py): where their length varies with the batch, that says how
    many had this position, not how many tokens at it were accepted, and there is none.
    """
    if LEAST_DRAFTED in sources.flags.facts:
        return ()
    scrape = sources.deciding_scrape(now)
    ratios = positions_of_scrape(scrape, key, ahead=sources.ahead) if scrape is not None else None
    if ratios is not None:
        return ratios
    engine = sources.engine_log(key)
    if engine is None:
        return ()
    return engine.position_acceptance(now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)


def step_times(sources: ServerSources, key: EngineKey, now: float) -> Mapping[StepClass, StepTime]:
    """Return the times of an engine's decode steps, if /metrics is shown."""
    scrape = sources.shown_scrape(now)
    measured = scrape.step_times.get(key) if scrape else None
    times = measured.recent(scrape.window.at) if scrape is not None and measured is not None else {}
    return {of_class: time._replace(at=time.at + sources.ahead) for of_class, time in times.items()}


def kv_gauges(sources: ServerSources, key: EngineKey, now: float) -> Mapping[KvKey, Reading]:
    """
    Return what an engine's KV connectors do now: by /metrics if it decides, else by the log where it has it.

    The log's line names no engine: it belongs to the statistics line before it, as the line on drafts does.
    """
    scrape, engine = sources.shown_scrape(now), sources.engine_log(key)
    if scrape is not None and (engine is None or sources.deciding_scrape(now) is not None):
        return kv_gauges_of_scrape(scrape, key, ahead=sources.ahead)
    if engine is None:
        return {}
    return engine.kv_readings(now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)


def facts(sources: ServerSources, key: EngineKey) -> dict[str, float]:
    """Return what an engine was started with, by the log where it has it, else by /metrics or the flags."""
    known: dict[str, float | None] = {**sources.flags.facts}
    log, scrape = sources.log, sources.counted_scrape
    reading = scrape.reading if scrape else None
    if reading is not None:
        known[KV_CACHE_TOKENS] = reading.kv_cache_tokens.get(key.engine)
        known["max_concurrency"] = reading.max_concurrency.get(key.engine)
    if log is not None:
        logged = log.facts.by_series(key.engine)
        known.update({name: value for name, value in logged.items() if value is not None})
        is_alone = log.facts.is_believed_alone() and (reading is None or len(reading.engines) < 2)
        seats = (known.get(SEATS), sources.flags.facts.get(SEATS))
        known[SEATS] = min((limit for limit in seats if limit is not None), default=None)
        if "data_parallel_size" not in known and is_alone:
            known["data_parallel_size"] = 1
    if known.get(KV_CACHE_TOKENS) is not None:
        known["kv_cache_capacity_former_tokens"] = sources.caches.tokens(sources.flags.digest, key)
    return {name: value for name, value in known.items() if value is not None}


def start_time(sources: ServerSources) -> Reading | None:
    """Return the later start with its source: the log's is by our clock, that of /metrics by the server's."""
    logged = sources.log.life.started_at if sources.log else None
    start = sources.scrape.process.start if sources.scrape else None
    if start is not None and (logged is None or start.at >= logged):
        return Reading(start.reported, start.at + sources.ahead, "metrics")
    return None if logged is None else Reading(logged + sources.ahead, logged + sources.ahead, "log")


class EngineNames:
    """Names the engines of one server, and keeps the last names while all sources are silent."""

    def __init__(self, sources: ServerSources) -> None:
        self._sources = sources
        self.last: tuple[EngineKey, ...] = ()
        """The engines of the last snapshot."""
        self._name_in_log = self._name_in_metrics = ""
        """What the log and /metrics have called the same model."""

    def current(self, now: float) -> tuple[EngineKey, ...]:
        """Return the engines that are known; at least one."""
        log, scrape = self._sources.log, self._sources.shown_scrape(now)
        if scrape is not None and scrape.reading is not None and scrape.reading.engines:
            return tuple(scrape.reading.engines)
        if log is not None and log.engines:
            lone = log.facts.lone_engine or AGGREGATED
            names = {lone if engine == AGGREGATED else engine for engine in log.engines}
            return tuple(EngineKey(self._model_name(log), engine) for engine in sorted(names))
        model_name = self._model_name(log) if log else self._sources.command.model_name
        last = self.last or (EngineKey("", DEFAULT_ENGINE),)
        return tuple(EngineKey(key.model_name or model_name, key.engine) for key in last)

    def note_scrape(self, reading: MetricsReading) -> None:
        """Keep what /metrics calls the model that the log names."""
        if self._sources.log is not None and reading.engines:
            self._name_in_log = self._sources.log.facts.model_name
            self._name_in_metrics = next(iter(reading.engines)).model_name

    def forget_engines(self) -> None:
        """Take in that the server was started again, perhaps with other engines."""
        self.last = ()

    def _model_name(self, log: LogSource) -> str:
        """
        Return the model's name where there is no scrape.

        If the log names the model of the last scrape, it is the name in that scrape: the one that clients use, where
        the log often has only the path.
        """
        logged = log.facts.model_name
        if logged and logged == self._name_in_log:
            return self._name_in_metrics
        last = self.last[0].model_name if self.last else ""
        return logged or last or self._sources.command.model_name
