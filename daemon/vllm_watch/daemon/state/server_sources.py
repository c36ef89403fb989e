# SPDX-License-Identifier: Apache-2.0
"""The sources of one server, each with what it has reported so far, and what each of them calls an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import CapacityRange
from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.reading.log_reader import LogStatus, TailCounts
from vllm_watch.daemon.state.configuration import FlagHistory
from vllm_watch.daemon.state.engine_log import EngineLog
from vllm_watch.daemon.state.event_history import EventHistory
from vllm_watch.daemon.state.gpu_use import GpuSource
from vllm_watch.daemon.state.kept_facts import FormerCaches
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.probe_source import ProbeSource
from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch_parsers.events import AGGREGATED
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.flags import CommandFacts


class ServerSettings(NamedTuple):
    """
    What is configured for a server.

    Args:
        name: Its name in the configuration.
        has_log: Whether it has a log.
        metrics_interval: Seconds between scrapes, or `None` without /metrics.
        stall_after: Seconds without progress after which an engine with work is stalled.
        slo: The latency objectives in seconds, by series name.
        labels: The operator's own labels.
        keeps_stale: For reading what has ended: no value is dropped for its age.
        probe_every: Seconds between probes, or `None` without them.
        command: The facts on the server's command line, as far as they are known from the beginning.
        capacity: What a benchmark has measured of all engines together, if there was one.
        cost_per_hour: What the server costs, in any currency.
        peak_flops: How many operations per second a device can do at the model's precision.
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
    capacity: CapacityRange | None = None
    cost_per_hour: float | None = None
    peak_flops: float | None = None


class ServerSources:
    """The sources of one server; one that is not configured is `None`, but for the driver, which may come later."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.ahead = 0.0
        """Seconds by which the wall clock is ahead of the sources' times: what readings of a snapshot add to them."""
        self.flags = FlagHistory()
        """What all of them have of the server's flags."""
        self.caches = FormerCaches()
        """How large its KV caches were at its earlier starts."""
        self.command = settings.command
        """What is known of its command line now."""
        self.flags.note_command(self.command)
        self.log = LogSource(self.flags) if settings.has_log else None
        self.log_status = LogStatus(is_up=False, reason="starting", tail=TailCounts())
        interval, every = settings.metrics_interval, settings.probe_every
        self.scrape = ScrapeSource(interval) if interval is not None else None
        self.probe = ProbeSource(every) if every is not None else None
        self.events = EventHistory()
        """What has happened to the server, by all of them."""
        self.gpu = GpuSource(self.events)

    @property
    def readable_log(self) -> LogSource | None:
        """The log, if it can be read now."""
        return self.log if self.log_status.is_up else None

    @property
    def version(self) -> str | None:
        """The server's version by its log, `None` where that has not reported it."""
        return self.log.facts.version if self.log else None

    def name_in_log(self, key: EngineKey) -> str:
        """Return what the log calls an engine; lines about all engines are about the only engine, too."""
        log, reading = self.log, self.scrape.reading if self.scrape else None
        if log is None or key.engine in log.engines or AGGREGATED not in log.engines:
            return key.engine
        is_lone = len(reading.engines) == 1 if reading and reading.engines else key.engine == log.facts.lone_engine
        return AGGREGATED if is_lone else key.engine

    def logged_kv_cache_tokens(self) -> Mapping[str, int]:
        """Return the size of each scraped engine's KV cache in tokens, as far as the log has it."""
        log, reading = self.log, self.scrape.reading if self.scrape else None
        if log is None or reading is None:
            return {}
        sizes = {key.engine: log.facts.capacity_tokens(self.name_in_log(key)) for key in reading.engines}
        return {engine: size for engine, size in sizes.items() if size is not None}

    def engine_log(self, key: EngineKey) -> EngineLog | None:
        """Return what the log has reported about an engine."""
        return self.log.engines.get(self.name_in_log(key)) if self.log else None

    def deciding_scrape(self, now: float) -> ScrapeSource | None:
        """Return the scrapes if they decide: the last attempt was a success, or nothing is dropped for its age."""
        scrape = self.scrape
        return scrape if scrape is not None and (scrape.is_fresh(now) or self.settings.keeps_stale) else None

    def shown_scrape(self, now: float) -> ScrapeSource | None:
        """Return the scrapes if they are recent enough to show, even if attempts have failed since."""
        scrape = self.scrape
        return scrape if scrape is not None and (scrape.is_recent(now) or self.settings.keeps_stale) else None

    @property
    def counted_scrape(self) -> ScrapeSource | None:
        """
        The scrapes that counters are taken from: also the last ones of a server that is gone.

        Prometheus reads them later than the daemon; what was counted just before the end would be lost otherwise. They
        last until the next life has been scraped, or is ready and has not been scraped yet.
        """
        scrape, log = self.scrape, self.log
        if scrape is None or scrape.read_at is None:
            return None
        has_next = log is not None and log.life.phase == "ready" and (log.life.started_at or 0.0) > scrape.read_at
        return None if has_next else scrape
