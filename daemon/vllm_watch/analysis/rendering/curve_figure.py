# SPDX-License-Identifier: Apache-2.0
"""Throughput against latency: each run a point, the loads of one configuration joined in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from vllm_watch.analysis.comparison.sweeps import load_order
from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Load, Run
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.document import Cells, Column, Entry, Figure, Group, Table
from vllm_watch.analysis.rendering.run_facts import short_names
from vllm_watch.daemon.catalog.language import N_, _, full_stop, sentences
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import limit, milliseconds, significant


class Line(NamedTuple):
    """The runs of one configuration at several loads, and the latency that is drawn of them: ``ttft_ms.p95``."""

    label: str
    runs: tuple[Run, ...]
    metric: str


class _Point(NamedTuple):
    run: Run
    throughput: float
    latency: float


_LATENCIES: Mapping[str, tuple[str, ...]] = {
    N_("Time to first token against throughput"): ("ttft_ms.p50", "ttft_ms.p95"),
    N_("Time per output token against throughput"): ("tpot_ms.mean", "tpot_ms.p95"),
}
_TOP = 16
_HEIGHT = 230
_LEAST_LOADS = 2
_ABOVE = 9


def curve_figures(sides: Mapping[str, Sequence[Run]], key: str) -> tuple[Figure, ...]:
    """Return what latency costs at each throughput, a line for each configuration; nothing if none has two loads."""
    figures = []
    for at, (title, names) in enumerate(_LATENCIES.items()):
        # Of several configurations one line each, so that colours tell configurations apart.
        shown = names if len(sides) == 1 else names[:1]
        lines = [
            Line(metric_title(each).label if len(sides) == 1 else name, tuple(runs), each)
            for name, runs in sides.items()
            for each in shown
        ]
        figures += _figure(_(title), lines, f"{key}-{at}", is_one_side=len(sides) == 1)
    return tuple(figures)


def by_configuration(runs: Sequence[Run]) -> dict[str, tuple[Run, ...]]:
    """Return the runs of each configuration: those whose model, version and flags are the same."""
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        found.setdefault((run.model, run.version, tuple(sorted(run.config.items()))), []).append(run)
    names = short_names([group[0].name for group in found.values()])
    return {name: tuple(group) for name, group in zip(names, found.values(), strict=True)}


def _figure(title: str, lines: Sequence[Line], key: str, *, is_one_side: bool) -> list[Figure]:
    points = [_points(line) for line in lines]
    if max((len(_by_load(each)) for each in points), default=0) < _LEAST_LOADS:
        return []
    known = [(line, each) for line, each in zip(lines, points, strict=True) if each]
    x = svg.linear((point.throughput for _line_of, each in known for point in each), ticks=5)
    y = svg.logarithmic(point.latency for _line_of, each in known for point in each)
    plot = svg.Plot(x, y, _TOP, _HEIGHT)
    show, unit = svg.latency_ticks(y)
    parts = [
        svg.upright_axis(plot, lambda value: f"{show(value)} {unit}"),
        svg.level_axis(plot, _("Output, tokens/s"), has_grid=False),
    ]
    # Lines of the same runs are above each other: the last one, which is the highest, has the labels for all.
    for at, (_drawn, each) in enumerate(known):
        parts.append(_line(at, each, plot))
        parts += [] if is_one_side and at < len(known) - 1 else [_labels(each, plot)]
    description = sentences(
        full_stop(_("{name}: {text}", name=line.label, text=_in_words(each))) for line, each in known
    )
    picture = svg.drawing(key, title, description, _TOP + _HEIGHT + svg.AXIS_HEIGHT, *parts)
    entries = tuple(Entry(at, line.label, is_marked=True) for at, (line, _points_of) in enumerate(known))
    note = _("The number at a point is its load: {load}.", load=_unit(known[0][1][0].run.load))
    return [Figure(key, title, picture, entries, _table(known), (note,))]


def _points(line: Line) -> list[_Point]:
    name, _dot, statistic = line.metric.partition(".")
    found = []
    for run in line.runs:
        result = run.result if run.load.ramp_up is None else None
        latency = None if result is None else getattr(getattr(result, name), statistic, None)
        if result is not None and result.output_throughput is not None and latency is not None and latency > 0:
            found.append(_Point(run, result.output_throughput, latency))
    return sorted(found, key=lambda point: load_order(point.run.load))


def _mean(points: Sequence[_Point]) -> _Point:
    return _Point(points[0].run, fmean(point.throughput for point in points), fmean(point.latency for point in points))


def _short(load: Load) -> str:
    if load.request_rate not in {None, "inf"}:
        return limit(float(load.request_rate or 0))
    if load.max_concurrency is not None:
        return limit(load.max_concurrency)
    return _("all") if load.request_rate == "inf" else ""


def _unit(load: Load) -> str:
    return _("requests per second") if load.request_rate not in {None, "inf"} else _("requests at once")


def _by_load(points: Sequence[_Point]) -> list[list[_Point]]:
    return [list(group) for _order, group in groupby(points, key=lambda point: load_order(point.run.load))]


def _line(style: int, points: Sequence[_Point], plot: svg.Plot) -> str:
    marks = [svg.mark(style, *plot.place(point.throughput, point.latency)) for point in points]
    means = [_mean(group) for group in _by_load(points)]
    path = svg.joined([(each.throughput, each.latency) for each in means], plot)
    return svg.polyline(style, plot, path) + "".join(marks)


def _labels(points: Sequence[_Point], plot: svg.Plot) -> str:
    parts = []
    for group in _by_load(points):
        highest = max(group, key=lambda point: point.latency)
        share, top = plot.place(fmean(point.throughput for point in group), highest.latency)
        parts.append(svg.label(_short(highest.run.load), share, top - _ABOVE))
    return "".join(parts)


def _in_words(points: Sequence[_Point]) -> str:
    return _("; ").join(
        _(
            "{load}, {throughput} tokens/s, {latency}",
            load=_load_of(each),
            throughput=significant(each.throughput),
            latency=milliseconds(each.latency),
        )
        for each in points
    )


def _table(drawn: Sequence[tuple[Line, Sequence[_Point]]]) -> Table:
    columns = (Column(_("Load"), is_text=True), Column(_("Output"), _("tokens/s")), Column(_("Latency"), "ms"))
    groups = [Group(line.label, tuple(_row(point) for point in points)) for line, points in drawn]
    return Table(_("The points"), columns, tuple(groups))


def _row(point: _Point) -> Cells:
    return _load_of(point), significant(point.throughput), significant(point.latency)


def _load_of(point: _Point) -> str:
    return load_text(point.run.load) or point.run.name
