# SPDX-License-Identifier: Apache-2.0
"""
The state of an engine, from what both sources say.

idle: nothing running or waiting. serving: work, and tokens come. saturated: serving, and requests wait for capacity.
stalled: work, and for some time nothing moves. sleeping: put to sleep or paused by its operator. down: nothing
listens, or the log's last word is a fatal error or the end and nothing contradicts it. unknown: no source has anything
fresh.

Nothing moves in a wedged engine, and for a while nothing does in some healthy ones either. Where a long step looks the
same as a stall, more time passes before it is called one: see `patience`.
"""

from __future__ import annotations

import math

from typing import NamedTuple

from vllm_watch.catalog.reasons import StallReason
from vllm_watch.catalog.states import EngineState
from vllm_watch.state.log_source import EngineLog, LogSource
from vllm_watch.state.progress import FIRST_TOKEN_SECONDS, EngineProgress
from vllm_watch.state.scrape_source import NOTHING_LISTENS, ScrapeSource
from vllm_watch.state.sleeping import is_at_rest, later
from vllm_watch_parsers.scrape import EngineKey, EngineReading


STALL_SECONDS = 30.0
FIRST_STEP_FACTOR = 4.0
"""So many times longer must nothing move where that may be one long step: there is work, and no token of it yet."""
LOG_ONLY_FACTOR = 2.0
"""So many times longer where there is only a log: it tells nothing of a lone long prompt before its first token."""
UNCOMPUTED_FACTOR = 10.0
"""So many times longer may requests come and go while nothing is computed for any of them."""
DOUBT_SECONDS = 30.0
"""A server that answers for so long after its log said that it had ended has not: the word was a stranger's."""
START_SECONDS = 600.0
"""
A start that says nothing for so long is no start any more, but the end where nothing listens: vLLM itself gives up on
an engine that is not ready after this time (VLLM_ENGINE_READY_TIMEOUT_S), and loading prints a line for each file.
"""
UNSEEN_SECONDS = 120.0
"""
A server of which nobody has seen anything may have been started just now: it listens last, and its log's first line
comes when its imports are done. So long after the first refusal it is down.
"""
FIRST_STATS_SECONDS = 30.0
"""A server that has answered requests for so long without a line of statistics prints none."""


class Judgement(NamedTuple):
    """An engine's state, and why it is called stalled if it is."""

    state: EngineState
    stall_reason: StallReason | None = None


UNKNOWN = Judgement("unknown")


def judge_server(log: LogSource | None, metrics: ScrapeSource | None, now: float) -> EngineState | None:
    """Return the state that holds for the whole server (starting, down or unknown), or `None` if it is up."""
    refused = _is_refused(log, metrics)
    if log is not None and log.phase == "starting":
        if _has_answered_since(metrics, now, log.phase_at):
            return None
        if not has_silent_start(log, now):
            return "starting"
        return "down" if refused else "unknown"
    if log is not None and log.has_ended and not _is_disbelieved(log, metrics, now):
        return "down"
    if metrics is None or not refused or metrics.refused_since is None:
        return None
    if log is not None and log.phase == "ready" and metrics.refused_at < log.phase_at:
        return None  # It has become ready since.
    if log is not None and _goes_on(log, metrics.refused_since, now):
        return None  # The address is wrong, not the server gone.
    is_unseen = metrics.reading is None and (log is None or log.phase is None)
    return "unknown" if is_unseen and now - metrics.refused_since <= UNSEEN_SECONDS else "down"


def has_silent_start(log: LogSource, now: float) -> bool:
    """Tell whether a log said that the server starts, and then nothing for so long that nobody knows what it does."""
    return log.phase == "starting" and log.last_news_at is not None and now - log.last_news_at > START_SECONDS


def _goes_on(log: LogSource, moment: float, now: float) -> bool:
    """
    Tell whether a server prints statistics although nothing listens since a moment.

    A line may be read well after it was written, so the first that counts is one that cannot be from before; and a
    server that fell silent since may be gone.
    """
    return any(engine.stats_at >= moment + engine.interval and engine.is_fresh(now) for engine in log.engines.values())


def _is_refused(log: LogSource | None, metrics: ScrapeSource | None) -> bool:
    """
    Tell whether nothing listens, as far as was heard.

    Where a gateway answers in between, or nothing does, it holds until there is a page or a line of the log.
    """
    if metrics is None or metrics.last is None or metrics.refused_since is None:
        return False
    is_contradicted = log is not None and log.last_line_at is not None and log.last_line_at > metrics.refused_at
    return metrics.last.reason == NOTHING_LISTENS or not is_contradicted


def _has_answered_since(metrics: ScrapeSource | None, now: float, moment: float) -> bool:
    return metrics is not None and metrics.is_fresh(now) and (metrics.read_at or 0) > moment


def _is_disbelieved(log: LogSource, metrics: ScrapeSource | None, now: float) -> bool:
    """Tell whether the server goes on in spite of what its log said last."""
    if metrics is None and log.phase == "shutting_down":
        return any(engine.is_fresh(now) and engine.has_work and engine.moves for engine in log.engines.values())
    if metrics is None or not metrics.is_fresh(now):
        return False
    if log.phase == "shutting_down":
        return True  # It drains: it serves while it answers.
    if log.phase == "dead":
        return _lives_on(log, metrics)
    return (metrics.read_at or 0) - log.phase_at > DOUBT_SECONDS or metrics.moved_since(log.phase_at)


