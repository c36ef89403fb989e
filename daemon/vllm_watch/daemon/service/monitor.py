# SPDX-License-Identifier: Apache-2.0
"""One watched server: its sources, its state, and the lock between them."""

from __future__ import annotations

import threading

from collections.abc import Mapping, Sequence

import msgspec
import structlog

from vllm_watch.daemon.capacity.load import CapacityRange
from vllm_watch.daemon.capacity.tracker import measured_range
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.config.server_config import ServerConfig, filled_links
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus
from vllm_watch.daemon.service.changes import SourceReports
from vllm_watch.daemon.service.log_polling import LogMonitor
from vllm_watch.daemon.service.snapshot_document import ChartHistory
from vllm_watch.daemon.sources.checkpoint import NOTHING_BEFORE, Positions
from vllm_watch.daemon.sources.prober import Prober
from vllm_watch.daemon.sources.scraper import Scraper
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.kept_facts import KeptFacts, RunningServer
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ConfigChange, ServerSnapshot
from vllm_watch.daemon.state.xid_events import XidEvent
from vllm_watch.daemon.support.clock import Clock, seconds_ahead
from vllm_watch_parsers.scrape import EngineKey


log = structlog.get_logger("vllm_watch.service")

_UPDATED = ("capacity", "command", "links", "gpus", "cost_per_hour", "peak_flops", "log")
"""What of a server's configuration may change without watching it anew."""


