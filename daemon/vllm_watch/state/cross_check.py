# SPDX-License-Identifier: Apache-2.0
"""
Whether log and page tell the same story of an engine, over minutes.

Each line of statistics is held against the pages read around it. One line that differs says nothing: the two look at
different moments. Many that differ mean that the log is another server's, that the page is, or that a stranger writes
into the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_watch_parsers.events import EngineStats
from vllm_watch_parsers.scrape import EngineReading


WINDOW_SECONDS = 300.0
"""Lines older than this are forgotten."""

LASTING_LINES = 6
"""So many lines that differ make a lasting disagreement, and fewer that were compared make no agreement either."""

LASTING_SHARE = 1 / 3
"""The share of lines that differ: a forged line between every two true ones is half of them."""

AROUND_SECONDS = 20.0
"""Pages are compared with a line if they were read so long before its interval or after it."""

MAX_POINTS = 512

RATE = "generation_tokens_per_second"
_GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
QUANTITIES = (*_GAUGES, RATE)
"""What is compared: quantities that mean the same in both sources on every release."""

_LEAST = {"requests_running": 5.0, "requests_waiting": 5.0, "kv_cache_usage_ratio": 0.25, RATE: 10.0}
"""Smaller differences are none, whatever share of the value they are."""

_SHARE = 0.5
"""Smaller differences, as a share of the greater value, are none."""


class _Page(NamedTuple):
    """What a page said, with the rate since the page before it."""

    at: float
    generated: float | None
    values: Mapping[str, float]


class _Line(NamedTuple):
    """What a line said of the seconds from `start` to `at`."""

    start: float
    at: float
    values: Mapping[str, float]


class _Verdict(NamedTuple):
    """A line's time, and for each quantity that could be compared whether it differs."""

    at: float
    differs: Mapping[str, bool]


def summed(engines: Iterable[EngineReading]) -> EngineReading:
    """Return what a line that sums over several engines is held against: sums, and the mean of the shares."""
    every = list(engines)
    gauges = {name: sum(values) for name in _GAUGES if len(values := _values(every, name)) == len(every)}
    if "kv_cache_usage_ratio" in gauges:
        gauges["kv_cache_usage_ratio"] /= len(every)
    generated = [engine.counters.get("generation_tokens") for engine in every]
    known = [count for count in generated if count is not None]
    counters = {"generation_tokens": sum(known)} if len(known) == len(every) else {}
    return EngineReading(gauges, counters, {}, {}, ())


def _values(engines: Iterable[EngineReading], name: str) -> list[float]:
    return [engine.gauges[name] for engine in engines if name in engine.gauges]


class CrossCheck:
    """Compares one engine's lines with its pages."""

    def __init__(self) -> None:
        self._pages: deque[_Page] = deque(maxlen=MAX_POINTS)
        self._lines: deque[_Line] = deque(maxlen=MAX_POINTS)
        self._verdicts: deque[_Verdict] = deque(maxlen=MAX_POINTS)

    def add_line(self, at: float, interval: float, stats: EngineStats) -> None:
        """Take in a line of statistics and the seconds that its rates are over."""
        said = {name: getattr(stats, name) for name in QUANTITIES}
        values = {name: float(value) for name, value in said.items() if value is not None}
        self._lines.append(_Line(at - interval, at, values))

    def add_silence(self, at: float, interval: float) -> None:
        """Take in that an engine whose last word was that it is idle still says nothing: it means zeros."""
        last = self._lines[-1].at if self._lines else self._verdicts[-1].at if self._verdicts else None
        if last is None or at - last >= interval:
            self._lines.append(_Line(at - interval, at, dict.fromkeys(QUANTITIES, 0.0)))

    def add_page(self, at: float, engine: EngineReading) -> None:
        """Take in a page, and judge the lines that have pages on both sides now."""
        generated = engine.counters.get("generation_tokens")
        values = {name: engine.gauges[name] for name in _GAUGES if name in engine.gauges}
        rate = self._rate(at, generated)
        if rate is not None:
            values[RATE] = rate
        self._pages.append(_Page(at, generated, values))
        while self._lines and self._lines[0].at + AROUND_SECONDS <= at:
            line = self._lines.popleft()
            self._verdicts.append(_Verdict(line.at, self._compare(line)))
        oldest = self._lines[0].start if self._lines else at - WINDOW_SECONDS
        while self._pages and self._pages[0].at < min(oldest, at - WINDOW_SECONDS) - AROUND_SECONDS:
            self._pages.popleft()

    def disagreements(self, now: float) -> dict[str, bool]:
        """Return for each quantity whether the sources disagree; one that was hardly compared is not there."""
        while self._verdicts and now - self._verdicts[0].at > WINDOW_SECONDS:
            self._verdicts.popleft()
        found = {}
        for name in QUANTITIES:
            said = [verdict.differs[name] for verdict in self._verdicts if name in verdict.differs]
            if len(said) >= LASTING_LINES:
                differing = sum(said)
                found[name] = differing >= LASTING_LINES and differing >= len(said) * LASTING_SHARE
        return found

    def _rate(self, at: float, generated: float | None) -> float | None:
        last = self._pages[-1] if self._pages else None
        if last is None or last.generated is None or generated is None or at <= last.at:
            return None
        return (generated - last.generated) / (at - last.at)

    def _compare(self, line: _Line) -> dict[str, bool]:
        start, end = line.start - AROUND_SECONDS, line.at + AROUND_SECONDS
        near = [page.values for page in self._pages if start <= page.at <= end]
        compared = {}
        for name, value in line.values.items():
            seen = [values[name] for values in near if name in values]
            if seen:
                compared[name] = _differs(name, value, seen)
        return compared


def _differs(name: str, value: float, seen: Iterable[float]) -> bool:
    """Tell whether a value is far outside of all that was seen."""
    low, high = min(seen), max(seen)
    distance = max(low - value, value - high, 0.0)
    return distance > max(_LEAST[name], _SHARE * max(value, high))
