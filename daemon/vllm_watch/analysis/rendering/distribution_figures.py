# SPDX-License-Identifier: Apache-2.0
"""How values are spread: the tokens of the engine's steps, and latencies with their percentiles and objective."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Bounds, Distribution, Latency, Objective, Quantile, Result, Run
from vllm_watch.analysis.loadtest.planning import run_objective
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Group, Table, plain_table
from vllm_watch.analysis.rendering.results import percentile
from vllm_watch.daemon.catalog.metric_titles import LATENCY_NAMES, STATISTIC_LABELS, LatencyName
from vllm_watch.daemon.catalog.number_texts import MISSING, count, limit, milliseconds, percent, significant, spread


_BATCH_TOP = 16
_BATCH_HEIGHT = 160
_GAP = 0.12
_BATCH_TITLE = "Batch size: share of engine steps"

_DRAWN: tuple[Quantile, ...] = ("p50", "p95", "p99")
_TOP = 52
_TOP_WITHOUT_LABELS = 14
_HEIGHT = 200
_ROW = 15
_MARKED = 30
_RIGHT = 0.55
_ROOM_BELOW = 4
_MUCH_BELOW = 0.05


def is_known(distribution: Distribution) -> bool:
    """Whether there are values, in buckets that fit their bounds."""
    return len(distribution.counts) == len(distribution.bounds) + 1 and sum(distribution.counts) > 0


def quantile_bounds(distribution: Distribution, quantile: float) -> Bounds:
    """Return the bounds of the bucket that a quantile is in; both are open if there are no values."""
    if not is_known(distribution):
        return Bounds()
    total = sum(distribution.counts)
    for at, reached in enumerate(accumulate(distribution.counts)):
        if reached >= quantile * total:
            low = distribution.bounds[at - 1] if at else None
            return Bounds(low=low, high=distribution.bounds[at] if at < len(distribution.bounds) else None)
    return Bounds()


def shares_below(distribution: Distribution) -> tuple[tuple[float, float], ...]:
    """
    Return the share of the values that are at or below each bound, as pairs of bound and share.

    Bounds below all values but the last, and above all values but the first, are left out.
    """
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


def batch_figure(distribution: Distribution | None, key: str) -> Figure | None:
    """Return the shares of the engine's steps by their number of tokens; `None` if they are not known."""
    if distribution is None or not is_known(distribution):
        return None
    buckets = _filled(distribution)
    y = svg.linear((share * 100 for _, _, share in buckets), ticks=3)
    width = 1 / len(buckets)
    plot = svg.Plot(svg.Scale(0.0, 1.0, ()), y, _BATCH_TOP, _BATCH_HEIGHT)
    parts = [svg.upright_axis(plot, _share)]
    for at, (low, high, share) in enumerate(buckets):
        _, top = plot.place(0, share * 100)
        parts.append(svg.bar(0, (at + _GAP) * width, (at + 1 - _GAP) * width, top, plot.bottom - top))
        style = "tick minor" if at % 2 and len(buckets) > 6 else "tick"
        text = f"≤ {limit(high)}" if high is not None else f"> {limit(low or 0)}"
        parts.append(svg.label(text, (at + 0.5) * width, plot.bottom + 15, style))
    parts.append(svg.base(plot.bottom, "Tokens in a step"))
    most = max(buckets, key=lambda bucket: bucket[2])
    description = f"Most steps, {percent(most[2])} %, had {spread(most[0], most[1])} tokens."
    picture = svg.drawing(key, _BATCH_TITLE, description, _BATCH_TOP + _BATCH_HEIGHT + svg.AXIS_HEIGHT, *parts)
    rows = tuple((spread(low, high), significant(share * 100)) for low, high, share in buckets)
    table = plain_table("Shares of the steps", (Column("Tokens"), Column("Steps", "%")), rows)
    return Figure(key, _BATCH_TITLE, picture, table=table)


def _share(value: float) -> str:
    return f"{limit(value)} %"


def _filled(distribution: Distribution) -> list[tuple[float | None, float | None, float]]:
    total = sum(distribution.counts)
    ends = [None, *distribution.bounds, None]
    buckets = [(ends[at], ends[at + 1], each / total) for at, each in enumerate(distribution.counts)]
    filled = [at for at, bucket in enumerate(buckets) if bucket[2] > 0]
    return buckets[filled[0] : filled[-1] + 1]


class Spread(NamedTuple):
    """How one side's values of a latency are spread; `latency` has its percentiles, as far as they are drawn."""

    label: str
    distribution: Distribution
    latency: Latency | None = None


def latency_figures(run: Run, key: str) -> tuple[Figure, ...]:
    """Return the figure of each latency whose values are known."""
    figures = []
    for name, distribution in run.distributions.items():
        spread = Spread(LATENCY_NAMES[name], distribution, _latency(run, name))
        figure = latency_figure(name, (spread,), f"{key}-{name}", run_objective(run))
        figures += [] if figure is None else [figure]
    return tuple(figures)


