# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a page: first the tables, then the intervals and the sides drawn over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_watch.analysis.comparison.comparison_model import Comparison, Comparisons, Row, Side, Verdict
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.comparisons import VERDICTS, comparisons_document, percent_interval
from vllm_watch.analysis.rendering.curve_figure import curve_figures
from vllm_watch.analysis.rendering.distribution_figures import Spread, latency_figure, together
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Section, plain_table
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.analysis.rendering.timeline_figure import overlay_figure
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, metric_title
from vllm_watch.daemon.catalog.number_texts import limit


_INTERVALS = "Differences with their 95 % intervals"
_STYLES: Mapping[Verdict, int] = {
    "better": 2,
    "worse": 1,
    "no_difference_shown": 4,
    "below_what_matters": 4,
    "too_few": 4,
}
_WORDS = {2: "better", 1: "worse", 4: "no verdict"}
_TOP = 10
_ROW = 34
_LINE = 24
_WIDEST = 300


def difference_figure(pair: Comparison, key: str) -> Figure | None:
    """Return the intervals of all metrics that have one; `None` if none has."""
    rows = [row for row in pair.metrics if _interval(row) is not None]
    if not rows:
        return None
    x = svg.linear((value for row in rows for value in _interval(row) or () if abs(value) <= _WIDEST), ticks=5)
    plot = svg.Plot(x, x, _TOP, _ROW * len(rows))
    parts = [svg.level_axis(plot, f"{pair.candidate} less {pair.baseline}, % of {pair.baseline}", limit)]
    parts.append(svg.upright(x.share(0), plot.top, plot.bottom, "zero"))
    parts += [_row(row, plot, _TOP + at * _ROW) for at, row in enumerate(rows)]
    described = (
        f"{metric_title(row.metric).label} {percent_interval(row)} %, {row.verdict.replace('_', ' ')}" for row in rows
    )
    picture = svg.drawing(key, _INTERVALS, f"{'; '.join(described)}.", plot.bottom + svg.AXIS_HEIGHT, *parts)
    used = dict.fromkeys(_STYLES[row.verdict] for row in rows)
    legend = tuple(Entry(style, _WORDS[style], is_marked=True) for style in used)
    columns = (Column("Metric", is_text=True), Column("% [95 % interval]"), Column("Verdict", is_text=True))
    cells = tuple((metric_title(row.metric).label, percent_interval(row), VERDICTS[row.verdict]) for row in rows)
    return Figure(key, _INTERVALS, picture, legend, plain_table("Differences", columns, cells))


def _interval(row: Row) -> Sequence[float] | None:
    """Return the low end, the difference and the high end, if all are known."""
    values = (row.low, row.percent, row.high)
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) and row.verdict in _STYLES else None


def _row(row: Row, plot: svg.Plot, top: float) -> str:
    low, middle, high = (plot.x.share(value) for value in _interval(row) or ())
    style = _STYLES[row.verdict]
    y = top + _LINE
    ends: svg.Attributes = {"x1": svg.across(low), "x2": svg.across(high), "y1": y, "y2": y}
    line = svg.element("line", {"class": f"interval {svg.style_class(style)}", **ends})
    return svg.label(metric_title(row.metric).label, 0, top + 12, anchor="start") + line + svg.mark(style, middle, y)


def comparisons_html(comparisons: Comparisons) -> str:
    """Return comparisons as one page of HTML."""
    sides = {side.name: side.runs for side in comparisons.sides}
    figures = (
        *_differences(comparisons.pairs),
        *_timelines(comparisons.sides),
        *_latencies(sides),
        *curve_figures(sides, "curve"),
    )
    plots = [Section("Plots", figures)] if figures else []
    return render_html(comparisons_document(comparisons, plots))


def _differences(pairs: Sequence[Comparison]) -> tuple[Figure, ...]:
    figures = [difference_figure(pair, f"difference-{at}") for at, pair in enumerate(pairs)]
    titled = [
        figure
        if figure is None or len(pairs) == 1
        else figure._replace(title=f"{pair.candidate} with {pair.baseline}: {figure.title}")
        for pair, figure in zip(pairs, figures, strict=True)
    ]
    return tuple(figure for figure in titled if figure is not None)


def _timelines(sides: Sequence[Side]) -> tuple[Figure, ...]:
    """Return the sides over time, each from its start: of several runs the one with the middle throughput."""
    middle = {side.name: _middle(side.runs) for side in sides}
    figure = overlay_figure(middle, "timeline")
    return () if figure is None else (figure,)


def _middle(runs: Sequence[Run]) -> Run:
    drawn = [run for run in runs if run.timeline.times] or list(runs)
    ordered = sorted(drawn, key=lambda run: (run.result.output_throughput or 0.0) if run.result is not None else 0.0)
    return ordered[len(ordered) // 2]


def _latencies(sides: Mapping[str, Sequence[Run]]) -> tuple[Figure, ...]:
    """Return how each latency is spread, all runs of a side together."""
    figures = []
    for name in LATENCIES:
        spreads = [
            Spread(side, together([run.distributions[name] for run in runs if name in run.distributions]))
            for side, runs in sides.items()
        ]
        figure = latency_figure(name, spreads, f"latency-{name}")
        figures += [] if figure is None else [figure]
    return tuple(figures)
