# SPDX-License-Identifier: Apache-2.0
"""Drawings as SVG: elements as text, the styles of lines and marks, scales, axes, and series as paths."""

from __future__ import annotations

import html
import math
import statistics

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from vllm_watch.daemon.catalog.number_texts import duration, limit
from vllm_watch.daemon.support.printable import printable


LAYER_WIDTH = 1000
"""The units across a layer."""

Attributes: TypeAlias = Mapping[str, float | str]

_BESIDE = {"start": {"dx": "4"}, "end": {"dx": "-4"}}

_SAMPLE_WIDTH = 28

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_FEW_DECADES = 2.5

AXIS_HEIGHT = 36
"""The pixels below a plot that its level axis takes, with its title."""

_SMALL = 4
_BELOW = 15
_TITLE_BELOW = 31
_COLUMNS = 600
"""Into how many columns a series is thinned: each keeps its lowest and its highest value."""

TABLE_ROWS = 40
"""How many rows the table behind a drawing has."""

_GAP_STEPS = 5

_IN_SECONDS = 5000.0
"""From this many milliseconds on an axis is in seconds."""


def element(name: str, attributes: Attributes, *children: str) -> str:
    """Return an element; its attributes are escaped, its children are elements or escaped texts."""
    written = "".join(f' {key}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def escaped(text: str) -> str:
    """Return a text as HTML and SVG show it, with everything escaped that cannot be seen."""
    return html.escape(printable(text))


def number(value: float) -> str:
    """Return a coordinate, to a tenth of a pixel."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # The sum makes 0 of -0.


def across(share: float) -> str:
    """Return a place across the drawing, from 0 to 1, as per cent."""
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + "%"


def drawing(key: str, title: str, description: str, height: float, *children: str) -> str:
    """Return a whole drawing that a screen reader reads as its title and description."""
    attributes: Attributes = {
        "class": "drawing",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-desc",
        "width": "100%",
        "height": height,
    }
    named = (
        element("title", {"id": f"{key}-title"}, escaped(title)),
        element("desc", {"id": f"{key}-desc"}, escaped(description)),
    )
    return element("svg", attributes, *named, *children)


def layer(top: float, height: float, *children: str) -> str:
    """Return a part of a drawing that is stretched to its width: `LAYER_WIDTH` units across, pixels down."""
    attributes: Attributes = {
        "y": top,
        "width": "100%",
        "height": height,
        "viewBox": f"0 0 {LAYER_WIDTH} {number(height)}",
        "preserveAspectRatio": "none",
        "overflow": "visible",
    }
    return element("svg", attributes, *children)


def label(text: str, share: float, top: float, style: str = "label", anchor: str = "middle") -> str:
    """Return a text whose middle, or some pixels beside it start or end, is at a place across, its base at `top`."""
    attributes = {"class": style, "x": across(share), "y": number(top), "text-anchor": anchor}
    return element("text", attributes | _BESIDE.get(anchor, {}), escaped(text))


def upright(share: float, top: float, bottom: float, style: str) -> str:
    """Return an upright line at a place across."""
    place = across(share)
    return element("line", {"class": style, "x1": place, "x2": place, "y1": top, "y2": bottom})


def _value(value: float | str) -> str:
    return html.escape(value) if isinstance(value, str) else number(value)


class Style(NamedTuple):
    """A line's colour on a light and on a dark ground, its dashes, and the path of its mark around 0, 0."""

    light: str
    dark: str
    dashes: str
    mark: str


STYLES = (
    Style("#0072b2", "#56b4e9", "none", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    Style("#c25400", "#e69f00", "7 3", "M-3.6-3.6h7.2v7.2h-7.2z"),
    Style("#00785a", "#2fc79b", "2 3", "M0-4.6L4.6 3.6H-4.6z"),
    Style("#a3215c", "#e078ad", "9 3 2 3", "M0-5L5 0L0 5L-5 0z"),
    Style("#5a6572", "#aab4bf", "12 4", "M0 4.6L4.6-3.6H-4.6z"),
    Style("#7a5a00", "#f0e442", "4 2 1 2 1 2", "M-4.4-1.5h2.9v-2.9h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9z"),
)
"""The styles in the order in which they are used; more lines than these begin anew."""


def style_rules() -> str:
    """Return the rules of the styles: ``--c0`` and so on are the colours, ``s0`` and so on the classes."""
    light = "".join(f"--c{at}:{style.light};" for at, style in enumerate(STYLES))
    dark = "".join(f"--c{at}:{style.dark};" for at, style in enumerate(STYLES))
    rules = "".join(
        f".s{at}{{--c:var(--c{at})}}.line.s{at}{{stroke-dasharray:{style.dashes}}}" for at, style in enumerate(STYLES)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"


def style_class(style: int) -> str:
    """Return the class of a style."""
    return f"s{style % len(STYLES)}"


def mark(style: int, share: float, top: float) -> str:
    """Return a mark at a place across; it keeps its shape however wide the drawing is."""
    path = element("path", {"class": f"mark {style_class(style)}", "d": STYLES[style % len(STYLES)].mark})
    return element("svg", {"x": across(share), "y": top, "overflow": "visible"}, path)


def arrow(style: int, share: float, top: float, *, is_left: bool = False) -> str:
    """Return a head of an arrow at a place across, which says that something goes on there."""
    path = element("path", {"class": f"mark {style_class(style)}", "d": f"M0-5L{'-' * is_left}9 0L0 5z"})
    return element("svg", {"x": across(share), "y": top, "overflow": "visible"}, path)


def sample(style: int, *, is_marked: bool) -> str:
    """Return a small drawing of a line for a legend."""
    line = element("path", {"class": f"line {style_class(style)}", "d": f"M0 7H{_SAMPLE_WIDTH}"})
    marks = [mark(style, 0.5, 7)] if is_marked else []
    size: Attributes = {"class": "sample", "width": _SAMPLE_WIDTH, "height": 14, "aria-hidden": "true"}
    return element("svg", size, line, *marks)


class Scale(NamedTuple):
    """
    The values at both ends, `low` below `high`, and where the ticks are. Of a logarithmic scale both are above 0.

    `room` is the part of the drawing to the left of the low end, for labels.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False
    room: float = 0.0

    def share(self, value: float) -> float:
        """Return where a value is, `room` at the low end and 1 at the high end; what is beyond is at the end."""
        if self.is_log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.room + (1.0 - self.room) * min(max(part, 0.0), 1.0)


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
    unit = 10.0 ** math.floor(math.log10(step))
    return next(each * unit for each in _STEPS if each * unit >= step * 0.999999)


def _round_down(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return max(each * unit for each in (1.0, 2.0, 5.0) if each * unit <= value * 1.000001)


def _round_up(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return next(each * unit for each in (1.0, 2.0, 5.0, 10.0) if each * unit >= value * 0.999999)


def upright_axis(plot: Plot, show: Callable[[float], str] = limit) -> str:
    """Return the level lines of a plot at the ticks of its upright axis, with their numbers."""
    parts = []
    for tick in plot.y.ticks:
        _, y = plot.place(plot.x.low, tick)
        parts.append(element("line", {"class": "grid", "x1": "0", "x2": "100%", "y1": y, "y2": y}))
        parts.append(label(show(tick), 0, y + _SMALL, "tick", "end"))
    return "".join(parts)


def level_axis(plot: Plot, title: str, show: Callable[[float], str] = limit, *, has_grid: bool = True) -> str:
    """Return the level axis below a plot, with upright lines through it if they help, and the axis's title."""
    parts = []
    for at, tick in enumerate(plot.x.ticks):
        share = plot.x.share(tick)
        if has_grid:
            parts.append(upright(share, plot.top, plot.bottom, "grid"))
        # On a narrow screen every other number is hidden.
        parts.append(label(show(tick), share, plot.bottom + _BELOW, "tick minor" if at % 2 else "tick"))
    return "".join(parts) + base(plot.bottom, title)


def base(bottom: float, title: str) -> str:
    """Return the line that a plot's values begin at, and the title of its level axis."""
    line = element("line", {"class": "frame", "x1": "0", "x2": "100%", "y1": bottom, "y2": bottom})
    return line + label(title, 1, bottom + _TITLE_BELOW, "axis-title", "end")


def band(left: float, right: float, top: float, height: float, style: str) -> str:
    """Return a rectangle behind a plot, between two places across."""
    place: Attributes = {"x": across(left), "width": across(max(right - left, 0.0)), "y": top, "height": height}
    return element("rect", {"class": style, **place})


def latency_ticks(scale: Scale) -> tuple[Callable[[float], str], str]:
    """Return how the ticks of latencies in milliseconds are written, all in one unit, and that unit."""
    if scale.high < _IN_SECONDS:
        return limit, "ms"
    return lambda value: limit(value / 1000), "s"


def since_start(seconds: float) -> str:
    """Return a tick of time since the start."""
    return "0" if seconds == 0 else duration(seconds)


class Spot(NamedTuple):
    """A known point of a series; `is_start` is whether nothing is known between it and the one before."""

    x: float
    y: float
    is_start: bool


def joined(points: Sequence[tuple[float, float]], plot: Plot) -> str:
    """Return the path through points in the layer of a plot, empty if there are none."""
    places = [plot.place(x, y) for x, y in points]
    shown = [f"{number(x * LAYER_WIDTH)} {number(y - plot.top)}" for x, y in places]
    return f"M{'L'.join(shown)}" if shown else ""


def series_path(xs: Sequence[float], ys: Sequence[float | None], plot: Plot) -> str:
    """Return the path of a series in a plot's layer; gaps are where a value is `None`, or places are far apart."""
    spots = [Spot(*plot.place(spot.x, spot.y), spot.is_start) for spot in _spots(xs, ys)]
    parts: list[str] = []
    for spot in _thinned(spots):
        command = "M" if spot.is_start or not parts else "L"
        parts.append(f"{command}{round(spot.x * LAYER_WIDTH)} {number(spot.y - plot.top)}")
    # A stroke of no length is a dot: a point alone between two gaps is seen.
    return "".join(_with_dots(parts))


def _thinned(spots: Sequence[Spot]) -> Iterator[Spot]:
    """Yield the lowest and the highest spot of each column, in their order; a gap between two columns stays one."""
    for _, group in groupby(spots, key=lambda spot: min(int(spot.x * _COLUMNS), _COLUMNS - 1)):
        column = list(group)
        low, high = min(column, key=lambda spot: spot.y), max(column, key=lambda spot: spot.y)
        first, last = sorted((low, high), key=lambda spot: spot.x)
        yield first._replace(is_start=column[0].is_start)
        if last is not first:
            yield last._replace(is_start=False)


def _spots(xs: Sequence[float], ys: Sequence[float | None]) -> Iterator[Spot]:
    steps = [after - before for before, after in pairwise(xs) if after > before]
    gap = _GAP_STEPS * statistics.median(steps) if steps else 0.0
    last: float | None = None
    for x, y in zip(xs, ys, strict=False):
        if y is not None:
            yield Spot(x, y, last is None or x - last > gap)
        last = None if y is None else x


def _with_dots(parts: Sequence[str]) -> Iterator[str]:
    for part, after in pairwise([*parts, "M"]):
        is_alone = part.startswith("M") and after.startswith("M")
        yield f"{part}h0" if is_alone else part


def polyline(style: int, plot: Plot, path: str) -> str:
    """Return a line in the layer of a plot; nothing if its path is empty."""
    line = element("path", {"class": f"line {style_class(style)}", "d": path})
    return layer(plot.top, plot.height, line) if path else ""
