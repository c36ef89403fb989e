# SPDX-License-Identifier: Apache-2.0
"""
The kinds of panels that the dashboards are made of, each with its text, unit and thresholds.

A panel's size is in columns (the grid has 24) and rows of Grafana's grid. What people should read at 1280 px is no
narrower than 3 columns (figures) or 6 (everything else).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import bargauge, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from boards.kit import palette
from boards.kit.legends import AT, ENGINE, OF
from boards.kit.texts import PanelText, Texts
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, EngineState


Panel = Builder[dashboard.Panel]

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")

RATIO = "percentunit"
SECONDS = "s"
LATENCY = "suffix: s"
"""Seconds as they are, for what may take minutes: 156 s is more than 100 s at one look, "2.60 mins" is not."""
COUNT = "locale"
"""Whole numbers with separators of thousands: a capacity of 262,144 tokens is not "262 K"."""
TOKENS = "tok"
REQUESTS = "req"
EVENTS = "n"
"""Whatever else is counted: how often something happened, open files."""
TOKENS_PER_SECOND = "tok/s"
PER_SECOND = "reqps"
BYTES = "bytes"
BYTES_PER_SECOND = "binBps"
TIMES = "suffix: x"
"""How many times as much."""

COUNTED = frozenset({TOKENS, REQUESTS, EVENTS, TOKENS_PER_SECOND})
"""Shown as `COUNT`, for which Grafana has no unit with a word: an axis says it, and the title of a figure or column."""

Links = Sequence[builders.DashboardLink]

Steps = Sequence[tuple[float, str]]
"""From which value on which colour holds; what is below the first has `palette.PLAIN` or the colour given for it."""

LEAST_COLUMN = 60
"""Pixels of a table's column; Grafana would take 150, and a table with many would be wider than the window."""

_TITLE, _LARGE, _MIDDLE, _SMALL = 12, 28, 22, 18
"""Pixels of letters in figures: names, a number that stands alone, a word or a count, and a quantity beside others."""

RECENT: Final = 50_000
"""
Points of a figure of what is recent: ``$__rate_interval`` is then about a minute in a time range of a week, too.

With a point for a pixel it would be an hour, and a quantity of now the mean of that hour.
"""

_CELLS = 100
"""Moments of shares by class: with one for a pixel the gaps between them are as wide as they are."""

_DIGITS = 5
"""Behind the point at an axis of decades; fewer where they are zeros."""

_NOTHING = "-"
"""The text of a table's cell without a value; otherwise it would be the text of an empty table."""

STATE_COLORS: Mapping[EngineState, str] = {
    "idle": palette.GREY,
    "serving": palette.GREEN,
    "starting": palette.SKY,
    "sleeping": palette.DARK_GREY,
    "saturated": palette.ORANGE,
    "unknown": palette.BLUE,
    "stalled": palette.MAGENTA,
    "down": palette.RED,
}


class Query(NamedTuple):
    """
    One query of a panel.

    name: the legend, in which ``{{label}}`` is replaced by a label's value. ``{{server}}`` at its start is left out
        where one server is chosen, and ``{{instance}}`` where there is one daemon; what is named by nothing else has
        the panel's title. ``${eng}`` is the engine, where there are several. A name with ``${at}`` is taken as it is.
    color: of its series.
    several: it has several series for one server, or several servers are shown: each has a colour of Grafana's palette,
        and `color` holds for a figure, and for the line of one server with one engine, which stands alone.
    limit: it is a bound and not a measurement: a dashed line.
    steps: of a figure with several numbers: this one's own thresholds.
    """

    expr: str
    name: str
    color: str = palette.PLAIN
    several: bool = False
    limit: bool = False
    steps: Steps = ()


def _shown(unit: str, *, logarithmic: bool) -> str:
    return LATENCY if logarithmic and unit == SECONDS else unit


