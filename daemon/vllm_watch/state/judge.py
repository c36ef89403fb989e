# SPDX-License-Identifier: Apache-2.0
"""
The state of an engine, from what both sources say.

idle: nothing running or waiting. serving: work, and tokens come. saturated: serving, and requests wait for capacity.
stalled: work, and for some time no token and no engine step. down: nothing listens, or the log's last word is a
fatal error or the end. unknown: no source has anything fresh.
"""

from __future__ import annotations

from vllm_watch.state.log_side import EngineLog, LogSide
from vllm_watch.state.metrics_side import EngineProgress, MetricsSide
from vllm_watch.state.snapshot import EngineState
from vllm_watch_parsers.metrics import EngineReading


STALL_SECONDS = 30.0
DOUBT_SECONDS = 30.0
"""A server that answers for so long after its log said it was dead is not dead: the word was a stranger's."""
START_SECONDS = 1800.0
"""A start that says nothing for so long, while nothing listens, is no start any more."""
FIRST_STATS_SECONDS = 30.0
"""A server that has answered requests for so long without a line of statistics prints none."""

_NOTHING_LISTENS = "refused"


def judge_server(log: LogSide | None, metrics: MetricsSide | None, now: float) -> EngineState | None:
    """Return the state that holds for the whole server (starting or down), or `None` if it is up."""
    refused = _is_refused(metrics)
    if log is not None and log.phase == "starting":
        if _has_answered_since(metrics, now, log.phase_at):
            return None
        is_silent = log.last_line_at is not None and now - log.last_line_at > START_SECONDS
        return "down" if is_silent and refused else "starting"
    if log is not None and log.has_ended and not _is_disbelieved(log, metrics, now):
        return "down"
    if metrics is None or metrics.last is None or not refused or metrics.failing_since is None:
        return None
    if log is not None and log.phase == "ready" and metrics.last.at < log.phase_at:
        return None  # It has become ready since.
    if log is not None and any(engine.stats_at > metrics.failing_since for engine in log.engines.values()):
        return None  # The log goes on: the address is wrong, not the server gone.
    return "down"


def _is_refused(metrics: MetricsSide | None) -> bool:
    return metrics is not None and metrics.last is not None and metrics.last.reason == _NOTHING_LISTENS


def _has_answered_since(metrics: MetricsSide | None, now: float, moment: float) -> bool:
    return metrics is not None and metrics.is_fresh(now) and (metrics.read_at or 0) > moment


def _is_disbelieved(log: LogSide, metrics: MetricsSide | None, now: float) -> bool:
    """Tell whether the server goes on in spite of what its log said last."""
    if metrics is None or not metrics.is_fresh(now):
        return False
    if log.phase == "shutting_down":
        return True  # It drains: it serves while it answers.
    return (metrics.read_at or 0) - log.phase_at > DOUBT_SECONDS or metrics.moved_since(log.phase_at)


def is_end_contradicted(log: LogSide, metrics: MetricsSide, now: float) -> bool | None:
    """Tell whether a server answers on and on after its log said that it ended; `None` if it is not asked."""
    if log.phase is None or not metrics.is_fresh(now):
        return None
    is_end = log.has_ended and log.phase != "shutting_down"
    return is_end and (metrics.read_at or 0) - log.phase_at > DOUBT_SECONDS


def judge_by_metrics(reading: EngineReading, progress: EngineProgress, at: float, stall_after: float) -> EngineState:
    """Return an engine's state from its page of the moment `at`."""
    running, waiting = reading.gauges.get("requests_running"), reading.gauges.get("requests_waiting")
    if running is None or waiting is None:
        return "unknown"
    if running + waiting == 0:
        return "idle"
    if progress.still_seconds(at) >= stall_after:
        return "stalled"
    return "saturated" if waiting > reading.gauges.get("requests_deferred", 0) else "serving"


def _judge_without_stats(log: LogSide, now: float) -> EngineState:
    """A server that is ready prints no statistics until some seconds after its first request."""
    if log.phase != "ready" or log.has_several_api_servers or log.facts.log_stats_disabled:
        return "unknown"
    if log.first_served_at is None:
        return "idle"
    return "serving" if now - log.first_served_at <= FIRST_STATS_SECONDS else "unknown"


def judge_by_log(engine: EngineLog | None, log: LogSide, now: float, stall_after: float) -> EngineState:
    """Return an engine's state from its last line, or from its silence after it."""
    if engine is None:
        return _judge_without_stats(log, now)
    if engine.ended_idle():
        return "idle"
    if engine.ended_still():
        still = now - engine.moved_at
        if still >= stall_after:
            return "stalled"
    if not engine.is_fresh(now):
        return "unknown"
    if not engine.has_work:
        return "idle"
    waiting = engine.stats.requests_waiting or 0
    return "saturated" if waiting > (engine.stats.requests_deferred or 0) else "serving"
