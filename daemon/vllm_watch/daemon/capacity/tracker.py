# SPDX-License-Identifier: Apache-2.0
"""
The capacity of an engine in tokens per second, with its bounds, on each basis; or why none is known.

What is learnt of an engine while it runs is kept in bounded memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from vllm_watch.daemon.capacity.curve import Curve, LoadWindow, NoCurve, WindowCutter, draw_curve, load_level
from vllm_watch.daemon.capacity.load import CapacityRange, EngineCapacity, LoadSample
from vllm_watch.daemon.capacity.saturation import SATURATED_BOUNDS, SaturationMeter, Stretch
from vllm_watch.daemon.catalog.codes import CapacityBasis, CapacityReason


WINDOWS_PER_LEVEL = 16
"""How many windows of each level of running requests are kept, the last ones."""

DRAW_EVERY = 20
"""After this many new windows, five minutes of work, a curve is drawn again: that costs as much as a scrape."""

_FACTS = ("max_running_requests", "kv_cache_capacity_tokens")


BENCH_BOUNDS = (0.9, 1.1)
"""Between which parts of what a benchmark has measured the capacity is."""


def measured_range(value: float, low: float | None, high: float | None, prompt: float | None) -> CapacityRange:
    """Return the capacity that a benchmark has measured, to 10 % where its bounds are not known."""
    parts = BENCH_BOUNDS
    return CapacityRange(
        value, value * parts[0] if low is None else low, value * parts[1] if high is None else high, prompt
    )


class Learnt(NamedTuple):
    """The capacity by what an engine did: measured while it was saturated, and by a curve, or why there is none."""

    saturated: Stretch | None
    curve: Curve | NoCurve


class CapacityTracker:
    """Takes in one engine's samples in order of time, of one life of its server."""

    def __init__(self) -> None:
        self.meter = SaturationMeter()
        self._cutter = WindowCutter()
        self._windows: dict[int, deque[LoadWindow]] = defaultdict(partial(deque, maxlen=WINDOWS_PER_LEVEL))
        self._new_windows = 0
        self._has_changed = True
        self._facts: tuple[float | None, ...] | None = None
        self._learnt = Learnt(None, NoCurve("too_few_loads"))

    def add(self, sample: LoadSample) -> None:
        """Take in a sample."""
        self._has_changed |= self.meter.add(sample)
        window = self._cutter.add(sample)
        if window is not None:
            self._windows[load_level(window.running)].append(window)
            self._new_windows += 1

    def learnt(self, facts: Mapping[str, float]) -> Learnt:
        """Return what is known of an engine with these facts: the same object until something changes."""
        if self._new_windows >= DRAW_EVERY or tuple(map(facts.get, _FACTS)) != self._facts:
            return self.draw(facts)
        if self._has_changed:
            self._learnt = self._learnt._replace(saturated=self.meter.measured(facts))
            self._has_changed = False
        return self._learnt

    def draw(self, facts: Mapping[str, float]) -> Learnt:
        """Return what is known now of an engine with these facts, with a curve through all windows."""
        self._learnt = Learnt(self.meter.measured(facts), draw_curve(self.windows, facts))
        self._facts = tuple(map(facts.get, _FACTS))
        self._has_changed, self._new_windows = False, 0
        return self._learnt

    @property
    def windows(self) -> tuple[LoadWindow, ...]:
        """The windows that are kept."""
        return tuple(window for of_level in self._windows.values() for window in of_level)


def saturated_range(stretch: Stretch) -> CapacityRange:
    """Return the capacity that a stretch has shown."""
    value, (low, high) = stretch.generated or 0.0, SATURATED_BOUNDS
    return CapacityRange(value, low * value, high * value, stretch.computed)


def curve_range(curve: Curve) -> CapacityRange:
    """Return the capacity that a curve shows: from what was seen to its value at the limit, and the middle of these."""
    middle = (curve.seen + curve.at_limit) / 2
    prompt = None if curve.computed is None else middle * curve.computed
    return CapacityRange(middle, curve.seen, curve.at_limit, prompt)


def engine_capacity(
    tracker: CapacityTracker | None, facts: Mapping[str, float], bench: CapacityRange | None, engines: float
) -> EngineCapacity:
    """
    Return the capacity of an engine.

    Args:
        tracker: What was learnt of it; `None` without scrapes of it.
        facts: What it was started with.
        bench: What a benchmark has measured of all engines of the server together.
        engines: How many those are.
    """
    ranges: dict[CapacityBasis, CapacityRange] = {}
    reason: CapacityReason | None = "no_metrics"
    learnt = None if tracker is None else tracker.learnt(facts)
    if learnt is not None and learnt.saturated is not None:
        ranges["saturated"] = saturated_range(learnt.saturated)
    if bench is not None:
        ranges["bench"] = bench.part(engines)
    if learnt is not None:
        curve = learnt.curve
        if isinstance(curve, NoCurve):
            reason = curve.reason
        else:
            ranges["curve"] = curve_range(curve)
    return EngineCapacity(ranges, None if ranges else reason)
