# SPDX-License-Identifier: Apache-2.0
"""
Which source decides a value: the rule of the whole program.

If both sources are fresh, the scrape is used: it is exact and cannot be forged. If it is missing or stale, the log is
used at once. The log may add a quantity that /metrics does not have. If /metrics has the quantity but no value for it
now (a hit ratio without queries), no value is shown. All counters come from one source: see `totals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.state.engine_state import UNKNOWN, Judgement, state_from_log, state_from_scrape
from vllm_watch.daemon.state.engine_values import (
    gauges_of_log,
    gauges_of_scrape,
    positions_of_log,
    positions_of_scrape,
    step_times_of_log,
    step_times_of_scrape,
)
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.sleeping import is_sleeping, woken_at
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch.daemon.state.step_times import StepClass, StepTime
from vllm_watch_parsers.scrape import EngineKey


_TIMED_OUT = "timeout"


def deciding_scrape(sources: ServerSources, now: float) -> ScrapeSource | None:
    """Return the scrapes if they decide: the last attempt was a success, or nothing is dropped for its age."""
    scrape = sources.scrape
    return scrape if scrape is not None and (scrape.is_fresh(now) or sources.settings.keeps_stale) else None


def shown_scrape(sources: ServerSources, now: float) -> ScrapeSource | None:
    """Return the scrapes if they are recent enough to show, even if attempts have failed since."""
    scrape = sources.scrape
    return scrape if scrape is not None and (scrape.is_recent(now) or sources.settings.keeps_stale) else None


def missing_metrics(sources: ServerSources, now: float) -> dict[str, bool]:
    """Return for each required quantity whether the shown scrape lacks it; empty if no scrape is shown."""
    scrape = shown_scrape(sources, now)
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
    if recent is not None and recent.is_fresh(now) and by_scrape is not None:
        return by_scrape
    readable = sources.readable_log
    if readable is not None:
        by_log = state_from_log(sources.engine_log(key), readable, now, stall_after, woke_at)
        if by_log.state != "unknown" and not (by_log.state == "idle" and _is_unreachable(scrape, now)):
            return by_log
    return by_scrape or UNKNOWN


def _is_unreachable(scrape: ScrapeSource | None, now: float) -> bool:
    """Return whether a server that answered no longer does, or hangs: then silence in the log does not mean idle."""
    if scrape is None or scrape.last is None or scrape.is_recent(now):
        return False
    return scrape.last.reason == _TIMED_OUT or (scrape.is_unanswered and scrape.reading is not None)


class GaugeSides(NamedTuple):
    """An engine's gauges by each source, whether or not it decides; `None` is a quantity without a value."""

    log: Mapping[str, Reading]
    metrics: Mapping[str, Reading | None]


def gauge_sides(sources: ServerSources, key: EngineKey, now: float) -> GaugeSides:
    """Return an engine's gauges by each source."""
    log, engine, scrape = sources.log, sources.engine_log(key), shown_scrape(sources, now)
    stale, ahead = sources.settings.keeps_stale, sources.ahead
    return GaugeSides(
        gauges_of_log(log, engine, now, keeps_stale=stale, ahead=ahead) if log is not None and engine else {},
        {} if scrape is None else gauges_of_scrape(scrape, key, ahead=ahead),
    )


def gauges(sources: ServerSources, key: EngineKey, sides: GaugeSides, now: float) -> dict[str, Reading]:
    """Return an engine's gauges, each by the source that decides it."""
    chosen: dict[str, Reading | None] = dict(sides.log)
    if not chosen or deciding_scrape(sources, now) is not None:
        chosen.update(sides.metrics)
    chosen["last_token_timestamp_seconds"] = _last_token(sources, key)
    return {name: reading for name, reading in chosen.items() if reading is not None}


def _last_token(sources: ServerSources, key: EngineKey) -> Reading | None:
    """Return when an engine last generated a token: the later of both sources' times."""
    progress = sources.scrape.progress.get(key) if sources.scrape else None
    scraped = progress.token_at if progress is not None else None
    logged = sources.log.token_at.get(sources.name_in_log(key)) if sources.log else None
    found: tuple[tuple[float | None, SourceName], ...] = ((scraped, "metrics"), (logged, "log"))
    readings = [Reading(at + sources.ahead, at + sources.ahead, source) for at, source in found if at is not None]
    return max(readings, default=None)


def position_acceptance(sources: ServerSources, key: EngineKey, now: float) -> tuple[Reading | None, ...]:
    """Return the share of drafts accepted at each position: by /metrics if it decides and has them, else by the log."""
    scrape = deciding_scrape(sources, now)
    ratios = positions_of_scrape(scrape, key, ahead=sources.ahead) if scrape is not None else None
    if ratios is not None:
        return ratios
    engine = sources.engine_log(key)
    if engine is None:
        return ()
    return positions_of_log(engine, now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)


def step_times(sources: ServerSources, key: EngineKey, now: float) -> Mapping[StepClass, StepTime]:
    """Return the times of an engine's decode steps: by /metrics if it is shown, else by the log."""
    scrape = shown_scrape(sources, now)
    if scrape is not None:
        return step_times_of_scrape(scrape, key, ahead=sources.ahead)
    engine = sources.engine_log(key)
    if engine is None:
        return {}
    return step_times_of_log(engine, now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)


def start_time(sources: ServerSources) -> Reading | None:
    """Return the later start with its source: the log's is by our clock, that of /metrics by the server's."""
    logged = sources.log.life.started_at if sources.log else None
    start = sources.scrape.process.start if sources.scrape else None
    if start is not None and (logged is None or start.at >= logged):
        return Reading(start.reported, start.at + sources.ahead, "metrics")
    return None if logged is None else Reading(logged + sources.ahead, logged + sources.ahead, "log")
