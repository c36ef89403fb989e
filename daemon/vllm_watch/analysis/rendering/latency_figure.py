# SPDX-License-Identifier: Apache-2.0
"""How latencies are spread: the share of requests at or below each latency, with the percentiles and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Distribution, Latency, Objective, Quantile, Result, Run
from vllm_watch.analysis.rendering.distributions import shares_below
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Group, Table
from vllm_watch.analysis.rendering.results import percentile
from vllm_watch.analysis.rendering.setup import run_objective
from vllm_watch.analysis.rendering.svg import drawing, label, upright
from vllm_watch.analysis.rendering.svg_axes import AXIS_HEIGHT, band, level_axis, upright_axis
from vllm_watch.analysis.rendering.svg_lines import joined
from vllm_watch.analysis.rendering.svg_scales import Plot, linear, logarithmic
from vllm_watch.analysis.rendering.svg_styles import mark, polyline
from vllm_watch.daemon.catalog.metric_titles import LATENCY_NAMES, STATISTIC_LABELS, LatencyName
from vllm_watch.daemon.catalog.number_texts import MISSING, count, limit, milliseconds, percent


class Spread(NamedTuple):
    """How one side's values of a latency are spread; `latency` has its percentiles, as far as they are drawn."""

    label: str
    distribution: Distribution
    latency: Latency | None = None


TABLE_ROWS = 40
"""How many rows the table behind a drawing has."""

_DRAWN: tuple[Quantile, ...] = ("p50", "p95", "p99")
_TOP = 52
_TOP_WITHOUT_LABELS = 14
_HEIGHT = 200
_ROW = 15
_MARKED = 30
_RIGHT = 0.55
_ROOM_BELOW = 4
_MUCH_BELOW = 0.05


def latency_figures(run: Run, key: str, rows: int = TABLE_ROWS) -> tuple[Figure, ...]:
    """Return the figure of each latency whose values are known."""
    figures = []
    for name, distribution in run.distributions.items():
        spread = Spread(LATENCY_NAMES[name], distribution, _latency(run, name))
        figure = latency_figure(name, (spread,), f"{key}-{name}", run_objective(run), rows)
        figures += [] if figure is None else [figure]
    return tuple(figures)


def latency_figure(
    name: LatencyName, spreads: Sequence[Spread], key: str, objective: Objective | None = None, rows: int = TABLE_ROWS
) -> Figure | None:
    """Return how the values of one latency are spread on each side; `None` if nothing is known of it."""
    known = [each for each in spreads if shares_below(each.distribution)]
    if not known:
        return None
    curves = [shares_below(each.distribution) for each in known]
    x = logarithmic(_values(known, curves))
    y = linear((0, 100))
    title = f"{LATENCY_NAMES[name]}: share of the values at or below"
    plot = Plot(x, y, _TOP if len(known) == 1 else _TOP_WITHOUT_LABELS, _HEIGHT)
    parts = [upright_axis(plot), level_axis(plot, "Latency", milliseconds)]
    parts += [_percentiles(each, plot) for each in known if each.latency is not None and len(known) == 1]
    parts += [_objective(objective, name, plot)] if objective is not None else []
    parts += [_line(at, curve, plot) for at, curve in enumerate(curves)]
    svg = drawing(key, title, _description(known), plot.bottom + AXIS_HEIGHT, *parts)
    entries = tuple(Entry(at, each.label, is_marked=True) for at, each in enumerate(known)) if len(known) > 1 else ()
    return Figure(key, title, svg, entries, _table(known, curves, rows), _notes(known))


def _latency(run: Run, name: LatencyName) -> Latency | None:
    """Return a latency's percentiles of the first view that has them."""
    results: list[Result] = [*([] if run.result is None else [run.result]), *run.views]
    return next((found for result in results if (found := getattr(result, name)) is not None), None)


def _values(known: Sequence[Spread], curves: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    """Return what the axis must have room for: the bounds, and the percentiles that are drawn."""
    values = [bound for curve in curves for bound, _ in curve]
    values += [curve[0][0] / _ROOM_BELOW for curve in curves if curve[0][1] > _MUCH_BELOW]
    for each in known:
        values += [bounds for quantile in _DRAWN for bounds in _place(each.latency, quantile) if len(known) == 1]
    return values


def _place(latency: Latency | None, quantile: Quantile) -> tuple[float, ...]:
    """Return where a percentile is: nowhere, at one latency, or between two."""
    if latency is None or quantile in latency.too_few:
        return ()
    bounds = latency.bounds.get(quantile)
    if bounds is not None:
        return tuple(value for value in (bounds.low, bounds.high) if value is not None)
    value: float | None = getattr(latency, quantile)
    value = latency.median if value is None and quantile == "p50" else value
    return () if value is None else (value,)


def _percentiles(spread: Spread, plot: Plot) -> str:
    """Return a line at each percentile, or a band between its bounds, with its value above."""
    parts = []
    for row, quantile in enumerate(_DRAWN):
        place = _place(spread.latency, quantile)
        if not place:
            continue
        left, right = plot.x.share(place[0]), plot.x.share(place[-1])
        parts.append(band(left, right, plot.top, plot.height, "between") if len(place) > 1 else "")
        middle = (left + right) / 2
        parts.append(upright(middle, row * _ROW + 14, plot.bottom, "percentile") if len(place) == 1 else "")
        text = f"{STATISTIC_LABELS[quantile]} {percentile(quantile, spread.latency)} ms"
        parts.append(label(text, middle, row * _ROW + 12, anchor="end" if middle > _RIGHT else "start"))
    return "".join(parts)


def _objective(objective: Objective, name: LatencyName, plot: Plot) -> str:
    most = objective.limits.get(name)
    if most is None or not plot.x.low <= most <= plot.x.high:
        return ""
    share = plot.x.share(most)
    anchor = "end" if share > _RIGHT else "start"
    text = label(f"objective {milliseconds(most)}", share, plot.bottom - 6, anchor=anchor)
    return upright(share, plot.top, plot.bottom, "objective") + text


def _line(style: int, curve: Sequence[tuple[float, float]], plot: Plot) -> str:
    """Return the line through the shares at the bounds; marks where the bounds are few enough to matter."""
    points = [(bound, share * 100) for bound, share in curve]
    marks = points if len(points) <= _MARKED else ()
    # Where many values are below the first bound, the line comes from the axis's end: nothing is known of them.
    start = [(plot.x.low, 0.0)] if curve[0][1] > _MUCH_BELOW else []
    return polyline(style, plot, joined([*start, *points], plot)) + "".join(
        mark(style, *plot.place(*point)) for point in marks
    )


def _description(known: Sequence[Spread]) -> str:
    parts = []
    for each in known:
        found = [(quantile, percentile(quantile, each.latency)) for quantile in _DRAWN]
        shown = [f"{STATISTIC_LABELS[quantile]} {text} ms" for quantile, text in found if text != MISSING]
        parts.append(f"{each.label}: {', '.join(shown) or count(sum(each.distribution.counts)) + ' values'}.")
    return " ".join(parts)


def _table(known: Sequence[Spread], curves: Sequence[Sequence[tuple[float, float]]], most: int) -> Table:
    """Return the shares at the bounds; of many bounds, some."""
    groups = []
    for each, curve in zip(known, curves, strict=True):
        size = max(1, -(-len(curve) // most))
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
