# SPDX-License-Identifier: Apache-2.0
"""One watched server: its sources, its state, and the lock between them."""

from __future__ import annotations

import threading
import time

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from vllm_watch.catalog.reasons import SourceName, explain
from vllm_watch.config.model import ServerConfig, TlsConfig
from vllm_watch.sources.checkpoint import JournalPosition, Loaded, Positions
from vllm_watch.sources.http_client import TlsOptions
from vllm_watch.sources.journal_tailer import JournalTailer
from vllm_watch.sources.log_tailer import LogTailer
from vllm_watch.sources.prober import Prober, ProbeTarget
from vllm_watch.sources.scraper import Scraper, ScrapeTarget
from vllm_watch.state.scrape_source import ScrapeResult
from vllm_watch.state.server import LogStatus, ServerSettings, ServerState
from vllm_watch.state.snapshot import (
    EngineSnapshot,
    EngineTotals,
    HistogramReading,
    Reading,
    ServerSnapshot,
    TailCounts,
)
from vllm_watch.support.clock import Clock


log = structlog.get_logger("vllm_watch")

HISTORY_SECONDS = 3600.0
HISTORY_STEP = 10.0
CLOSE_SECONDS = 0.5
"""So long after a look began it is waited for when the server is closed."""

NOTHING_BEFORE = Loaded(Positions(), "absent")

Timed = TypeVar("Timed", Reading, HistogramReading)
Move = Callable[[float], float]

_TTFT_P95 = ("time_to_first_token", 0.95)
_HISTORY_GAUGES = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
)


