# SPDX-License-Identifier: Apache-2.0
"""
What an engine's KV connectors have moved, and what they do now, from each source, under the names of their series.

/metrics shows it of each engine. The log's line names no engine: it belongs to the statistics line before it, as the
line on drafts does. `ahead` is how many seconds the wall clock is ahead of the sources' times.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.state.configuration import FlagHistory
from vllm_watch.daemon.state.engine_log import EngineLog
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.precedence import deciding_scrape, shown_scrape
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch_parsers.kv_transfer import FETCHING, KV_FETCH_STAGES, KvKey
from vllm_watch_parsers.scrape import EngineKey


_CONNECTOR_FLAG = "kv-transfer-config.kv_connector"
_PUSHES = "NixlPushConnector"
_PULLED, _PUSHED = ("nixl", "in"), ("nixl", "out")


def kv_gauges(sources: ServerSources, key: EngineKey, now: float) -> Mapping[KvKey, Reading]:
    """Return what an engine's connectors do now: by /metrics if it decides, else by the log where it has it."""
    scrape, engine = shown_scrape(sources, now), sources.engine_log(key)
    if scrape is not None and (engine is None or deciding_scrape(sources, now) is not None):
        return _gauges_of_scrape(scrape, key, ahead=sources.ahead)
    if engine is None:
        return {}
    return _gauges_of_log(engine, now, keeps_stale=sources.settings.keeps_stale, ahead=sources.ahead)


def kv_counters(
    log: LogSource | None, scrape: ScrapeSource | None, key: EngineKey, name_in_log: str, *, ahead: float
) -> Mapping[KvKey, Reading]:
    """
    Return what an engine's connectors have moved: by the scrapes if there are any, else by the log.

    Args:
        log: The log, if counters may be taken from it.
        scrape: The scrapes that counters are taken from.
        key: The engine.
        name_in_log: What the log calls it.
        ahead: Seconds by which the wall clock is ahead.
    """
    if scrape is not None:
        return _counters_of_scrape(scrape, key, ahead=ahead)
    if log is None or log.last_line_at is None:
        return {}
    at = log.last_line_at + ahead
    return {series: Reading(count, at, "log") for series, count in log.totals.kv.of_engine(name_in_log).items()}


def pushed(counters: Mapping[KvKey, Reading], flags: FlagHistory) -> Mapping[KvKey, Reading]:
    """Return counters with the direction of NIXL's transfers: one of its connectors sends, the others read."""
    if not counters or flags.value(_CONNECTOR_FLAG) != _PUSHES:
        return counters
    return {KvKey(key.series, _PUSHED) if key.labels == _PULLED else key: reading for key, reading in counters.items()}


def _counters_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[KvKey, Reading]:
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    return {series: Reading(value, newest.at + ahead, "metrics") for series, value in newest.engine.kv.counters.items()}


def _gauges_of_scrape(scrape: ScrapeSource, key: EngineKey, *, ahead: float) -> Mapping[KvKey, Reading]:
    newest = scrape.window.newest_of(key)
    if newest is None:
        return {}
    return {series: Reading(value, newest.at + ahead, "metrics") for series, value in newest.engine.kv.gauges.items()}


def _gauges_of_log(engine: EngineLog, now: float, *, keeps_stale: bool, ahead: float) -> dict[KvKey, Reading]:
    """Return what the last lines have, if they are about the present: an idle engine's connectors print nothing."""
    if not keeps_stale and not engine.is_fresh(now):
        return {}
    found = {
        KvKey(FETCHING, (stage,)): Reading(float(count), engine.stats_at + ahead, "log")
        for stage, count in zip(KV_FETCH_STAGES, engine.stats.kv_fetch or (), strict=False)
    }
    if keeps_stale or engine.kv_at >= engine.stats_at:
        found.update({series: Reading(value, engine.kv_at + ahead, "log") for series, value in engine.kv_gauges})
    return found
