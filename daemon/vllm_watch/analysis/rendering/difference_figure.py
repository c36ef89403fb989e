# SPDX-License-Identifier: Apache-2.0
"""The differences of two sides as a forest plot: a row for each metric, its label beside its interval."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.analysis.comparison.comparison_model import Comparison, Row
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.comparison_answer import grade_text
from vllm_watch.analysis.rendering.comparisons import percent_interval
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, plain_table
from vllm_watch.daemon.catalog.language import N_, _, full_stop
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import limit


_TITLE = N_("Differences with their intervals")
_WORDS = {2: N_("better, shown"), 1: N_("worse, shown"), 4: N_("likely, or not decided")}
_TOP = 10
_ROW = 26
_MIDDLE = 13
_WIDEST = 300.0
"""An interval is drawn up to this many per cent; an arrow says that it goes on."""
_LABELS = 0.24
"""The part of the drawing that the names of the metrics take, to the left of the plot."""


class _Interval(NamedTuple):
    row: Row
    low: float
    middle: float
    high: float


def difference_figure(pair: Comparison, key: str) -> Figure | None:
    """Return the intervals of all metrics that have one; `None` if none has."""
    shown = [found for row in pair.metrics if (found := _interval(row)) is not None]
    if not shown:
        return None
    ends = [min(max(end, -_WIDEST), _WIDEST) for each in shown for end in (each.low, each.middle, each.high)]
    scale = svg.linear(ends, ticks=5)
    x = scale._replace(room=_LABELS)
    plot = svg.Plot(x, x, _TOP, _ROW * len(shown))
    parts = [
        svg.level_axis(
            plot,
            _("{candidate} less {baseline}, % of {baseline}", candidate=pair.candidate, baseline=pair.baseline),
            limit,
        )
    ]
    parts.append(svg.upright(x.share(0), plot.top, plot.bottom, "zero"))
    parts += [_drawn(each, plot, _TOP + at * _ROW + _MIDDLE) for at, each in enumerate(shown)]
    rows = [each.row for each in shown]
    described = (f"{metric_title(row.metric).label} {percent_interval(row)} %, {grade_text(row)}" for row in rows)
    picture = svg.drawing(key, _(_TITLE), full_stop(_("; ").join(described)), plot.bottom + svg.AXIS_HEIGHT, *parts)
    legend = tuple(Entry(style, _(_WORDS[style]), is_marked=True) for style in dict.fromkeys(map(_style, rows)))
    columns = (Column(_("Metric"), is_text=True), Column(_("% [interval]")), Column(_("Grade"), is_text=True))
    cells = tuple((metric_title(row.metric).label, percent_interval(row), grade_text(row)) for row in rows)
    return Figure(key, _(_TITLE), picture, legend, plain_table(_("Differences"), columns, cells))


def _interval(row: Row) -> _Interval | None:
    """Return the low end, the difference and the high end, if all are known."""
    if row.low is None or row.percent is None or row.high is None:
        return None
    return _Interval(row, row.low, row.percent, row.high)


def _style(row: Row) -> int:
    if row.grade != "shown":
        return 4
    return 2 if row.is_better else 1


def _drawn(each: _Interval, plot: svg.Plot, y: float) -> str:
    x, style = plot.x, _style(each.row)
    left, right = x.share(each.low), x.share(each.high)
    ends: svg.Attributes = {"x1": svg.across(left), "x2": svg.across(right), "y1": y, "y2": y}
    parts = [svg.element("line", {"class": f"interval {svg.style_class(style)}", **ends})]
    parts += [svg.arrow(style, right, y)] if each.high > x.high else []
    parts += [svg.arrow(style, left, y, is_left=True)] if each.low < x.low else []
    # A point beyond the end would be read as a value there: the arrow alone says that it is farther.
    parts += [svg.mark(style, x.share(each.middle), y)] if x.low <= each.middle <= x.high else []
    return svg.label(metric_title(each.row.metric).label, 0, y + 4, anchor="start") + "".join(parts)