class ServerMonitor:
    """
    Watches one server: what its log, its /metrics and its probe say goes into its state, and snapshots come out.

    The log's `poll`, `scrape` and `probe` may be called from different threads, each from one at a time; once closed
    they do nothing.

    Args:
        config: What to watch.
        clock: The time.
        before: How far an earlier run, or an earlier configuration, has read the logs.
    """

    def __init__(self, config: ServerConfig, clock: Clock, before: Positions = NOTHING_BEFORE) -> None:
        self.config = config
        self.name = config.name
        self.interval = config.metrics.interval if config.metrics else None
        """Seconds between scrapes, `None` without /metrics."""
        self._clock = clock
        self._links = filled_links(config)
        self._state = ServerState(_settings(config))
        change = before.change_of(config.name)
        if change is not None:
            self._state.restore_change(change, seconds_ahead(clock))
        facts = before.facts_of(config.name)
        if facts is not None:
            self._state.life.restore(facts)
        self._lock = threading.Lock()
        self._reports = SourceReports(config.name)
        self.log = (
            LogMonitor(config, clock, before, reports=self._reports, take=self._take_log) if config.has_log else None
        )
        """The log, `None` without one."""
        self.history = ChartHistory()
        """What the status page's charts show."""
        self._scraper = _scraper(config, clock)
        self._prober = _prober(config, clock)
        self._is_closed = False
        self.was_scraped = self._scraper is None

    def update(self, config: ServerConfig) -> bool:
        """Apply a configuration that differs at most in what may change meanwhile; return whether it was applied."""
        before = {name: getattr(self.config, name) for name in _UPDATED}
        if msgspec.structs.replace(config, **before) != self.config or not self._moves_log(config.log):
            return False
        self.config = config
        self._links = filled_links(config)
        with self._lock:
            self._state.configure(_bench(config), config.cost_per_hour, config.peak_flops)
        return True

    @property
    def has_probe(self) -> bool:
        """Whether the server is probed."""
        return self._prober is not None

    @property
    def is_ready(self) -> bool:
        """Whether the log was polled and /metrics scraped once, as far as they are configured."""
        return (self.log is None or self.log.was_polled) and self.was_scraped

    def scrape(self) -> None:
        """Read /metrics once."""
        if self._scraper is None or self._is_closed:
            return
        try:
            self._apply_scrape(self._scraper.scrape())
        except Exception:
            self._apply_scrape(ScrapeResult(self._clock.now(), 0.0, None, "internal_error"))
            raise  # The thread that called counts and logs it.

    def next_probe(self, now: float) -> float | None:
        """Return when the next probe is due, `now` if at once; `None` if there is none to make, or not yet."""
        # The first scrape gives the model's name. The log is not waited for: a poll may hang.
        if self._prober is None or self._is_closed or not self.was_scraped:
            return None
        with self._lock:
            return self._state.next_probe(now)

    def probe(self) -> None:
        """Request one token once."""
        if self._prober is None or self._is_closed:
            return
        with self._lock:
            model = self._state.start_probe(self._clock.now())
        result = self._prober.probe(model)
        if self._is_closed:
            return
        with self._lock:
            self._state.apply_probe(result)
        self._reports.report("probe", result.reason, is_up=result.reason == "ok")

    def snapshot(self) -> ServerSnapshot:
        """Return what is known now, with wall-clock times."""
        now, ahead = self._clock.now(), seconds_ahead(self._clock)
        with self._lock:
            snapshot = self._state.snapshot(now, ahead)
        return snapshot._replace(links=self._links)

    def gpus(self) -> tuple[ServerGpu, ...]:
        """Return the GPUs that the server uses now."""
        with self._lock:
            return self._state.gpu.gpus(self._clock.now())

    def note_xids(self, events: Sequence[XidEvent], *, are_all: bool) -> None:
        """Take in new errors of this server's GPUs; `are_all` tells that none of them can be missed."""
        with self._lock:
            self._state.events.note_xids(events, are_all=are_all, ahead=seconds_ahead(self._clock))

    def engine_states(self) -> Mapping[EngineKey, EngineState]:
        """Return the state of each engine now."""
        now = self._clock.now()
        with self._lock:
            return self._state.engine_states(now)

    @property
    def wants_process(self) -> bool:
        """Whether the server was started since the process table was read last."""
        with self._lock:
            return self._state.life.wants_process

    def apply_process(self, running: RunningServer | None, at: float) -> None:
        """Take in which process of this machine is the server's, as the process table had it at a moment."""
        with self._lock:
            self._state.life.note_process(running, at)

    def kept(self) -> tuple[ConfigChange | None, KeptFacts | None]:
        """Return what a checkpoint keeps: what the last start that changed any flags has changed, and what is known."""
        now, ahead = self._clock.now(), seconds_ahead(self._clock)
        with self._lock:
            facts = self._state.life.kept(self.name, None if self.log is None else self.log.key)
            return self._state.last_change(now, ahead), facts

    def foresee(self) -> tuple[ServerSnapshot, frozenset[str]]:
        """Return what is known whatever its age, and the series that there will be besides once there is traffic."""
        with self._lock:
            return self._state.foresee(self._clock.now())

    def apply_gpus(self, use: GpuUse, interval: float) -> None:
        """Take in what the driver says of its GPUs; the next reading is due after the interval, in seconds."""
        with self._lock:
            self._state.gpu.apply(use, interval)

    def close(self) -> None:
        """Close files and connections; a log that hangs is not waited for."""
        self._is_closed = True
        if self.log is not None:
            self.log.close()
        if self._scraper is not None:
            self._scraper.close()
        if self._prober is not None:
            self._prober.close()

    def _moves_log(self, path: str | None) -> bool:
        """Follow the log at its present path; return `False` if that needs another monitor."""
        if path == self.config.log:
            return True
        if path is None or self.config.log is None or self.log is None or self.log.is_overdue:
            return False
        self.log.move(path)
        return True

    def _take_log(self, batches: Sequence[LogBatch], status: LogStatus) -> None:
        with self._lock:
            if self.log is not None and self.log.goes_on is not None:
                self._state.life.resume_log(self.log.key, goes_on=self.log.goes_on)
            for batch in batches:
                self._state.apply_log(batch)
            self._state.apply_log_status(status)

    def _apply_scrape(self, result: ScrapeResult) -> None:
        if self._is_closed:
            return
        with self._lock:
            self._state.apply_scrape(result)
        self._reports.report("metrics", result.reason, is_up=result.reading is not None)
        log.debug("scrape.ended", server=self.name, reason=result.reason, seconds=round(result.duration, 4))
        self.was_scraped = True


def _bench(config: ServerConfig) -> CapacityRange | None:
    """Return what a benchmark has measured of a server."""
    known = config.capacity
    if known is None:
        return None
    return measured_range(known.tokens_per_second, known.lower, known.upper, known.prompt_tokens_per_second)


def _settings(config: ServerConfig) -> ServerSettings:
    objectives = {}
    if config.slo is not None:
        objectives = {
            "slo_time_to_first_token_seconds": config.slo.time_to_first_token,
            "slo_time_per_output_token_seconds": config.slo.time_per_output_token,
        }
    return ServerSettings(
        name=config.name,
        has_log=config.has_log,
        metrics_interval=config.metrics.interval if config.metrics else None,
        stall_after=config.stall_after,
        slo=objectives,
        labels=dict(config.labels),
        probe_every=config.probe.every if config.probe else None,
        command=config.command,
        capacity=_bench(config),
        cost_per_hour=config.cost_per_hour,
        peak_flops=config.peak_flops,
    )


def _scraper(config: ServerConfig, clock: Clock) -> Scraper | None:
    return None if config.metrics is None else Scraper(config.metrics, clock)


def _prober(config: ServerConfig, clock: Clock) -> Prober | None:
    probe, url = config.probe, config.probe_url
    if probe is None or url is None:
        return None
    return Prober(url, probe, clock, config.metrics.tls if config.metrics else None)
