# SPDX-License-Identifier: Apache-2.0
"""
The state of an engine by each source, and of a server that is not up, with the cause of a bad one.

When an engine is stalled, and why, is in `stall`.

starting: the server loads. idle: no request runs or waits, and none did in the last seconds. serving: there is work,
or was in the last seconds. saturated: serving, and for some seconds requests have waited for capacity. stalled: there
is work, and for some time no progress. sleeping: put to sleep or paused by its operator. down: nothing listens, or the
log ends in a fatal error or a stop and nothing contradicts it. unknown: no source has anything fresh.

The last seconds are 10, or the time between two readings if that is longer: those that rates are of.
"""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.capacity.saturation import AT_LIMIT, KV_AT_LIMIT, Stretch
from vllm_watch.daemon.catalog.event_texts import CRASHES
from vllm_watch.daemon.catalog.reasons import StallReason
from vllm_watch.daemon.catalog.states import DownCause, EngineState, SaturationCause
from vllm_watch.daemon.state.engine_log import EngineLog
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.scrape_source import NOTHING_LISTENS, ScrapeSource
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch.daemon.state.stall import stall_in_log, stall_in_scrapes
from vllm_watch_parsers.exposition import EngineKey


def why_saturated(
    stretch: Stretch | None, gauges: Mapping[str, Reading], facts: Mapping[str, float]
) -> SaturationCause | None:
    """
    Return what the requests of a saturated engine wait for.

    Args:
        stretch: The time in which requests have waited, if it was seen: its means do not swing.
        gauges: The present values, which are used where it was not.
        facts: The engine's limits.
    """
    load = {name: reading.value for name, reading in gauges.items()}
    running, usage = load.get("requests_running"), load.get("kv_cache_usage_ratio")
    seated = None if running is None else running + load.get("requests_deferred", 0.0)
    if stretch is not None:
        seated, usage = stretch.seated, stretch.kv_cache_usage
    seats = facts.get("max_running_requests")
    is_batch_full = None if seated is None or not seats else seated >= AT_LIMIT * seats
    is_cache_full = None if usage is None else usage >= KV_AT_LIMIT
    if is_cache_full:
        return "both_full" if is_batch_full else "kv_cache_full"
    if is_cache_full is None or is_batch_full is None:
        return None
    return "batch_full" if is_batch_full else "neither_full"


def why_down(log: LogSource | None, scrape: ScrapeSource | None) -> DownCause | None:
    """Return how a server that is down has ended: by the failures of its end, not by those of an earlier time."""
    if log is None or log.life.phase is None:
        return None if scrape is None or scrape.reading is not None else "never_answered"
    life = log.life
    end = life.phase_at if life.has_ended else scrape.refused_since if scrape is not None else None
    failures = life.failures_near(end) if end is not None else frozenset()
    for cause, kinds in CRASHES.items():
        if failures & kinds:
            return cause
    if life.has_ended:
        return "stopped"
    return "killed" if life.phase == "ready" else None


def woken_at(log: LogSource | None, scrape: ScrapeSource | None, key: EngineKey) -> float:
    """
    Return when an engine last woke up, or somebody stopped working on it, or ``-inf``.

    No progress before that proves nothing.
    """
    ends = [source.sleep.woke_at for source in (log, scrape) if source is not None]
    progress = scrape.progress.get(key) if scrape is not None else None
    ends += [] if scrape is None else [scrape.sleep.operated_at]
    ends += [] if progress is None else [progress.woke_at]
    return max(ends, default=-math.inf)


def was_started_after(scrape: ScrapeSource | None, moment: float | None) -> bool:
    """Return whether the scrapes report a start after a moment, if there is one."""
    return scrape is not None and moment is not None and scrape.process.was_started_after(moment)