def _lives_on(log: LogSource, metrics: ScrapeSource) -> bool:
    """
    Tell whether an engine was seen alive since its log said that it is dead, or a new one is there.

    A page alone is no sign of life: the API server of a dead engine may stay (VLLM_KEEP_ALIVE_ON_ENGINE_DEATH), and
    its page stands still. One that came back after nothing had listened is of another process.
    """
    is_anew = metrics.refused_at > log.phase_at or _was_started_since(metrics, log.phase_at)
    return is_anew or metrics.moved_since(log.phase_at)


def is_end_contradicted(log: LogSource, metrics: ScrapeSource, now: float) -> bool | None:
    """Tell whether a server goes on and on after its log said that it ended; `None` if it is not asked."""
    if log.phase is None or not metrics.is_fresh(now):
        return None
    if not log.has_ended or log.phase == "shutting_down":
        return False
    is_long_ago = (metrics.read_at or 0) - log.phase_at > DOUBT_SECONDS
    return is_long_ago and (log.phase != "dead" or _lives_on(log, metrics))


def rests(
    log: LogSource | None, engine: EngineLog | None, metrics: ScrapeSource | None, key: EngineKey, now: float
) -> bool:
    """
    Tell whether an engine was put to sleep or paused, by whichever of the given sources says so.

    Tokens that either source tells of end it, and so does a page that says awake after one that did not. Where a
    log that prints each pause tells of none, the page's counts of calls, which have no order, tell of none either.
    """
    served = engine.served if engine is not None else None
    told = [] if log is None or _was_started_since(metrics, log.repose.since) else [log.repose.since]
    shown: list[float | None] = []
    slept_until = -math.inf
    if metrics is not None:
        progress = metrics.progress.get(key)
        if progress is not None:
            on_page, slept_until = progress.served, progress.slept_until
            if on_page is None or progress.asleep_since is None or on_page.began < progress.asleep_since:
                shown.append(progress.asleep_since)
            served = later(served, on_page)
        if log is None or not log.prints_pauses or log.repose.since is not None:
            shown.append(metrics.repose.since)
    woke_at = log.repose.woke_at if log is not None else -math.inf
    words = [*told, *(since for since in shown if since is not None and since > woke_at)]
    return any(is_at_rest(since, served, now) for since in words if since is not None and since > slept_until)


def _was_started_since(metrics: ScrapeSource | None, moment: float | None) -> bool:
    """Tell whether the page says that the server was started after a moment, by a clock that can be right."""
    start = metrics.start if metrics is not None else None
    return start is not None and start.is_possible and moment is not None and moment < start.at


def woken_at(log: LogSource | None, metrics: ScrapeSource | None, key: EngineKey) -> float:
    """Return when an engine's last rest ended: what stood still until then says nothing."""
    progress = metrics.progress.get(key) if metrics is not None else None
    ends = [side.repose.woke_at for side in (log, metrics) if side is not None]
    return max([*ends, progress.woke_at if progress is not None else -math.inf], default=-math.inf)


def judge_by_metrics(
    reading: EngineReading, progress: EngineProgress, at: float, stall_after: float, woke_at: float = -math.inf
) -> Judgement:
    """Return an engine's state from its page of the moment `at`."""
    running, waiting = reading.gauges.get("requests_running"), reading.gauges.get("requests_waiting")
    if running is None or waiting is None:
        return UNKNOWN
    if running + waiting == 0:
        return Judgement("idle")
    if progress.still_seconds(at, woke_at) >= patience(progress, stall_after):
        return Judgement("stalled", _why_still(progress, running))
    if progress.undone_seconds(at, woke_at) >= max(UNCOMPUTED_FACTOR * stall_after, patience(progress, stall_after)):
        return Judgement("stalled", "nothing_computed")
    return Judgement("saturated" if waiting > reading.gauges.get("requests_deferred", 0) else "serving")


def patience(progress: EngineProgress, stall_after: float) -> float:
    """Return for how many seconds an engine may stand still: longer where that may be one long step."""
    if not progress.progress.has_served:
        return max(stall_after, FIRST_TOKEN_SECONDS)
    return stall_after if progress.has_token_of_work else FIRST_STEP_FACTOR * stall_after


def _why_still(progress: EngineProgress, running: float) -> StallReason:
    if not progress.progress.has_served:
        return "no_first_token"
    return "batch_stands_still" if running else "queue_stands_still"


def _judge_without_stats(log: LogSource, now: float) -> EngineState:
    """A server that is ready prints no statistics until some seconds after its first request."""
    if log.phase != "ready" or log.has_several_api_servers or log.facts.log_stats_disabled:
        return "unknown"
    if log.first_served_at is None:
        return "idle"
    return "serving" if now - log.first_served_at <= FIRST_STATS_SECONDS else "unknown"


def judge_by_log(
    engine: EngineLog | None, log: LogSource, now: float, stall_after: float, woke_at: float = -math.inf
) -> Judgement:
    """Return an engine's state from its last line, or from its silence after it."""
    if engine is None:
        return Judgement(_judge_without_stats(log, now))
    if engine.ended_idle():
        return Judgement("idle")
    if engine.ended_still() and now - max(engine.moved_at, woke_at) >= _patience_with_log(engine, stall_after):
        return Judgement("stalled", "log_fell_silent" if engine.has_moved else "no_first_token")
    if not engine.is_fresh(now):
        return UNKNOWN
    if not engine.has_work:
        return Judgement("idle")
    waiting = engine.stats.requests_waiting or 0
    return Judgement("saturated" if waiting > (engine.stats.requests_deferred or 0) else "serving")


def _patience_with_log(engine: EngineLog, stall_after: float) -> float:
    enough = LOG_ONLY_FACTOR * stall_after
    return enough if engine.has_moved else max(enough, FIRST_TOKEN_SECONDS)