def lines(
    text: PanelText,
    unit: str,
    queries: Sequence[Query],
    *,
    width: int = 8,
    height: int = 8,
    most: float | None = None,
    stacked: bool = False,
    bounds: Steps = (),
    stepped: bool = False,
    logarithmic: bool = False,
    bars: bool = False,
    soft_most: float | None = None,
    colors: Mapping[str, str] = MappingProxyType({}),
    runbooks: Links = (),
) -> Panel:
    """
    Return quantities over time.

    most: the axis' upper end, where the quantity has one (1 of a ratio).
    soft_most: the axis' upper end while all values are below it; without one an axis of zeros goes to 100.
    bounds: drawn as dashed lines; the thresholds of alerts.
    stepped: the quantity keeps its value until it changes (a size, a state), so nothing is drawn in between.
    logarithmic: for what goes from milliseconds to minutes when it is bad; seconds are then shown as `LATENCY`.
    bars: for what happens now and then, and not all the time.
    colors: of series whose name ends with the key, for the values of a label that are known (a reason).
    """
    filled = 40 if stacked or bars else 8 if len(queries) == 1 and not queries[0].several else 0
    shown = _shown(unit, logarithmic=logarithmic)
    panel = _time_series(shown, filled=filled, stepped=stepped, bars=bars, stacked=stacked)
    _set_axis(panel, most, soft_most, logarithmic=logarithmic)
    _draw_bounds(panel, bounds)
    for letter, query in _lettered(queries):
        panel.with_target(_target(query, letter, text))
        panel.override_by_query(letter, _line_properties(query, stacked=stacked))
        _color_alone(panel, query, text.title)
    _color_by_ending(panel, colors)
    return _finished(panel, text, width, height, runbooks)


def _color_alone(panel: timeseries.Panel, query: Query, title: str) -> None:
    """Give its colour to a line that is alone: Grafana's palette begins with green, also for a full cache."""
    if query.several and (alone := _name_alone(query.name, title)):
        panel.override_by_name(alone, [_color("fixed", query.color)])


def _color_by_ending(panel: timeseries.Panel, colors: Mapping[str, str]) -> None:
    for ending, color in colors.items():
        panel.override_by_regexp(f"/(^| ){ending}( |$)/", [_color("fixed", color)])


def figure(
    text: PanelText,
    unit: str,
    query: Query,
    *more: Query,
    width: int = 3,
    height: int = 4,
    steps: Steps = (),
    below: str = palette.TEXT,
    decimals: int | None = None,
    mappings: Sequence[dashboard.ValueMapping] = (),
    runbooks: Links = (),
    points: int | None = None,
    filled: bool = False,
    one_at_a_time: bool = False,
) -> Panel:
    """
    Return one number, coloured by its thresholds: what is as it should be has the colour of text.

    It is what the query gives at the end of the time range and nothing older: so no course is drawn behind it.
    more: further numbers of the same unit; then each goes by its name.
    steps: from which value on which colour holds; `below` is the one under the first step.
    decimals: digits behind the point, where Grafana's choice will not do.
    mappings: words and colours in place of values.
    points: into how many steps (``$__interval``) the time range is divided, where as many as pixels are too few.
    filled: the whole panel is coloured, and not the number alone.
    one_at_a_time: of several queries only one gives a number, which is as large as that of a single one.
    """
    size = _SMALL if more and not one_at_a_time else _MIDDLE if filled else _LARGE
    panel = (
        _numbers(unit, size, is_named=query.several or bool(more), decimals=decimals, points=points)
        .wide_layout(False)
        .color_mode(common.BigValueColorMode.BACKGROUND_SOLID if filled else common.BigValueColorMode.VALUE)
        # Without a value the lowest colour holds, and that nothing is known is no alarm: no quantity here is below 0.
        .thresholds(_steps([(0, below), *steps], palette.GREY))
        .mappings(list(mappings))
    )
    _add_figures(panel, [query, *more], text, below)
    return _finished(panel, text, width, height, runbooks)


def comparison(
    text: PanelText, unit: str, queries: Sequence[Query], *, width: int = 8, height: int = 8, runbooks: Links = ()
) -> Panel:
    """
    Return a bar for each series of the queries, in their order: what they give at the end of the time range.

    Each bar has its query's colour.
    """
    panel = (
        bargauge.Panel()
        .unit(_format(unit))
        .min(0)
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .name_placement(common.BarGaugeNamePlacement.LEFT)
        .value_mode(common.BarGaugeValueMode.TEXT)
        # Two bars are as high, and their text as large, as ten.
        .sizing(common.BarGaugeSizing.MANUAL)
        .max_viz_height(20)
        .text(common_builders.VizTextDisplayOptions().title_size(12).value_size(12))
        .reduce_options(common_builders.ReduceDataOptions().calcs(["last"]))
        .thresholds(_steps((), palette.PLAIN))
    )
    for letter, query in _lettered(queries):
        panel.with_target(_target(query, letter, text).instant())
        if query.color != palette.PLAIN:
            panel.override_by_query(letter, [_color("fixed", query.color)])
    return _finished(panel, text, width, height, runbooks)