DOUBT_SECONDS = 30.0
"""If /metrics still answers this long after a line about the server's end, that line was forged or quoted."""
START_SECONDS = 600.0
"""
A start without any line for this long has failed if nothing listens, and is unknown otherwise: vLLM itself gives up on
an engine that is not ready after this time (VLLM_ENGINE_READY_TIMEOUT_S), and loading prints a line for each file.
"""
UNSEEN_SECONDS = 120.0
"""
A server whose log has no line of its yet may have been started just now: it listens last, and its log's first line
comes after its imports. This long after the first refused connection it is down. Without a log no source will ever say
that it starts: where nothing listens it is down, whether or not it was ever seen.
"""
LISTEN_SECONDS = 10.0
"""A server listens at most this long after the line that it is ready."""
FIRST_STATS_SECONDS = 30.0
"""A server that has answered requests for this long without a line of statistics prints none."""


class Judgement(NamedTuple):
    """An engine's state, and if it is stalled, the cause."""

    state: EngineState
    cause: StallReason | None = None


UNKNOWN = Judgement("unknown")


def server_state(log: LogSource | None, scrape: ScrapeSource | None, now: float) -> EngineState | None:
    """Return the state of the whole server (starting, down or unknown), or `None` if it is up."""
    refused = _refuses_connections(log, scrape)
    if log is not None and log.life.phase == "starting":
        if _has_answered_since(scrape, now, log.life.phase_at):
            return None
        if not has_silent_start(log, now):
            return "starting"
        return "down" if refused else "unknown"
    if log is not None and log.life.has_ended and not _is_end_false(log, scrape, now):
        return "down"
    if scrape is None or not refused or scrape.refused_since is None:
        return None
    if log is not None and _prints_statistics_since(log, scrape.refused_since, now):
        return None  # The address is wrong, not the server gone.
    if log is not None and _begins_to_listen(log, scrape.refused_since, scrape.refused_at):
        return "starting"
    is_unseen = scrape.reading is None and log is not None and log.life.phase is None
    return "unknown" if is_unseen and now - scrape.refused_since <= UNSEEN_SECONDS else "down"


def has_silent_start(log: LogSource, now: float) -> bool:
    """Return whether the server started, and its log has had no line for too long to call it starting."""
    return log.life.phase == "starting" and log.last_news_at is not None and now - log.last_news_at > START_SECONDS


def _begins_to_listen(log: LogSource, refused_since: float, refused_at: float) -> bool:
    """Return whether a server has just become ready by its log, and nothing has listened since before that."""
    life = log.life
    return life.phase == "ready" and refused_since <= life.phase_at and refused_at < life.phase_at + LISTEN_SECONDS


def _prints_statistics_since(log: LogSource, moment: float, now: float) -> bool:
    """
    Return whether a server has printed statistics after a moment, and still does.

    A line may be read well after it was written, so the first that counts is one that cannot be from before.
    """
    return any(engine.stats_at >= moment + engine.interval and engine.is_fresh(now) for engine in log.engines.values())


def _refuses_connections(log: LogSource | None, scrape: ScrapeSource | None) -> bool:
    """
    Return whether nothing listens, by the last attempts.

    If a gateway answers in between, or nothing does, this holds until there is a reading or a line of the log.
    """
    if scrape is None or scrape.last is None or scrape.refused_since is None:
        return False
    is_contradicted = log is not None and log.last_line_at is not None and log.last_line_at > scrape.refused_at
    return scrape.last.reason == NOTHING_LISTENS or not is_contradicted


def _has_answered_since(scrape: ScrapeSource | None, now: float, moment: float) -> bool:
    return scrape is not None and scrape.is_fresh(now) and (scrape.read_at or 0) > moment


def _is_end_false(log: LogSource, scrape: ScrapeSource | None, now: float) -> bool:
    """Return whether the server is still there, although its log ends in an error or a stop."""
    if scrape is None and log.life.phase == "shutting_down":
        return any(engine.is_fresh(now) and engine.has_work and engine.moves for engine in log.engines.values())
    if scrape is None or not scrape.is_fresh(now):
        return False
    if log.life.phase == "shutting_down":
        return True  # It finishes its requests: it serves while it answers.
    if log.life.phase == "dead":
        return _lives_on(log, scrape)
    return (scrape.read_at or 0) - log.life.phase_at > DOUBT_SECONDS or scrape.moved_since(log.life.phase_at)


