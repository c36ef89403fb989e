# SPDX-License-Identifier: Apache-2.0
"""One watched server: its sources, its state, and the lock between them."""

from __future__ import annotations

import threading

from collections import deque

import structlog

from vllm_watch.clock import Clock
from vllm_watch.config import ServerConfig
from vllm_watch.reasons import explain
from vllm_watch.sources.scrape import Scraper, ScrapeTarget, TlsOptions
from vllm_watch.sources.tail import LogTail
from vllm_watch.state.server import ServerSettings, ServerState
from vllm_watch.state.snapshot import ServerSnapshot, SourceName


log = structlog.get_logger("vllm_watch")

HISTORY_SECONDS = 3600.0
HISTORY_STEP = 10.0

_TTFT_P95 = ("time_to_first_token", 0.95)
_HISTORY_GAUGES = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
)


class WatchedServer:
    """
    Looks at one server's sources when told to, and says what is known.

    `look_at_log` and `scrape` may be called from different threads, each from one at a time.
    """

    def __init__(self, config: ServerConfig, clock: Clock) -> None:
        self.name = config.name
        self.interval = config.metrics.interval if config.metrics else None
        self._clock = clock
        self._state = ServerState(_settings(config))
        self._lock = threading.Lock()
        self._tail = LogTail(config.log) if config.log else None
        self._scraper = _scraper(config, clock)
        self._reasons: dict[SourceName, str] = {}
        self._history: deque[tuple[float | None, ...]] = deque(maxlen=int(HISTORY_SECONDS / HISTORY_STEP))
        self.has_looked_at_log = self._tail is None
        self.has_scraped = self._scraper is None

    @property
    def log_pattern(self) -> str | None:
        """The path or glob of the log."""
        return self._tail.pattern if self._tail else None

    @property
    def has_looked(self) -> bool:
        """Whether every source was looked at once."""
        return self.has_looked_at_log and self.has_scraped

    def look_at_log(self) -> bool:
        """Read what is new in the log; return whether there is more at once."""
        tail = self._tail
        if tail is None:
            return False
        batches = tail.poll(self._clock.now())
        status = tail.status()
        with self._lock:
            for batch, is_history in batches:
                self._state.apply_log(batch, is_history=is_history)
            self._state.apply_log_status(status)
        self._note("log", status.reason, is_up=status.is_up)
        self.has_looked_at_log = True
        return tail.has_more

    def scrape(self) -> None:
        """Read /metrics once."""
        if self._scraper is None:
            return
        result = self._scraper.scrape()
        with self._lock:
            self._state.apply_scrape(result)
        self._note("metrics", result.reason, is_up=result.reading is not None)
        self.has_scraped = True

    def snapshot(self) -> ServerSnapshot:
        """Return what is known now."""
        now = self._clock.now()
        with self._lock:
            return self._state.snapshot(now)

    def remember(self) -> None:
        """Keep the present values for the status page's charts."""
        snapshot = self.snapshot()
        gauges = [_total(snapshot, name) for name in _HISTORY_GAUGES]
        slowest = [engine.quantiles[_TTFT_P95].value for engine in snapshot.engines if _TTFT_P95 in engine.quantiles]
        self._history.append((self._clock.wall(snapshot.at), *gauges, max(slowest, default=None)))

    def history(self) -> dict[str, list[float | None]]:
        """Return the last hour's values by name, with their times as `t`."""
        names = ("t", *_HISTORY_GAUGES, "ttft_p95")
        rows = list(self._history)
        return {name: [row[column] for row in rows] for column, name in enumerate(names)}

    def close(self) -> None:
        """Let go of files and connections."""
        if self._tail is not None:
            self._tail.close()
        if self._scraper is not None:
            self._scraper.close()

    def _note(self, source: SourceName, reason: str, *, is_up: bool) -> None:
        """Say once in the daemon's log that a source works, or why it does not."""
        if self._reasons.get(source) == reason:
            return
        self._reasons[source] = reason
        say = log.info if is_up else log.warning
        say("source.changed", server=self.name, source=source, reason=reason, meaning=explain(source, reason))


def _settings(config: ServerConfig) -> ServerSettings:
    objectives = {}
    if config.slo is not None:
        objectives = {
            "slo_time_to_first_token_seconds": config.slo.time_to_first_token,
            "slo_time_per_output_token_seconds": config.slo.time_per_output_token,
        }
    return ServerSettings(
        name=config.name,
        has_log=config.log is not None,
        metrics_interval=config.metrics.interval if config.metrics else None,
        stall_after=config.stall_after,
        slo=objectives,
        labels=dict(config.labels),
    )


def _scraper(config: ServerConfig, clock: Clock) -> Scraper | None:
    metrics = config.metrics
    if metrics is None:
        return None
    tls = metrics.tls
    options = TlsOptions(tls.ca_file, tls.cert_file, tls.key_file) if tls else TlsOptions()
    return Scraper(ScrapeTarget(metrics.url, metrics.timeout, metrics.bearer_token_file, options), clock)


def _total(snapshot: ServerSnapshot, name: str) -> float | None:
    """Return a gauge over all engines: added up, but the fullest one of shares."""
    values = [engine.gauges[name].value for engine in snapshot.engines if name in engine.gauges]
    if not values:
        return None
    return max(values) if name.endswith("_ratio") else sum(values)
