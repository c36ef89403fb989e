# SPDX-License-Identifier: Apache-2.0
"""How latencies are spread: drawings of the share of the values at or below each bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from vllm_watch.analysis.loadtest.load_test import Distribution, Run
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Group, Table
from vllm_watch.daemon.catalog.language import _, sentences
from vllm_watch.daemon.catalog.metric_titles import LATENCY_NAMES, LatencyName
from vllm_watch.daemon.catalog.number_texts import count, limit, milliseconds, percent


_TOP, _HEIGHT = 14, 200
_MARKED = 30
_ROOM_BELOW = 4
_MUCH_BELOW = 0.05

_Curve = tuple[tuple[float, float], ...]
"""Bounds, each with the share of the values at or below it."""


def is_known(distribution: Distribution) -> bool:
    """Whether there are values, in buckets that fit their bounds."""
    return len(distribution.counts) == len(distribution.bounds) + 1 and sum(distribution.counts) > 0


def shares_below(distribution: Distribution) -> _Curve:
    """Return the share of the values up to each bound, from the last bound below all to the first above all of them."""
    if not is_known(distribution):
        return ()
    total = sum(distribution.counts)
    reached = accumulate(distribution.counts[:-1])
    shares = [(bound, value / total) for bound, value in zip(distribution.bounds, reached, strict=True)]
    start = max((at for at, (_, share) in enumerate(shares) if share == 0), default=0)
    end = min((at for at, (_, share) in enumerate(shares) if share == 1), default=len(shares))
    return tuple(shares[start : end + 1])


def together(distributions: Sequence[Distribution]) -> Distribution:
    """
    Return distributions as one.

    Where their bounds are not the same, the values of a bucket count at its upper bound: the share below each of their
    bounds is never too high.
    """
    known = [each for each in distributions if is_known(each)]
    bounds = sorted({bound for each in known for bound in each.bounds})
    places = {bound: at for at, bound in enumerate(bounds)}
    counts = [0.0] * (len(bounds) + 1)
    for each in known:
        for bound, value in zip(each.bounds, each.counts[:-1], strict=True):
            counts[places[bound]] += value
        counts[-1] += each.counts[-1]
    return Distribution(bounds=tuple(bounds), counts=tuple(counts))


def latency_figures(run: Run, key: str) -> tuple[Figure, ...]:
    """Return the figure of each latency whose values are known."""
    figures = [
        latency_figure(name, {_(LATENCY_NAMES[name]): distribution}, f"{key}-{name}")
        for name, distribution in run.distributions.items()
    ]
    return tuple(figure for figure in figures if figure is not None)


def latency_figure(name: LatencyName, sides: Mapping[str, Distribution], key: str) -> Figure | None:
    """Return how the values of one latency are spread on each side; `None` if nothing is known of it."""
    curves = {side: curve for side, distribution in sides.items() if (curve := shares_below(distribution))}
    if not curves:
        return None
    values = [bound for curve in curves.values() for bound, _ in curve]
    values += [curve[0][0] / _ROOM_BELOW for curve in curves.values() if curve[0][1] > _MUCH_BELOW]
    plot = svg.Plot(svg.logarithmic(values), svg.linear((0, 100)), _TOP, _HEIGHT)
    show, unit = svg.latency_ticks(plot.x)
    parts = [
        svg.upright_axis(plot, lambda share: f"{limit(share)} %"),
        svg.level_axis(plot, _("Latency, {unit}", unit=unit), show),
    ]
    parts += [_line(at, curve, plot) for at, curve in enumerate(curves.values())]
    title = _("{name}: share of the values at or below", name=_(LATENCY_NAMES[name]))
    description = sentences(
        _("{side}: {count} values.", side=side, count=count(sum(sides[side].counts))) for side in curves
    )
    picture = svg.drawing(key, title, description, plot.bottom + svg.AXIS_HEIGHT, *parts)
    entries = tuple(Entry(at, side, is_marked=True) for at, side in enumerate(curves)) if len(curves) > 1 else ()
    above = {side: sides[side] for side in curves if sides[side].counts[-1]}
    notes = (
        _(
            "{side}: values above {bound}: {count}.",
            side=side,
            bound=milliseconds(each.bounds[-1]),
            count=count(each.counts[-1]),
        )
        for side, each in above.items()
    )
    return Figure(key, title, picture, entries, _table(curves), tuple(notes))


def _line(style: int, curve: _Curve, plot: svg.Plot) -> str:
    """Return the line through the shares at the bounds; marks where the bounds are few enough to matter."""
    points = [(bound, share * 100) for bound, share in curve]
    marks = points if len(points) <= _MARKED else ()
    # Where many values are below the first bound, the line comes from the axis's end: nothing is known of them.
    start = [(plot.x.low, 0.0)] if curve[0][1] > _MUCH_BELOW else []
    return svg.polyline(style, plot, svg.joined([*start, *points], plot)) + "".join(
        svg.mark(style, *plot.place(*point)) for point in marks
    )


def _table(curves: Mapping[str, _Curve]) -> Table:
    groups = []
    for side, curve in curves.items():
        size = max(1, -(-len(curve) // svg.TABLE_ROWS))
        rows = tuple((limit(bound), percent(share)) for bound, share in curve[::size])
        groups.append(Group(side if len(curves) > 1 else "", rows))
    return Table(_("Shares at or below"), (Column(_("Latency"), "ms"), Column(_("At or below"), "%")), tuple(groups))