def _lives_on(log: LogSource, scrape: ScrapeSource) -> bool:
    """
    Return whether an engine has made progress since the log reported its death, or there is a new one.

    A scrape alone proves nothing: the API server of a dead engine may stay (VLLM_KEEP_ALIVE_ON_ENGINE_DEATH), with
    counters that no longer change. One that answers after nothing had listened is of another process.
    """
    is_new = scrape.refused_at > log.life.phase_at or scrape.process.was_started_after(log.life.phase_at)
    return is_new or scrape.moved_since(log.life.phase_at)


def is_end_contradicted(log: LogSource, scrape: ScrapeSource, now: float) -> bool | None:
    """Return whether a server still answers long after its log reported its end; `None` if that is not known."""
    if log.life.phase is None or not scrape.is_fresh(now):
        return None
    if not log.life.has_ended or log.life.phase == "shutting_down":
        return False
    is_long_ago = (scrape.read_at or 0) - log.life.phase_at > DOUBT_SECONDS
    return is_long_ago and (log.life.phase != "dead" or _lives_on(log, scrape))


def state_from_scrape(scrape: ScrapeSource, key: EngineKey, stall_after: float, woke_at: float) -> Judgement | None:
    """
    Return an engine's state by the last scrapes, or `None` if it is not in them.

    Args:
        scrape: The scrapes.
        key: The engine.
        stall_after: Seconds without progress after which an engine with work is stalled.
        woke_at: When it last woke up: no progress before that proves nothing.
    """
    engine, progress, at = scrape.window.engine(key), scrape.progress.get(key), scrape.window.at
    if engine is None or progress is None:
        return None
    running, waiting = engine.gauges.get("requests_running"), engine.gauges.get("requests_waiting")
    if running is None or waiting is None:
        return UNKNOWN
    if running + waiting == 0:
        # The state is of the same seconds as the rates: where tokens came in them the engine has served.
        return Judgement("idle" if scrape.window.is_span(at - progress.worked_at) else "serving")
    cause = stall_in_scrapes(progress, running, at, stall_after, woke_at)
    if cause is not None:
        return Judgement("stalled", cause)
    return Judgement("saturated" if progress.queue.lasts else "serving")


def is_left_over(scrape: ScrapeSource, key: EngineKey) -> bool:
    """
    Return whether as many requests were aborted just when an engine's progress ended as its gauges show.

    Up to 0.12 the gauges may keep them until the next step, which nobody asks for: only a witness tells that from a
    hang.
    """
    engine, progress = scrape.window.engine(key), scrape.progress.get(key)
    if engine is None or progress is None:
        return False
    there = sum(engine.gauges.get(name, 0.0) for name in ("requests_running", "requests_waiting"))
    return progress.aborted >= there


def _state_without_statistics(log: LogSource, now: float) -> EngineState:
    """Return the state of an engine without statistics: none are printed until seconds after the first request."""
    if log.life.phase != "ready" or log.has_several_api_servers or log.facts.log_stats_disabled:
        return "unknown"
    if log.first_served_at is None:
        return "idle"
    return "serving" if now - log.first_served_at <= FIRST_STATS_SECONDS else "unknown"


def state_from_log(
    engine: EngineLog | None, log: LogSource, now: float, stall_after: float, woke_at: float
) -> Judgement:
    """Return an engine's state by the last line of statistics, or by the silence after it."""
    if engine is None:
        return Judgement(_state_without_statistics(log, now))
    if engine.ended_idle():
        return Judgement("idle")
    cause = stall_in_log(engine, now, stall_after, woke_at)
    if cause is not None:
        return Judgement("stalled", cause)
    if not engine.is_fresh(now):
        return UNKNOWN
    return Judgement("saturated" if engine.queue.lasts else "serving")