def figures(
    text: PanelText,
    unit: str,
    queries: Sequence[Query],
    *,
    width: int = 12,
    height: int = 4,
) -> Panel:
    """Return several numbers side by side, each in its query's colour from 1 on and dark grey below."""
    panel = (
        _numbers(unit, _MIDDLE, is_named=True)
        .orientation(common.VizOrientation.VERTICAL)
        .thresholds(_steps((), palette.DARK_GREY))
    )
    _add_figures(panel, [each._replace(steps=[(1, each.color)]) for each in queries], text, palette.DARK_GREY)
    return _finished(panel, text, width, height, ())


def states(
    text: PanelText, texts: Texts, query: Query, *, width: int = 24, height: int = 6, rows_per_page: int = 20
) -> Panel:
    """Return a line of coloured states for each of a query's series, which are severities."""
    return timeline(text, query, state_mappings(texts), width=width, height=height, rows_per_page=rows_per_page)


def timeline(
    text: PanelText,
    query: Query,
    mappings: Sequence[dashboard.ValueMapping],
    *,
    width: int = 24,
    height: int = 6,
    rows_per_page: int = 20,
    runbooks: Links = (),
    more: Sequence[Query] = (),
) -> Panel:
    """
    Return a line of colours for each of a query's series, whose values all have a mapping.

    more: further queries, whose lines stand below.
    rows_per_page: if there are more lines, they are on several pages.
    """
    panel = (
        statetimeline.Panel()
        .unit("none")
        .mappings(list(mappings))
        .color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(palette.GREY))
        .thresholds(_steps((), palette.GREY))
        .show_value(common.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(85)
        .line_width(0)
        .per_page(rows_per_page)
        .legend(_legend())
    )
    for letter, each in _lettered([query, *more]):
        panel.with_target(_target(each, letter, text))
    return _finished(panel, text, width, height, runbooks)


def shares(text: PanelText, unit: str, query: Query, *, width: int = 8, height: int = 8) -> Panel:
    """Return a histogram over time: how many observations per second fell into which bucket. `query` is by ``le``."""
    panel = _heat_map(unit, "none")
    panel.with_target(_target(query, "A", text).format(prometheus_models.PromQueryFormat.HEATMAP))
    return _finished(panel, text, width, height, ())


def shares_of_time(text: PanelText, unit: str, query: Query, *, least: str, width: int = 8, height: int = 8) -> Panel:
    """
    Return how much of the time was of which class. `query` is by class, whose names begin with a number.

    least: the shortest step (``$__interval``); the query need not look more often.
    """
    panel = _heat_map(unit, RATIO).with_target(_target(query, "A", text).interval(least)).max_data_points(_CELLS)
    return _finished(panel, text, width, height, ())


def _heat_map(unit: str, of_cells: str) -> heatmap.Panel:
    written, label = _of_axis(unit)
    axis = heatmap.YAxisConfig().unit(written).axis_placement(common.AxisPlacement.LEFT)
    if label:
        axis.axis_label(label)
    return (
        heatmap.Panel()
        .unit(of_cells)
        .calculate(False)
        .y_axis(axis)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Viridis")
            .steps(32)
            .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
        )
        .show_legend()
        .cell_gap(1)
    )


class Column(NamedTuple):
    """
    One column of a table: what its query gives for each row's labels.

    name: its heading.
    below: the colour under the first step; by default that of text, and of a bar `palette.PLAIN`.
    gauge: a bar in the cell, from 0 to `most`.
    filled: the cell is coloured, and not its text.
    width: in pixels; without one it has a share of the room that is left, and at least `LEAST_COLUMN`.
    hidden: only there to sort by, or for a label of its series (`grid`'s `facts`).
    links: where a click on a cell leads.
    """

    expr: str
    name: str
    unit: str = COUNT
    steps: Steps = ()
    below: str | None = None
    decimals: int | None = None
    gauge: bool = False
    filled: bool = False
    most: float | None = None
    mappings: Sequence[dashboard.ValueMapping] = ()
    width: int | None = None
    hidden: bool = False
    links: Sequence[Mapping[str, object]] = ()


