# SPDX-License-Identifier: Apache-2.0
"""Whether an engine is sleeping: put to sleep or paused by its operator, by the reports of both sources."""

from __future__ import annotations

import math

from collections.abc import Iterable

from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.sleep_reports import is_still_asleep, later
from vllm_watch_parsers.scrape import EngineKey


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
    reports = [] if log is None or _was_started_after(scrape, log.sleep.since) else [log.sleep.since]
    scraped: list[float | None] = []
    slept_until = -math.inf
    if scrape is not None:
        progress = scrape.progress.get(key)
        if progress is not None:
            scraped_tokens, slept_until = progress.served, progress.slept_until
            if scraped_tokens is None or progress.asleep_since is None or scraped_tokens.start < progress.asleep_since:
                scraped.append(progress.asleep_since)
            served = later(served, scraped_tokens)
        if log is None or not log.sleep.prints_pauses or log.sleep.since is not None:
            scraped.append(scrape.sleep.since)
    woke_at = log.sleep.woke_at if log is not None else -math.inf
    reports += [since for since in scraped if since is not None and since > woke_at]
    return any(is_still_asleep(since, served, now) for since in reports if since is not None and since > slept_until)


def woken_at(log: LogSource | None, scrape: ScrapeSource | None, key: EngineKey) -> float:
    """
    Return when an engine last woke up, or somebody stopped working on it, or ``-inf``.

    No progress before that proves nothing.
    """
    progress = scrape.progress.get(key) if scrape is not None else None
    ends = [source.sleep.woke_at for source in (log, scrape) if source is not None]
    ends += [] if scrape is None else [scrape.operations.until]
    return max([*ends, progress.woke_at if progress is not None else -math.inf], default=-math.inf)


def _was_started_after(scrape: ScrapeSource | None, moment: float | None) -> bool:
    return scrape is not None and moment is not None and scrape.process.was_started_after(moment)