def latency_figure(
    name: LatencyName, spreads: Sequence[Spread], key: str, objective: Objective | None = None
) -> Figure | None:
    """Return how the values of one latency are spread on each side; `None` if nothing is known of it."""
    known = [each for each in spreads if shares_below(each.distribution)]
    if not known:
        return None
    curves = [shares_below(each.distribution) for each in known]
    x = svg.logarithmic(_values(known, curves))
    y = svg.linear((0, 100))
    title = f"{LATENCY_NAMES[name]}: share of the values at or below"
    plot = svg.Plot(x, y, _TOP if len(known) == 1 else _TOP_WITHOUT_LABELS, _HEIGHT)
    show, unit = svg.latency_ticks(x)
    parts = [svg.upright_axis(plot, _share), svg.level_axis(plot, f"Latency, {unit}", show)]
    parts += [_percentiles(each, plot) for each in known if each.latency is not None and len(known) == 1]
    parts += [_objective(objective, name, plot)] if objective is not None else []
    parts += [_line(at, curve, plot) for at, curve in enumerate(curves)]
    picture = svg.drawing(key, title, _description(known), plot.bottom + svg.AXIS_HEIGHT, *parts)
    entries = tuple(Entry(at, each.label, is_marked=True) for at, each in enumerate(known)) if len(known) > 1 else ()
    return Figure(key, title, picture, entries, _table(known, curves), _notes(known))


def _latency(run: Run, name: LatencyName) -> Latency | None:
    """Return a latency's percentiles of the first view that has them."""
    results: list[Result] = [*([] if run.result is None else [run.result]), *run.views]
    return next((found for result in results if (found := getattr(result, name)) is not None), None)


def _values(known: Sequence[Spread], curves: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    values = [bound for curve in curves for bound, _ in curve]
    values += [curve[0][0] / _ROOM_BELOW for curve in curves if curve[0][1] > _MUCH_BELOW]
    for each in known:
        values += [bounds for quantile in _DRAWN for bounds in _place(each.latency, quantile) if len(known) == 1]
    return values


def _place(latency: Latency | None, quantile: Quantile) -> tuple[float, ...]:
    """Return where a percentile is: nowhere, at one latency, or between two."""
    if latency is None:
        return ()
    bounds = latency.bounds.get(quantile)
    if bounds is not None:
        return tuple(value for value in (bounds.low, bounds.high) if value is not None)
    value: float | None = getattr(latency, quantile)
    value = latency.median if value is None and quantile == "p50" else value
    return () if value is None else (value,)


def _percentiles(spread: Spread, plot: svg.Plot) -> str:
    parts = []
    for row, quantile in enumerate(_DRAWN):
        place = _place(spread.latency, quantile)
        if not place:
            continue
        left, right = plot.x.share(place[0]), plot.x.share(place[-1])
        parts.append(svg.band(left, right, plot.top, plot.height, "between") if len(place) > 1 else "")
        middle = (left + right) / 2
        parts.append(svg.upright(middle, row * _ROW + 14, plot.bottom, "percentile") if len(place) == 1 else "")
        text = f"{STATISTIC_LABELS[quantile]} {percentile(quantile, spread.latency)} ms"
        parts.append(svg.label(text, middle, row * _ROW + 12, anchor="end" if middle > _RIGHT else "start"))
    return "".join(parts)


def _objective(objective: Objective, name: LatencyName, plot: svg.Plot) -> str:
    most = objective.limits.get(name)
    if most is None or not plot.x.low <= most <= plot.x.high:
        return ""
    share = plot.x.share(most)
    anchor = "end" if share > _RIGHT else "start"
    text = svg.label(f"objective {milliseconds(most)}", share, plot.bottom - 6, anchor=anchor)
    return svg.upright(share, plot.top, plot.bottom, "objective") + text


def _line(style: int, curve: Sequence[tuple[float, float]], plot: svg.Plot) -> str:
    """Return the line through the shares at the bounds; marks where the bounds are few enough to matter."""
    points = [(bound, share * 100) for bound, share in curve]
    marks = points if len(points) <= _MARKED else ()
    # Where many values are below the first bound, the line comes from the axis's end: nothing is known of them.
    start = [(plot.x.low, 0.0)] if curve[0][1] > _MUCH_BELOW else []
    return svg.polyline(style, plot, svg.joined([*start, *points], plot)) + "".join(
        svg.mark(style, *plot.place(*point)) for point in marks
    )


def _description(known: Sequence[Spread]) -> str:
    parts = []
    for each in known:
        found = [(quantile, percentile(quantile, each.latency)) for quantile in _DRAWN]
        shown = [f"{STATISTIC_LABELS[quantile]} {text} ms" for quantile, text in found if text != MISSING]
        parts.append(f"{each.label}: {', '.join(shown) or count(sum(each.distribution.counts)) + ' values'}.")
    return " ".join(parts)


def _table(known: Sequence[Spread], curves: Sequence[Sequence[tuple[float, float]]]) -> Table:
    groups = []
    for each, curve in zip(known, curves, strict=True):
        size = max(1, -(-len(curve) // svg.TABLE_ROWS))
        rows = tuple((limit(bound), percent(share)) for bound, share in curve[::size])
        groups.append(Group(each.label if len(known) > 1 else "", rows))
    return Table("Shares at or below", (Column("Latency", "ms"), Column("At or below", "%")), tuple(groups))


def _notes(known: Sequence[Spread]) -> tuple[str, ...]:
    """Return a sentence for each side with values below the first or above the last bound of all."""
    notes = []
    for each in known:
        first = shares_below(each.distribution)[0]
        below = f"{percent(first[1])} % are at or below {milliseconds(first[0])}, anywhere"
        notes += [f"{each.label}: {below}."] if first[1] > _MUCH_BELOW else []
        above = each.distribution.counts[-1]
        most = milliseconds(each.distribution.bounds[-1]) if each.distribution.bounds else MISSING
        notes += [f"{each.label}: values above {most}: {count(above)}."] if above else []
    return tuple(notes)