class Key(NamedTuple):
    """
    A label that is shown in a table, with the heading of its column and where a click on it leads.

    hidden: only there for links of other cells, which have none where the label is empty.
    word: shown in place of the label, whatever it is.
    """

    label: str
    name: str
    links: Sequence[Mapping[str, object]] = ()
    width: int | None = None
    mappings: Sequence[dashboard.ValueMapping] = ()
    hidden: bool = False
    word: str = ""


def grid(
    text: PanelText,
    keys: Sequence[Key],
    columns: Sequence[Column],
    *,
    sort_by: Sequence[tuple[str, bool]],
    facts: Sequence[Key] = (),
    required: bool = False,
    width: int = 24,
    height: int = 8,
    runbooks: Links = (),
) -> Panel:
    """
    Return a table of what is true at the end of the time range: a row for each set of `keys`, a column for each query.

    sort_by: headings, and whether the largest comes first.
    facts: labels that some query has beside the keys and that tell no rows apart; they are shown behind the columns.
    required: a row for which the first column's query gives nothing is left out.

    Every query must give at most one series for a set of the keys; all labels but keys and facts are left out. Where
    there are several columns none may keep a metric's name (`series.only`), for it would tell their rows apart.
    """
    panel = _table(sort_by)
    names = {}
    for letter, column in _lettered(columns):
        panel.with_target(_cells(column, letter)).override_by_name(column.name, _column_properties(column))
        names[f"Value #{letter}" if len(columns) > 1 else "Value"] = column.name
    values = list(names)
    for key in (*keys, *facts):
        panel.override_by_name(key.name, _key_properties(key))
        names[key.label] = key.name
    shown = [*(key.label for key in keys), *values, *(fact.label for fact in facts)]
    for transformation in _transformations(shown, names, values[0] if required else None):
        panel.with_transformation(transformation)
    return _finished(panel, text, width, height, runbooks)


def state_mappings(texts: Texts) -> list[dashboard.ValueMapping]:
    """Return what the states' numbers are called, and their colours."""
    return [
        value_mapping(
            {str(number): (texts.state(state), STATE_COLORS[state]) for number, state in enumerate(BEST_TO_WORST, 1)}
        )
    ]


def value_mapping(results: Mapping[str, tuple[str, str]]) -> dashboard.ValueMapping:
    """Return texts and colours for values."""
    return dashboard.ValueMap(
        {
            value: dashboard.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(results.items())
        }
    )


class _AnyPanel(Protocol):
    """What the SDK's builders of panels have in common, for which it has no type."""

    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def datasource(self, datasource: dashboard.DataSourceRef) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...
    def links(self, links: list[Builder[dashboard.DashboardLink]]) -> Self: ...
    def build(self) -> dashboard.Panel: ...


_P = TypeVar("_P", bound=_AnyPanel)
_T = TypeVar("_T")


def _finished(panel: _P, text: PanelText, width: int, height: int, links: Links) -> _P:
    return (
        panel.title(text.title)
        .description(text.description)
        .no_value(text.empty)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .links(list(links))
    )


def _add_figures(panel: stat.Panel, queries: Sequence[Query], text: PanelText, below: str) -> None:
    for letter, each in _lettered(queries):
        panel.with_target(_target(each, letter, text).instant())
        if each.steps:
            panel.override_by_query(letter, [_thresholds(each.steps, below)])


def _numbers(
    unit: str, size: int, *, is_named: bool, decimals: int | None = None, points: int | None = None
) -> stat.Panel:
    # Figures of one row have one size: Grafana would make 22 twice as large as 4,381 beside it.
    panel = (
        stat.Panel()
        .unit(_format(unit))
        .text(common_builders.VizTextDisplayOptions().title_size(_TITLE).value_size(size))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME if is_named else common.BigValueTextMode.VALUE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["last"]))
    )
    if decimals is not None:
        panel.decimals(decimals)
    if points is not None:
        panel.max_data_points(points)
    return panel