class ServerMonitor:
    """
    Looks at one server's sources when told to, and says what is known.

    `look_at_log`, `scrape` and `probe` may be called from different threads, each from one at a time; once closed they
    do nothing. Only `close` waits for a look at the log, and not for long: a look may hang.

    Args:
        config: What to look at.
        clock: The time.
        before: How far an earlier run, or an earlier configuration, had read the logs.
    """

    def __init__(self, config: ServerConfig, clock: Clock, before: Loaded = NOTHING_BEFORE) -> None:
        self.config = config
        self.name = config.name
        self.interval = config.metrics.interval if config.metrics else None
        self._clock = clock
        self._state = ServerState(_settings(config))
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._look_began = 0.0
        self._is_closed = False
        self._tail = _tail(config, before, clock)
        self._read = _Read(before.positions.of(config.log, config.journal), before.written or clock.wall(clock.now()))
        self._scraper = _scraper(config, clock)
        self._prober = _prober(config, clock)
        self._reasons: dict[SourceName, str] = {}
        self._log_status = LogStatus(is_up=False, reason="starting", tail=TailCounts())
        self._has_said_nuls = False
        self._history: deque[tuple[float | None, ...]] = deque(maxlen=int(HISTORY_SECONDS / HISTORY_STEP))
        self.has_looked_at_log = self._tail is None
        self.has_scraped = self._scraper is None
        self.is_overdue = False
        """Whether a look at the log takes so long that it may hang; the one who asks for looks says so."""
        self.has_hints = False
        """Whether something tells that the log's files have changed; the one who asks for looks says so."""

    def adopt(self, config: ServerConfig) -> bool:
        """Take a configuration that says nothing new but of the command line; return whether it was such a one."""
        if msgspec.structs.replace(config, command=self.config.command) != self.config:
            return False
        self.config = config
        with self._lock:
            self._state.apply_command(config.command)
        return True

    @property
    def log_paths(self) -> tuple[str, ...]:
        """Where changes are news of the log, paths and globs; nothing if it is not in files."""
        return self._tail.watched_paths if isinstance(self._tail, LogTailer) else ()

    @property
    def log_key(self) -> str:
        """What tells the log from others, of an earlier configuration too; nothing if there is none."""
        return f"journal {self.config.journal}" if self.config.journal is not None else self.config.log or ""

    @property
    def has_log(self) -> bool:
        """Whether there is a log to look at."""
        return self._tail is not None

    @property
    def has_probe(self) -> bool:
        """Whether there is something to ask for tokens."""
        return self._prober is not None

    @property
    def has_looked(self) -> bool:
        """Whether every source was looked at once."""
        return self.has_looked_at_log and self.has_scraped

    @property
    def awaits_log(self) -> bool:
        """Whether the log is a program's output of which nothing has come yet."""
        return isinstance(self._tail, JournalTailer) and self._tail.is_waiting

    def look_at_log(self) -> bool:
        """Read what is new in the log; return whether there is more at once."""
        with self._looking:
            if self._tail is None:
                return False
            if self._is_closed:
                self._tail.close()  # `close` left it to whoever was about to look.
                return False
            self._look_began = time.monotonic()
            try:
                return self._look_at(self._tail)
            finally:
                if self._is_closed:  # While it was looked at, which `close` did not wait for.
                    self._tail.close()

    def note_log_failure(self, reason: str) -> None:
        """Say that the log cannot be read for a reason that no look has found: it is so until the next look ends."""
        with self._lock:
            self._log_status = LogStatus(is_up=False, reason=reason, tail=self._log_status.tail._replace(lag=None))
            self._state.apply_log_status(self._log_status)
        self._note("log", reason, is_up=False)
        self.has_looked_at_log = True

    @property
    def read_until(self) -> float | None:
        """A moment before which all that was written to the log was read, by the wall clock, once it is known."""
        return None if self.is_overdue or not self._read.is_present else self._read.until

    def positions(self) -> Positions:
        """Return how far the log had been read after the last look, with its moment if that is not `read_until`."""
        read = self._read
        return read.positions if read.is_present and not self.is_overdue else read.positions.dated(read.until)

    def scrape(self) -> None:
        """Read /metrics once."""
        if self._scraper is None or self._is_closed:
            return
        try:
            self._apply_scrape(self._scraper.scrape())
        except Exception:
            self._apply_scrape(ScrapeResult(self._clock.now(), 0.0, None, "internal_error"))
            raise  # Who sends out the scrapes counts it.
        if self._is_closed:
            self._scraper.close()  # It may have been closed just before it began.

    def next_probe(self, now: float) -> float | None:
        """Return when the next probe is due, `now` if at once; `None` if there is none to make, or not yet."""
        # The page tells the model's name. A log is not waited for: looking at it may hang.
        if self._prober is None or self._is_closed or not self.has_scraped:
            return None
        with self._lock:
            return self._state.next_probe(now)

    def probe(self) -> None:
        """Ask for one token once."""
        if self._prober is None or self._is_closed:
            return
        with self._lock:
            model = self._state.begin_probe(self._clock.now())
        result = self._prober.probe(model)
        if self._is_closed:
            self._prober.close()  # It may have been closed just before it began.
            return
        with self._lock:
            self._state.apply_probe(result)
        self._note("probe", result.reason, is_up=result.reason == "ok")

    def snapshot(self) -> ServerSnapshot:
        """Return what is known now, its times as the wall clock has them."""
        now = self._clock.now()
        with self._lock:
            snapshot = self._state.snapshot(now)
        return _as_wall_time(snapshot, seconds_ahead(self._clock))

    def foresee(self) -> ServerSnapshot:
        """Return what there will be to see once there is traffic; the server is of no use afterwards."""
        with self._lock:
            return self._state.foresee(self._clock.now())

    def remember(self) -> None:
        """Keep the present values for the status page's charts."""
        snapshot = self.snapshot()
        gauges = [_total(snapshot, name) for name in _HISTORY_GAUGES]
        slowest = [engine.quantiles[_TTFT_P95].value for engine in snapshot.engines if _TTFT_P95 in engine.quantiles]
        self._history.append((snapshot.at, *gauges, max(slowest, default=None)))

    def history(self) -> dict[str, list[float | None]]:
        """Return the last hour's values by name, with their times as `t`."""
        names = ("t", *_HISTORY_GAUGES, "ttft_p95")
        rows = list(self._history)
        return {name: [row[column] for row in rows] for column, name in enumerate(names)}

    def close(self) -> None:
        """Let go of files and connections; of files in a thread of its own, since closing them may hang, too."""
        self._is_closed = True
        if self._tail is not None and not self.is_overdue:
            patience = max(self._look_began + CLOSE_SECONDS - time.monotonic(), 0.0)
            closing = threading.Thread(target=self._close_tail, args=(patience,), name="close", daemon=True)
            closing.start()
            closing.join(patience + CLOSE_SECONDS)
        if self._scraper is not None:
            self._scraper.close()
        if self._prober is not None:
            self._prober.close()

    def _close_tail(self, patience: float) -> None:
        # A look that hangs keeps its files: closing them under it could close another's. It closes them in the end.
        if self._tail is not None and self._looking.acquire(timeout=patience):
            self._tail.close()
            self._looking.release()

    def _apply_scrape(self, result: ScrapeResult) -> None:
        if self._is_closed:
            return
        with self._lock:
            self._state.apply_scrape(result)
        self._note("metrics", result.reason, is_up=result.reading is not None)
        self.has_scraped = True

    def _look_at(self, tail: LogTailer | JournalTailer) -> bool:
        now = self._clock.now()
        batches = tail.poll(now)
        status = self._with_watch_mode(tail.status())
        with self._lock:
            for batch, is_history in batches:
                self._state.apply_log(batch, is_history=is_history)
            self._log_status = status
            self._state.apply_log_status(status)
        self._read = _Read(_positions(tail), self._clock.wall(now), is_present=True)
        if not self.awaits_log:
            self._note("log", status.reason, is_up=status.is_up)
        self._note_nuls(status.tail.nul_bytes)
        self.has_looked_at_log = True
        return tail.has_more

    def _with_watch_mode(self, status: LogStatus) -> LogStatus:
        if not isinstance(self._tail, LogTailer):
            return status
        return status._replace(tail=status.tail._replace(watch_mode="events" if self.has_hints else "poll"))

    def _note_nuls(self, nul_bytes: int) -> None:
        """Say once that the log's writer makes holes in it."""
        if nul_bytes and not self._has_said_nuls:
            self._has_said_nuls = True
            log.warning(
                "log.nul_bytes",
                server=self.name,
                bytes=nul_bytes,
                meaning="The log's writer lacks O_APPEND, so that truncating the log leaves a hole: start the server "
                "with >> instead of >.",
            )

    def _note(self, source: SourceName, reason: str, *, is_up: bool) -> None:
        """Say once in the daemon's log that a source works, or why it does not."""
        if self._reasons.get(source) == reason:
            return
        self._reasons[source] = reason
        say = log.info if is_up else log.warning
        say("source.changed", server=self.name, source=source, reason=reason, meaning=explain(source, reason))


