# SPDX-License-Identifier: Apache-2.0
"""Whether each source of a server can be read, and why it is quiet."""

from __future__ import annotations

import math

from vllm_watch.daemon.catalog.reasons import LogReason
from vllm_watch.daemon.state.engine_state import FIRST_STATS_SECONDS, UNSEEN_SECONDS, has_silent_start
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import SourceSnapshot


MANY_FOREIGN_LINES = 1000
"""A log that is not vLLM's reaches this many lines sooner or later; what prints before a server has fewer."""

WITHOUT_STATISTICS: frozenset[LogReason] = frozenset({"stats_disabled", "api_servers_more_than_one", "not_vllm"})
"""Reasons why a log will never have statistics, however much traffic there is."""


def source_statuses(sources: ServerSources, now: float, *, is_sleeping: bool) -> tuple[SourceSnapshot, ...]:
    """
    Return the status of each configured source.

    Args:
        sources: The sources.
        now: The moment.
        is_sleeping: Whether any engine is sleeping.
    """
    statuses = []
    ahead = sources.ahead
    log, scrape, probe = sources.log, sources.scrape, sources.probe
    if log is not None:
        last = max((engine.stats_at for engine in log.engines.values()), default=None)
        reason = log_reason(sources, now, is_sleeping=is_sleeping)
        is_up = sources.log_status.is_up and reason != "not_vllm"
        statuses.append(SourceSnapshot("log", is_up, reason, _shifted(last, ahead)))
    if scrape is not None:
        reading = scrape.last.reading if scrape.last is not None else None
        scraped, kind = scrape.last.reason if scrape.last else "starting", reading.kind if reading else None
        statuses.append(SourceSnapshot("metrics", reading is not None, scraped, _shifted(scrape.read_at, ahead), kind))
    if probe is not None:
        probed = "sleeping" if is_sleeping else probe.reason(now)
        statuses.append(SourceSnapshot("probe", probed == "ok", probed, _shifted(probe.succeeded_at, ahead)))
    driver = sources.gpu.reason(now)
    if driver is not None:
        statuses.append(SourceSnapshot("gpu", driver == "ok", driver, _shifted(sources.gpu.read_at, ahead)))
    return tuple(statuses)


def _shifted(moment: float | None, ahead: float) -> float | None:
    return None if moment is None else moment + ahead


def log_reason(sources: ServerSources, now: float, *, is_sleeping: bool) -> LogReason:
    """Return why the log cannot be read or has no fresh statistics, or ``ok``."""
    log = sources.readable_log
    if log is None:
        return sources.log_status.reason
    if log.life.phase == "starting":
        return "silent" if has_silent_start(log, now) else "starting"
    if log.life.has_ended:
        return "ended"
    if log.has_several_api_servers:
        return "api_servers_more_than_one"
    if log.facts.log_stats_disabled:
        return "stats_disabled"
    engines = log.engines.values()
    if any(engine.is_fresh(now) for engine in engines):
        return "ok"
    if is_sleeping:
        return "sleeping"
    if not engines:
        return _reason_without_statistics(sources, log, now)
    if all(engine.ended_idle() for engine in engines):
        return "idle"
    return "stalled" if any(engine.ended_still() for engine in engines) else "silent"


def _is_foreign(sources: ServerSources, log: LogSource, now: float) -> bool:
    """
    Return whether a log is another program's: none of its lines has the form of vLLM's.

    Before a server prints its first line others may print theirs, such as a container's banner: that is waited for.
    """
    if not log.foreign_lines or log.last_line_at is None:
        return False
    is_over = sources.settings.keeps_stale or now - log.last_line_at > UNSEEN_SECONDS
    return is_over or log.foreign_lines >= MANY_FOREIGN_LINES


def _reason_without_statistics(sources: ServerSources, log: LogSource, now: float) -> LogReason:
    """Return why a log that can be read has had no statistics since the server's start."""
    if sources.command.has_several_api_servers:
        return "api_servers_more_than_one"
    if sources.command.log_stats_disabled:
        return "stats_disabled"
    if _is_foreign(sources, log, now):
        return "not_vllm"
    if log.first_served_at == -math.inf:
        return "silent"
    if log.first_served_at is None:
        return "idle" if log.life.phase == "ready" else "no_statistics_yet"
    is_waiting = now - log.first_served_at <= FIRST_STATS_SECONDS
    return "no_statistics_yet" if is_waiting else "stats_disabled"
