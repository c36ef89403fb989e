# SPDX-License-Identifier: Apache-2.0
"""A run over time: a drawing with a panel for each quantity, one axis of time, the phases behind, the events across."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Phase, Run, Timeline
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Group, Table, plain_table
from vllm_watch.analysis.rendering.run_facts import run_start
from vllm_watch.analysis.rendering.svg import drawing, label, upright
from vllm_watch.analysis.rendering.svg_plot import (
    AXIS_HEIGHT,
    COLUMNS,
    Plot,
    Scale,
    band,
    clock,
    level_axis,
    linear,
    polyline,
    series_path,
    since_start,
    upright_axis,
)
from vllm_watch.daemon.catalog.number_texts import duration, moment, significant


class Curve(NamedTuple):
    """A series of a panel: its name in `Timeline.values`, and what it is called."""

    name: str
    label: str


class Panel(NamedTuple):
    """Series that share an upright axis. `scale` is what values are multiplied with to have the title's unit."""

    title: str
    curves: tuple[Curve, ...]
    scale: float = 1.0


class Series(NamedTuple):
    """A line: its places along the axis of time, and its value at each, or `None`."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]


PANELS = (
    Panel("Output, tokens/s", (Curve("generation_tokens_per_second", "Output, tokens/s"),)),
    Panel("Prompts, tokens/s", (Curve("prompt_tokens_per_second", "Prompts, tokens/s"),)),
    Panel("Requests", (Curve("requests_running", "Requests running"), Curve("requests_waiting", "Requests waiting"))),
    Panel("KV cache, %", (Curve("kv_cache_usage_ratio", "KV cache, %"),), 100.0),
    Panel("Acceptance length, tokens", (Curve("spec_decode_mean_acceptance_length", "Acceptance length, tokens"),)),
    Panel("Accepted drafts, %", (Curve("spec_decode_acceptance_ratio", "Accepted drafts, %"),), 100.0),
    Panel("Prefix cache hits, %", (Curve("prefix_cache_hit_ratio", "Prefix cache hits, %"),), 100.0),
)
"""The panels from top to bottom; one of which nothing is known is left out."""

TABLE_ROWS = 40
"""How many rows the table behind a drawing has."""

_OVERLAY = "The sides over time"
_PANEL_HEIGHT = 84
_PANEL_PITCH = 118
_STRIP_TOP = 16
_STRIP_HEIGHT = 16
_BANDS_TOP = _STRIP_TOP + _STRIP_HEIGHT
_TOP = 58
_NAMED_SHARE = 0.09
_WIDE_SHARE = 0.22
_NUMBER_DISTANCE = 0.025


def timeline_figure(run: Run, key: str, columns: int = COLUMNS, rows: int = TABLE_ROWS) -> Figure | None:
    """Return the drawing of a run over time, thinned to these columns and table rows; `None` if nothing is known."""
    panels = known_panels(run.timeline)
    start = run_start(run)
    if not panels:
        return None
    xs = [at - start for at in run.timeline.times]
    x = clock(xs[0], xs[-1])

    bottom = panels_bottom(len(panels))
    parts = [_phases(run.phases, start, x, bottom)]
    for at, panel in enumerate(panels):
        series = [Series(each.label, xs, scaled(run.timeline, each.name, panel.scale)) for each in panel.curves]
        parts += panel_parts(panel.title, series, x, _TOP + at * _PANEL_PITCH, columns)
    parts += [_events(run, start, x, bottom), time_axis(x, bottom)]
    description = f"{_names(panels)} over {duration(x.high - x.low)}. {_phases_in_words(run.phases, start)}"
    svg = drawing(key, "The run over time", description, bottom + AXIS_HEIGHT, *parts)
    notes = (f"The load starts at {moment(start)} UTC.", *_event_note(run))
    return Figure(
        key,
        "The run over time",
        svg,
        _legend(panels),
        _table(run.timeline, panels, start, rows),
        notes,
        _bands(run.phases),
    )


def overlay_figure(runs: Mapping[str, Run], key: str) -> Figure | None:
    """Return the runs of several sides over time, each from its own start; `None` if nothing is known of them."""
    curves = [(panel, curve) for panel in PANELS for curve in panel.curves]
    shown = [
        (panel, curve) for panel, curve in curves if any(_is_known(run.timeline, curve.name) for run in runs.values())
    ]
    if not shown:
        return None
    loads = {name: _during_load(run) for name, run in runs.items()}
    x = clock(0.0, max(at for each in loads.values() for at in each.times))
    bottom = panels_bottom(len(shown))
    parts: list[str] = []
    for at, (panel, curve) in enumerate(shown):
        title = panel.title if len(panel.curves) == 1 else curve.label
        series = [Series(name, each.times, scaled(each, curve.name, panel.scale)) for name, each in loads.items()]
        parts += panel_parts(title, series, x, _TOP + at * _PANEL_PITCH, COLUMNS)
    parts.append(time_axis(x, bottom))
    labels = ", ".join(f"{name} ({run.name})" for name, run in runs.items())
    description = f"{'; '.join(curve.label for _, curve in shown)} of {labels}, over {duration(x.high - x.low)}."
    svg = drawing(key, _OVERLAY, description, bottom + AXIS_HEIGHT, *parts)
    legend = tuple(Entry(at, f"{name}: {run.name}") for at, (name, run) in enumerate(runs.items()))
    return Figure(key, _OVERLAY, svg, legend, _overlay_table(loads, shown), ("0 is the start of each load.",))


def _during_load(run: Run) -> Timeline:
    """Return the series of a run during its load, with times since its start; all of them if that has none."""
    start = run_start(run)
    end = float("inf") if run.end is None else run.end - start
    times = [at - start for at in run.timeline.times]
    kept = [at for at, since in enumerate(times) if 0 <= since <= end] or range(len(times))
    values = {name: tuple(each[at] for at in kept) for name, each in run.timeline.values.items()}
    return Timeline(times=tuple(times[at] for at in kept), values=values)


def _is_known(timeline: Timeline, name: str) -> bool:
    return bool(set(timeline.values.get(name, ())) - {None})


def known_panels(timeline: Timeline) -> tuple[Panel, ...]:
    """Return the panels of which anything is known, each with the series that are."""
    kept = []
    for panel in PANELS:
        curves = tuple(each for each in panel.curves if _is_known(timeline, each.name))
        kept += [panel._replace(curves=curves)] if curves else []
    return tuple(kept)


def scaled(timeline: Timeline, name: str, scale: float) -> list[float | None]:
    """Return a series in the unit of its panel."""
    return [None if value is None else value * scale for value in timeline.values.get(name, ())]


def panel_parts(title: str, series: Sequence[Series], x: Scale, top: float, columns: int) -> Iterator[str]:
    """Yield the elements of one panel, which begins at `top` pixels."""
    y = linear((value for each in series for value in each.ys if value is not None), ticks=3)
    plot = Plot(x, y, top, _PANEL_HEIGHT)
    yield label(title, 0, top - 8, "panel-title", "start")
    yield upright_axis(plot)
    for at, each in enumerate(series):
        yield polyline(at, plot, series_path(each.xs, each.ys, plot, columns))


def panels_bottom(panels: int) -> float:
    """Return where the last of so many panels ends, in pixels."""
    return _TOP + (panels - 1) * _PANEL_PITCH + _PANEL_HEIGHT


def time_axis(x: Scale, bottom: float) -> str:
    """Return the axis of time below the last panel."""
    return level_axis(Plot(x, x, bottom, 0), "Time since the start of the load", since_start, has_grid=False)


def _legend(panels: Sequence[Panel]) -> tuple[Entry, ...]:
    """Return what the lines are in panels that have several; one line is what its panel's title says."""
    several = [panel.curves for panel in panels if len(panel.curves) > 1]
    return tuple(Entry(at, curve.label) for curves in several for at, curve in enumerate(curves))