def _time_series(unit: str, *, filled: int, stepped: bool, bars: bool, stacked: bool) -> timeseries.Panel:
    written, label = _of_axis(unit)
    panel = (
        timeseries.Panel()
        .unit(written)
        .draw_style(common.GraphDrawStyle.BARS if bars else common.GraphDrawStyle.LINE)
        # The line of a series that is zero would be the outline of the one below it.
        .line_width(0 if stacked and not bars else 2)
        .fill_opacity(filled)
        .show_points(common.VisibilityMode.NEVER if stacked else common.VisibilityMode.AUTO)
        .line_interpolation(common.LineInterpolation.STEP_AFTER if stepped else common.LineInterpolation.LINEAR)
        .legend(_legend())
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if label:
        panel.axis_label(label)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    return panel


def _set_axis(panel: timeseries.Panel, most: float | None, soft_most: float | None, *, logarithmic: bool) -> None:
    if logarithmic:
        panel.scale_distribution(common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
        # Grafana draws nine lines for each decade, and none can be had alone; the decades are written at the axis.
        panel.axis_grid_show(False)
        # A bound of 10 us would be written as 0.
        panel.decimals(_DIGITS)
    else:
        panel.min(0)
    if most is not None:
        panel.max(most)
    if soft_most is not None:
        panel.axis_soft_max(soft_most)


def _draw_bounds(panel: timeseries.Panel, bounds: Steps) -> None:
    panel.thresholds(_steps(bounds, palette.PLAIN))
    if bounds:
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )


def _legend() -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _target(query: Query, letter: str, text: PanelText) -> prometheus.Dataquery:
    legend = _legend_text(query.name, text.title)
    return prometheus.Dataquery().expr(query.expr).legend_format(legend).range().datasource(DATASOURCE).ref_id(letter)


def _legend_text(name: str, title: str) -> str:
    """Return a legend in which servers and daemons stand only where there are several, see `Query`."""
    for label, before in (("{{server}}", f"${{{OF}}}"), ("{{instance}}", "")):
        if name.startswith(label) and f"${{{AT}}}" not in name:
            rest = name.removeprefix(label).strip()
            return f"{before}{title if rest in {'', f'${{{ENGINE}}}'} else ''}{rest}${{{AT}}}"
    return name


def _name_alone(name: str, title: str) -> str:
    """Return what `_legend_text` makes of a name where one server with one engine is chosen; "" if labels are in it."""
    alone = _legend_text(name, title)
    for variable in (OF, AT, ENGINE):
        alone = alone.replace(f"${{{variable}}}", "")
    return "" if "{{" in alone else alone


def _line_properties(query: Query, *, stacked: bool) -> list[dashboard.DynamicConfigValue]:
    properties = [_palette() if query.several else _color("fixed", query.color)]
    if query.limit:
        properties += [
            dashboard.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
            dashboard.DynamicConfigValue("custom.fillOpacity", 0),
            dashboard.DynamicConfigValue("custom.lineWidth", 1),
            dashboard.DynamicConfigValue("custom.showPoints", "never"),
        ]
        if stacked:
            properties.append(dashboard.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "A"}))
    return properties


def _format(unit: str) -> str:
    """Return what Grafana calls a unit."""
    return COUNT if unit in COUNTED else unit


def _of_axis(unit: str) -> tuple[str, str]:
    """Return in which unit an axis writes its numbers, and what it says of what they are, if it has to."""
    if unit == LATENCY:
        # With its suffix Grafana writes 0.0100 s and 1000 s at an axis.
        return COUNT, "s"
    return _format(unit), unit if unit in COUNTED else ""


def _palette() -> dashboard.DynamicConfigValue:
    """Return that each series has a colour of its own: of shades of one, three servers cannot be told apart."""
    return dashboard.DynamicConfigValue("color", {"mode": "palette-classic"})


def _thresholds(steps: Steps, below: str) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue("thresholds", _steps(steps, below).build())


def _color(mode: str, color: str) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue("color", {"mode": mode, "fixedColor": color})