class _Read(NamedTuple):
    """
    How far a log was read, and a moment before which all that was written to it had been, by the wall clock; positions
    that say another one have their own.

    `is_present` tells that this process has read it, and not an earlier one.
    """

    positions: Positions
    until: float
    is_present: bool = False


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
    )


def _tail(config: ServerConfig, before: Loaded, clock: Clock) -> LogTailer | JournalTailer | None:
    if config.journal is not None:
        cursors = [position.cursor for position in before.positions.of(None, config.journal).journals]
        return JournalTailer(config.journal, cursor=cursors[0] if cursors else None, wall=clock.wall)
    if config.log is None:
        return None
    return LogTailer(config.log, before.positions.of(config.log, None).files, before.written, clock.wall)


def _positions(tail: LogTailer | JournalTailer | None) -> Positions:
    if isinstance(tail, LogTailer):
        return Positions(files=tail.positions())
    if tail is None or tail.cursor is None:
        return Positions()
    return Positions(journals=(JournalPosition(tail.unit, tail.cursor),))


def _scraper(config: ServerConfig, clock: Clock) -> Scraper | None:
    metrics = config.metrics
    if metrics is None:
        return None
    target = ScrapeTarget(metrics.url, metrics.timeout, metrics.bearer_token_file, _tls_options(metrics.tls))
    return Scraper(target, clock)


