# SPDX-License-Identifier: Apache-2.0
"""
Whether the log and /metrics agree about an engine, over minutes, and what each of them reports.

Each line of statistics is compared with the scrapes around it. One line that differs proves nothing: the two are of
different moments. If many differ, the log or /metrics is another server's, or somebody else writes into the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.state.engine_log import name_of
from vllm_watch.daemon.state.engine_state import is_end_contradicted
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch_parsers.events import EngineStats
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.readings import EngineReading, MetricsReading


WINDOW_SECONDS = 300.0
"""Lines older than this are forgotten."""

LASTING_LINES = 6
"""This many lines that differ make a lasting disagreement; if fewer were compared, there is no agreement either."""

LASTING_SHARE = 1 / 3
"""The share of lines that differ: a forged line between every two true ones is half of them."""

AROUND_SECONDS = 20.0
"""Scrapes are compared with a line if they are at most this long before or after its interval."""

MAX_POINTS = 512

RATE = "generation_tokens_per_second"
_GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
QUANTITIES = (*_GAUGES, RATE)
"""What is compared: quantities that mean the same in both sources on every release."""

_LEAST = {"requests_running": 5.0, "requests_waiting": 5.0, "kv_cache_usage_ratio": 0.25, RATE: 10.0}
"""Smaller differences do not count, whatever share of the value they are."""

_SHARE = 0.5
"""Smaller differences, as a share of the greater value, do not count."""


class _Scrape(NamedTuple):
    """What a scrape reported of each of `QUANTITIES`, in their order, with the rate since the one before it."""

    at: float
    generated: float | None
    values: tuple[float | None, ...]


class _Line(NamedTuple):
    """What a line reports about the seconds from `start` to `at`."""

    start: float
    at: float
    values: Mapping[str, float]


class EngineCrossCheck:
    """Compares the lines about one engine with its scrapes."""

    def __init__(self) -> None:
        self._scrapes: deque[_Scrape] = deque(maxlen=MAX_POINTS)
        self._lines: deque[_Line] = deque(maxlen=MAX_POINTS)
        self._verdicts: deque[tuple[float, Mapping[str, bool]]] = deque(maxlen=MAX_POINTS)
        """The time of each line, and for each quantity that could be compared whether it differs."""

    def add_line(self, at: float, interval: float, stats: EngineStats) -> None:
        """Take in a line of statistics and the seconds that its rates are over."""
        logged = {name: getattr(stats, name) for name in QUANTITIES}
        values = {name: float(value) for name, value in logged.items() if value is not None}
        self._lines.append(_Line(at - interval, at, values))

    def add_silence(self, at: float, interval: float, stats: EngineStats) -> None:
        """Take in that the log of an idle engine is still silent: what its last line reports holds."""
        last = self._lines[-1].at if self._lines else self._verdicts[-1][0] if self._verdicts else None
        if last is None or at - last >= interval:
            self.add_line(at, interval, stats)

    def add_scrape(self, at: float, engine: EngineReading) -> None:
        """Take in a scrape, and judge the lines that now have scrapes before and after them."""
        generated = engine.counters.get("generation_tokens")
        values = (*map(engine.gauges.get, _GAUGES), self._rate(at, generated))
        self._scrapes.append(_Scrape(at, generated, values))
        while self._lines and self._lines[0].at + AROUND_SECONDS <= at:
            line = self._lines.popleft()
            self._verdicts.append((line.at, self._compare(line)))
        oldest = self._lines[0].start if self._lines else at - WINDOW_SECONDS
        while self._scrapes and self._scrapes[0].at < min(oldest, at - WINDOW_SECONDS) - AROUND_SECONDS:
            self._scrapes.popleft()

    def disagreements(self, now: float) -> dict[str, bool]:
        """Return for each quantity whether the sources disagree; one that was rarely compared is left out."""
        while self._verdicts and now - self._verdicts[0][0] > WINDOW_SECONDS:
            self._verdicts.popleft()
        found = {}
        for name in QUANTITIES:
            verdicts = [differs[name] for _, differs in self._verdicts if name in differs]
            if len(verdicts) >= LASTING_LINES:
                differing = sum(verdicts)
                found[name] = differing >= LASTING_LINES and differing >= len(verdicts) * LASTING_SHARE
        return found

    def _rate(self, at: float, generated: float | None) -> float | None:
        last = self._scrapes[-1] if self._scrapes else None
        if last is None or last.generated is None or generated is None or at <= last.at:
            return None
        return (generated - last.generated) / (at - last.at)

    def _compare(self, line: _Line) -> dict[str, bool]:
        start, end = line.start - AROUND_SECONDS, line.at + AROUND_SECONDS
        near = [scrape.values for scrape in self._scrapes if start <= scrape.at <= end]
        compared = {}
        for place, name in enumerate(QUANTITIES):
            seen = [value for values in near if (value := values[place]) is not None]
            if seen and name in line.values:
                compared[name] = _differs(name, line.values[name], seen)
        return compared


def _differs(name: str, value: float, seen: Iterable[float]) -> bool:
    """Return whether a value is far outside of the range of those that were seen."""
    low, high = min(seen), max(seen)
    distance = max(low - value, value - high, 0.0)
    return distance > max(_LEAST[name], _SHARE * max(value, high))


class CrossCheck:
    """Compares the log of one server with its /metrics, engine by engine."""

    def __init__(self, sources: ServerSources) -> None:
        self._sources = sources
        self._engines: dict[EngineKey, EngineCrossCheck] = {}

    def compare_with_scrapes(self, batch: LogBatch) -> None:
        """Take in lines that were just written."""
        sources = self._sources
        if sources.log is None or not self._engines:
            return
        for at, event in batch.events:
            if isinstance(event, EngineStats) and event.requests_running is not None:
                name = name_of(event)
                engine = sources.log.engines.get(name)
                for key, check in self._engines.items():
                    if engine is not None and sources.name_in_log(key) == name:
                        check.add_line(at, engine.interval, event)

    def compare_with_log(self, at: float, reading: MetricsReading, *, is_log_idle: bool) -> None:
        """
        Take in a scrape.

        Args:
            at: When it was read.
            reading: What it reports.
            is_log_idle: Whether the log is silent because the engines are idle.
        """
        log = self._sources.log
        if log is None:
            return
        self._engines = {key: self._engines.get(key) or EngineCrossCheck() for key in reading.engines}
        for key, check in self._engines.items():
            logged = log.engines.get(self._sources.name_in_log(key))
            if logged is not None and is_log_idle:
                check.add_silence(at, logged.interval, logged.stats)
            check.add_scrape(at, reading.engines[key])

    def disagreements(self, key: EngineKey, now: float) -> dict[str, bool]:
        """Return for each quantity that was compared for minutes, and for the state, whether the sources disagree."""
        check = self._engines.get(key)
        found = check.disagreements(now) if check else {}
        log, scrape = self._sources.readable_log, self._sources.scrape
        if log is not None and scrape is not None:
            is_contradicted = is_end_contradicted(log, scrape, now)
            if is_contradicted is not None:
                found["engine_state"] = is_contradicted
        return found

    def forget(self) -> None:
        """Take in that the server was started again."""
        self._engines.clear()
