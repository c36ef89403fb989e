# SPDX-License-Identifier: Apache-2.0
"""Series as paths: thinned to what can be seen, with every peak, and with gaps where nothing is known."""

from __future__ import annotations

import statistics

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from vllm_watch.analysis.rendering.svg import LAYER_WIDTH, number
from vllm_watch.analysis.rendering.svg_scales import Plot


COLUMNS = 600
"""Into how many columns a series is thinned: each keeps its lowest and its highest value."""

_GAP_STEPS = 5


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


def series_path(xs: Sequence[float], ys: Sequence[float | None], plot: Plot, columns: int = COLUMNS) -> str:
    """
    Return the path of a series in the layer of a plot, empty if nothing of it is known.

    Args:
        xs: Ascending places along the level axis. Where they are far apart is a gap.
        ys: The value at each; `None` is a gap.
        plot: Where it is drawn.
        columns: Into how many columns the series is thinned.
    """
    spots = [Spot(*plot.place(spot.x, spot.y), spot.is_start) for spot in _known(xs, ys)]
    parts: list[str] = []
    for spot in thinned(spots, columns):
        command = "M" if spot.is_start or not parts else "L"
        parts.append(f"{command}{round(spot.x * LAYER_WIDTH)} {number(spot.y - plot.top)}")
    # A stroke of no length is a dot: a point alone between two gaps is seen.
    return "".join(_with_dots(parts))


def thinned(spots: Sequence[Spot], columns: int) -> Iterator[Spot]:
    """Yield the lowest and the highest spot of each column, in their order; a gap between two columns stays one."""
    for _, group in groupby(spots, key=lambda spot: min(int(spot.x * columns), columns - 1)):
        column = list(group)
        low, high = min(column, key=lambda spot: spot.y), max(column, key=lambda spot: spot.y)
        first, last = sorted((low, high), key=lambda spot: spot.x)
        yield first._replace(is_start=column[0].is_start)
        if last is not first:
            yield last._replace(is_start=False)


def _known(xs: Sequence[float], ys: Sequence[float | None]) -> Iterator[Spot]:
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