def _bands(phases: Sequence[Phase]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.phase for each in phases))


def _names(panels: Sequence[Panel]) -> str:
    return "; ".join(curve.label for panel in panels for curve in panel.curves)


def _phases(phases: Sequence[Phase], start: float, x: Scale, bottom: float) -> str:
    parts = []
    for each in phases:
        left, right = x.share(each.start - start), x.share(each.end - start)
        if right > left:
            parts.append(band(left, right, _BANDS_TOP, bottom - _BANDS_TOP, f"phase {each.phase}"))
            parts.append(band(left, right, _STRIP_TOP, _STRIP_HEIGHT, f"strip {each.phase}"))
        if right - left >= _NAMED_SHARE:
            style = "phase-name" if right - left >= _WIDE_SHARE else "phase-name minor"
            parts.append(label(each.phase, (left + right) / 2, _STRIP_TOP + 12, style))
    return "".join(parts)


def _events(run: Run, start: float, x: Scale, bottom: float) -> str:
    """Return a line for each event, with its number in the table of events; numbers that would touch are left out."""
    parts = []
    last = -1.0
    for at, event in enumerate(run.events, start=1):
        share = x.share(event.at - start)
        if not x.low <= event.at - start <= x.high:
            continue
        parts.append(upright(share, _STRIP_TOP, bottom, "event"))
        if share - last >= _NUMBER_DISTANCE:
            parts.append(label(str(at), share, 12, "event-number"))
            last = share
    return "".join(parts)


def _event_note(run: Run) -> tuple[str, ...]:
    return ("The numbered lines are the events in the table of events.",) if run.events else ()


def _phases_in_words(phases: Sequence[Phase], start: float) -> str:
    shown = [
        f"{each.phase} from {since_start(each.start - start)} to {duration(each.end - start)}" for each in phases[:20]
    ]
    return f"Phases: {', '.join(shown)}." if shown else ""


def _table(timeline: Timeline, panels: Sequence[Panel], start: float, most: int) -> Table:
    curves = [(panel, curve) for panel in panels for curve in panel.curves]
    columns = (Column("After"), *(Column(curve.label) for _, curve in curves))
    size = max(1, -(-len(timeline.times) // most))
    rows = []
    for at in range(0, len(timeline.times), size):
        means = [_mean(scaled(timeline, curve.name, panel.scale)[at : at + size]) for panel, curve in curves]
        rows.append((duration(timeline.times[at] - start), *map(significant, means)))
    caption = "Means of equal parts of the time" if size > 1 else "The values in order of time"
    return plain_table(caption, columns, tuple(rows))


def _overlay_table(loads: Mapping[str, Timeline], shown: Sequence[tuple[Panel, Curve]]) -> Table:
    groups = []
    for panel, curve in shown:
        rows = [
            (
                name,
                significant(_mean(values)),
                significant(max((each for each in values if each is not None), default=None)),
            )
            for name, load in loads.items()
            for values in [scaled(load, curve.name, panel.scale)]
        ]
        groups.append(Group(curve.label, tuple(rows)))
    return Table("Each line in numbers", (Column("", is_text=True), Column("Mean"), Column("Highest")), tuple(groups))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