def _column_properties(column: Column) -> list[dashboard.DynamicConfigValue]:
    below = column.below or (palette.PLAIN if column.gauge else palette.TEXT)
    properties = [
        dashboard.DynamicConfigValue("unit", _format(column.unit)),
        _thresholds(column.steps, below),
        dashboard.DynamicConfigValue("noValue", _NOTHING),
    ]
    if column.decimals is not None:
        properties.append(dashboard.DynamicConfigValue("decimals", column.decimals))
    if column.mappings:
        properties.append(dashboard.DynamicConfigValue("mappings", list(column.mappings)))
    if column.gauge:
        properties += [
            dashboard.DynamicConfigValue("min", 0),
            # Without an end of its own a bar's is that of its column: all numbers of a table together have one, too.
            dashboard.DynamicConfigValue(*(("fieldMinMax", True) if column.most is None else ("max", column.most))),
            dashboard.DynamicConfigValue("custom.cellOptions", {"type": "gauge", "mode": "basic"}),
        ]
    elif column.mappings or column.steps:
        kind = "color-background" if column.filled else "color-text"
        properties.append(dashboard.DynamicConfigValue("custom.cellOptions", {"type": kind, "mode": "basic"}))
    if column.width is not None:
        properties.append(dashboard.DynamicConfigValue("custom.width", column.width))
    if column.links:
        properties.append(dashboard.DynamicConfigValue("links", list(column.links)))
    if column.hidden:
        properties.append(dashboard.DynamicConfigValue("custom.hidden", True))
    return properties


def _key_properties(key: Key) -> list[dashboard.DynamicConfigValue]:
    properties = [dashboard.DynamicConfigValue("noValue", "" if key.hidden else _NOTHING)]
    if key.hidden:
        properties.append(dashboard.DynamicConfigValue("custom.hidden", True))
    if key.links:
        properties.append(dashboard.DynamicConfigValue("links", list(key.links)))
    if key.width is not None:
        properties.append(dashboard.DynamicConfigValue("custom.width", key.width))
    if key.word:
        any_text = dashboard.DashboardRegexMapOptions(".+", dashboard.ValueMappingResult(text=key.word, index=0))
        properties.append(dashboard.DynamicConfigValue("mappings", [dashboard.RegexMap(any_text)]))
    if key.mappings:
        properties += [
            dashboard.DynamicConfigValue("mappings", list(key.mappings)),
            dashboard.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
        ]
    return properties


def _table(sort_by: Sequence[tuple[str, bool]]) -> table.Panel:
    return (
        table.Panel()
        .unit(COUNT)
        .thresholds(_steps((), palette.PLAIN))
        .cell_height(common.TableCellHeight.SM)
        .min_width(LEAST_COLUMN)
        .sort_by(
            [
                common_builders.TableSortByFieldState().display_name(name).desc(descending)
                for name, descending in sort_by
            ]
        )
    )


def _cells(column: Column, letter: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .expr(column.expr)
        .legend_format(column.name)
        .format(prometheus_models.PromQueryFormat.TABLE)
        .instant()
        .datasource(DATASOURCE)
        .ref_id(letter)
    )


def _transformations(
    shown: Sequence[str], names: Mapping[str, str], required: str | None
) -> Iterator[dashboard.DataTransformerConfig]:
    """Yield what makes one table of all queries: these fields, in this order, under these names."""
    yield _transformation("merge", {})
    if required is not None:
        yield _transformation("filterByValue", _not_empty(required))
    yield _transformation("filterFieldsByName", {"include": {"names": shown}})
    places = {field: place for place, field in enumerate(shown)}
    yield _transformation("organize", {"indexByName": places, "renameByName": names, "excludeByName": {}})


def _not_empty(field: str) -> Mapping[str, object]:
    return {
        "filters": [{"fieldName": field, "config": {"id": "isNotNull", "options": {}}}],
        "type": "include",
        "match": "all",
    }


def _transformation(kind: str, options: Mapping[str, object]) -> dashboard.DataTransformerConfig:
    return dashboard.DataTransformerConfig(id_val=kind, options=dict(options))


def _steps(steps: Steps, below: str) -> builders.ThresholdsConfig:
    return (
        builders.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps(
            [
                dashboard.Threshold(value=None, color=below),
                *(dashboard.Threshold(value, color) for value, color in steps),
            ]
        )
    )


def _lettered(items: Iterable[_T]) -> Iterator[tuple[str, _T]]:
    return zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", items, strict=False)
