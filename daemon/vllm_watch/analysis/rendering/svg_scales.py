# SPDX-License-Identifier: Apache-2.0
"""From values to places: linear and logarithmic scales with round ends, and their ticks."""

from __future__ import annotations

import math

from collections.abc import Iterable
from typing import NamedTuple


_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_FEW_DECADES = 2.5


class Scale(NamedTuple):
    """The values at both ends, `low` below `high`, and where the ticks are. Of a logarithmic scale both are above 0."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value is, 0 at the low end and 1 at the high end; what is beyond is at the end."""
        if self.is_log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)


class Plot(NamedTuple):
    """Where a plot is in a drawing: its axes, and its top and its height in pixels. It is as wide as the drawing."""

    x: Scale
    y: Scale
    top: float
    height: float

    @property
    def bottom(self) -> float:
        """Where its values begin, in pixels."""
        return self.top + self.height

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is: its place across from 0 to 1, and its pixels from the top of the drawing."""
        return self.x.share(x), self.bottom - self.height * self.y.share(y)


def linear(values: Iterable[float], ticks: int = 4) -> Scale:
    """Return a scale from 0, or from below the lowest value, to a round number that is not below the highest."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *known]), max([0.0, *known])
    step = _nice((high - low) / ticks) if high > low else 1.0
    first, last = math.floor(low / step), max(math.ceil(round(high / step, 6)), 1)
    return Scale(first * step, last * step, tuple(at * step for at in range(first, last + 1)))


def logarithmic(values: Iterable[float]) -> Scale:
    """Return a scale whose ends are 1, 2 or 5 times a power of ten, around those values that are above 0."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = min(known, default=1.0), max(known, default=10.0)
    low, high = _round_down(low), _round_up(max(high, low * 1.01))
    parts = (1.0, 2.0, 5.0) if math.log10(high / low) <= _FEW_DECADES else (1.0,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [part * 10.0**at for at in exponents for part in parts]
    return Scale(low, high, tuple(tick for tick in ticks if low * 0.999 <= tick <= high * 1.001), is_log=True)


def clock(start: float, end: float, ticks: int = 6) -> Scale:
    """Return a scale of time with exactly these ends, in seconds, and ticks at round times."""
    length = max(end - start, 1.0)
    step = next((each for each in _SECONDS if length / each <= ticks), _nice(length / ticks / 86400) * 86400)
    first, last = math.ceil(start / step), math.floor((start + length) / step)
    return Scale(start, start + length, tuple(float(at * step) for at in range(first, last + 1)))


def _nice(step: float) -> float:
    """Return a round number that is not below a step."""
    unit = 10.0 ** math.floor(math.log10(step))
    return next(each * unit for each in _STEPS if each * unit >= step * 0.999999)


def _round_down(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return max(each * unit for each in (1.0, 2.0, 5.0) if each * unit <= value * 1.000001)


def _round_up(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return next(each * unit for each in (1.0, 2.0, 5.0, 10.0) if each * unit >= value * 0.999999)
