# SPDX-License-Identifier: Apache-2.0
"""The differences of two sides with their intervals, drawn below each other: what crosses 0 is not shown to differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_watch.analysis.comparison.model import Comparison, Row, Verdict
from vllm_watch.analysis.rendering.comparison_blocks import VERDICTS, percent_interval
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, plain_table
from vllm_watch.analysis.rendering.svg import Attributes, across, drawing, element, label, upright
from vllm_watch.analysis.rendering.svg_axes import AXIS_HEIGHT, level_axis
from vllm_watch.analysis.rendering.svg_scales import Plot, linear
from vllm_watch.analysis.rendering.svg_styles import mark, name
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import limit


_TITLE = "Differences with their 95 % intervals"
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
    x = linear((value for row in rows for value in _interval(row) or () if abs(value) <= _WIDEST), ticks=5)
    plot = Plot(x, x, _TOP, _ROW * len(rows))
    parts = [level_axis(plot, f"{pair.candidate} less {pair.baseline}, % of {pair.baseline}", limit)]
    parts.append(upright(x.share(0), plot.top, plot.bottom, "zero"))
    parts += [_row(row, plot, _TOP + at * _ROW) for at, row in enumerate(rows)]
    described = (
        f"{metric_title(row.metric).label} {percent_interval(row)} %, {row.verdict.replace('_', ' ')}" for row in rows
    )
    svg = drawing(key, _TITLE, f"{'; '.join(described)}.", plot.bottom + AXIS_HEIGHT, *parts)
    used = dict.fromkeys(_STYLES[row.verdict] for row in rows)
    legend = tuple(Entry(style, _WORDS[style], is_marked=True) for style in used)
    columns = (Column("Metric", is_text=True), Column("% [95 % interval]"), Column("Verdict", is_text=True))
    cells = tuple((metric_title(row.metric).label, percent_interval(row), VERDICTS[row.verdict]) for row in rows)
    return Figure(key, _TITLE, svg, legend, plain_table("Differences", columns, cells))


def _interval(row: Row) -> Sequence[float] | None:
    """Return the low end, the difference and the high end, if all are known."""
    values = (row.low, row.percent, row.high)
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) and row.verdict in _STYLES else None


def _row(row: Row, plot: Plot, top: float) -> str:
    """Return a metric's name, the line of its interval, and a mark at its difference."""
    low, middle, high = (plot.x.share(value) for value in _interval(row) or ())
    style = _STYLES[row.verdict]
    y = top + _LINE
    ends: Attributes = {"x1": across(low), "x2": across(high), "y1": y, "y2": y}
    line = element("line", {"class": f"interval {name(style)}", **ends})
    return label(metric_title(row.metric).label, 0, top + 12, anchor="start") + line + mark(style, middle, y)