def _prober(config: ServerConfig, clock: Clock) -> Prober | None:
    probe, url = config.probe, config.probe_url
    if probe is None or url is None:
        return None
    tls = _tls_options(config.metrics.tls if config.metrics else None)
    return Prober(ProbeTarget(url, probe.timeout, probe.api_key_file, probe.model, tls), clock)


def _tls_options(tls: TlsConfig | None) -> TlsOptions:
    return TlsOptions(tls.ca_file, tls.cert_file, tls.key_file) if tls else TlsOptions()


def _total(snapshot: ServerSnapshot, name: str) -> float | None:
    """Return a gauge over all engines: added up, but the fullest one of shares."""
    values = [engine.gauges[name].value for engine in snapshot.engines if name in engine.gauges]
    if not values:
        return None
    return max(values) if name.endswith("_ratio") else sum(values)


def seconds_ahead(clock: Clock) -> float:
    """
    Return how far the wall clock is ahead of the steady time.

    In whole seconds, so that a timestamp that stands for long does not tremble with every look.
    """
    now = clock.now()
    return float(round(clock.wall(now) - now))


def wall_time(clock: Clock, moment: float) -> float:
    """Return a steady time as it leaves the process."""
    return moment + seconds_ahead(clock)


def _as_wall_time(snapshot: ServerSnapshot, ahead: float) -> ServerSnapshot:
    """Return a snapshot of steady times with the wall clock's, which is ahead of them by so much."""

    def move(moment: float) -> float:
        return moment + ahead

    return snapshot._replace(
        at=move(snapshot.at),
        start_time=None if snapshot.start_time is None else _moved_start(snapshot.start_time, move),
        engines=tuple(_moved_engine(engine, move) for engine in snapshot.engines),
        former=tuple(_moved_totals(totals, move) for totals in snapshot.former),
        sources=tuple(
            source._replace(last_reading=None if source.last_reading is None else move(source.last_reading))
            for source in snapshot.sources
        ),
        comparisons=tuple(item._replace(reading=_moved(item.reading, move)) for item in snapshot.comparisons),
        admission_rejections={key: _moved(value, move) for key, value in snapshot.admission_rejections.items()},
    )


def _moved_start(start: Reading, move: Move) -> Reading:
    """Return a start by the wall clock; what the server said itself is by one already, its own."""
    return _moved(start, move)._replace(value=move(start.value) if start.source == "log" else start.value)


def _moved_engine(engine: EngineSnapshot, move: Move) -> EngineSnapshot:
    gauges = {name: _moved(reading, move) for name, reading in engine.gauges.items()}
    last = gauges.get("last_token_timestamp_seconds")
    if last is not None:
        gauges["last_token_timestamp_seconds"] = last._replace(value=move(last.value))
    return engine._replace(
        gauges=gauges,
        position_acceptance=tuple(
            None if reading is None else _moved(reading, move) for reading in engine.position_acceptance
        ),
        totals=_moved_totals(engine.totals, move),
        quantiles={key: _moved(reading, move) for key, reading in engine.quantiles.items()},
        means={stage: _moved(reading, move) for stage, reading in engine.means.items()},
        first_bounds={stage: _moved(reading, move) for stage, reading in engine.first_bounds.items()},
    )


def _moved_totals(totals: EngineTotals, move: Move) -> EngineTotals:
    return totals._replace(
        counters={name: _moved(reading, move) for name, reading in totals.counters.items()},
        requests_finished={name: _moved(reading, move) for name, reading in totals.requests_finished.items()},
        histograms={name: _moved(reading, move) for name, reading in totals.histograms.items()},
    )


def _moved(reading: Timed, move: Move) -> Timed:
    return reading._replace(at=move(reading.at))
