# SPDX-License-Identifier: Apache-2.0
"""A run over time: a drawing with a panel for each quantity, one axis of time, the phases behind, the events across."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vllm_watch.analysis.loadtest.load_test import Phase, Run, Timeline
from vllm_watch.analysis.rendering import svg
from vllm_watch.analysis.rendering.document import Column, Entry, Figure, Table, plain_table
from vllm_watch.analysis.rendering.run_facts import phase_text, run_start
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import duration, moment, significant


PANELS: Mapping[str, tuple[str, ...]] = {
    N_("Output, tokens/s"): ("generation_tokens_per_second",),
    N_("Prompts, tokens/s"): ("prompt_tokens_per_second",),
    N_("Requests"): ("requests_running", "requests_waiting"),
    N_("KV cache, %"): ("kv_cache_usage_ratio",),
    N_("Acceptance length, tokens"): ("spec_decode_mean_acceptance_length",),
    N_("Accepted drafts, %"): ("spec_decode_acceptance_ratio",),
    N_("Prefix cache hits, %"): ("prefix_cache_hit_ratio",),
}
"""The panels from top to bottom by their titles, each with its series; those of which nothing is known are left out."""

_LABELS = {
    **{name: title for title, names in PANELS.items() for name in names},
    "requests_running": N_("Requests running"),
    "requests_waiting": N_("Requests waiting"),
}
_Line = tuple[Sequence[float], Sequence[float | None]]
"""The places of a series along the axis of time, and its value at each, or `None`."""

_EVENTS_NOTE = N_("The numbered lines are the events in the table of events.")
_PANEL_HEIGHT = 84
_PANEL_PITCH = 118
_STRIP_TOP = 16
_STRIP_HEIGHT = 16
_BANDS_TOP = _STRIP_TOP + _STRIP_HEIGHT
_TOP = 58
_NAMED_SHARE = 0.09
_WIDE_SHARE = 0.22
_NUMBER_DISTANCE = 0.025


def timeline_figure(run: Run, key: str) -> Figure | None:
    """Return the drawing of a run over time; `None` if nothing is known."""
    panels = {title: _known(names, [run.timeline]) for title, names in PANELS.items()}
    panels = {title: names for title, names in panels.items() if names}
    if not panels:
        return None
    start = run_start(run)
    xs = [at - start for at in run.timeline.times]
    x = svg.clock(xs[0], xs[-1])
    bottom = _panels_bottom(len(panels))
    parts = [_phases(run.phases, start, x, bottom)]
    for at, (title, names) in enumerate(panels.items()):
        parts += _panel(_(title), [(xs, _scaled(run.timeline, name)) for name in names], x, at)
    parts += [_events(run, start, x, bottom), _time_axis(x, bottom)]
    shown = [name for names in panels.values() for name in names]
    labels = _("; ").join(_(_LABELS[name]) for name in shown)
    description = _(
        "{labels} over {time}. {phases}",
        labels=labels,
        time=duration(x.high - x.low),
        phases=_phases_in_words(run.phases, start),
    )
    picture = svg.drawing(key, _("The run over time"), description, bottom + svg.AXIS_HEIGHT, *parts)
    several = [names for names in panels.values() if len(names) > 1]
    legend = tuple(Entry(at, _(_LABELS[name])) for names in several for at, name in enumerate(names))
    notes = (_("The load starts at {start} UTC.", start=moment(start)), *((_(_EVENTS_NOTE),) if run.events else ()))
    bands = tuple(dict.fromkeys(each.phase for each in run.phases))
    return Figure(key, _("The run over time"), picture, legend, _table(run.timeline, shown, start), notes, bands)


def _known(names: Iterable[str], timelines: Sequence[Timeline]) -> tuple[str, ...]:
    return tuple(name for name in names if any(set(each.values.get(name, ())) - {None} for each in timelines))


def _scaled(timeline: Timeline, name: str) -> list[float | None]:
    scale = 100.0 if name.endswith("_ratio") else 1.0
    return [None if value is None else value * scale for value in timeline.values.get(name, ())]


def _panel(title: str, lines: Sequence[_Line], x: svg.Scale, number: int) -> Iterator[str]:
    y = svg.linear((value for _xs, ys in lines for value in ys if value is not None), ticks=3)
    plot = svg.Plot(x, y, _TOP + number * _PANEL_PITCH, _PANEL_HEIGHT)
    yield svg.label(title, 0, plot.top - 8, "panel-title", "start")
    yield svg.upright_axis(plot)
    for at, (xs, ys) in enumerate(lines):
        yield svg.polyline(at, plot, svg.series_path(xs, ys, plot))


def _panels_bottom(panels: int) -> float:
    return _TOP + (panels - 1) * _PANEL_PITCH + _PANEL_HEIGHT


def _time_axis(x: svg.Scale, bottom: float) -> str:
    return svg.level_axis(
        svg.Plot(x, x, bottom, 0), _("Time since the start of the load"), svg.since_start, has_grid=False
    )


def _phases(phases: Sequence[Phase], start: float, x: svg.Scale, bottom: float) -> str:
    parts = []
    for each in phases:
        left, right = x.share(each.start - start), x.share(each.end - start)
        if right > left:
            parts.append(svg.band(left, right, _BANDS_TOP, bottom - _BANDS_TOP, f"phase {each.phase}"))
            parts.append(svg.band(left, right, _STRIP_TOP, _STRIP_HEIGHT, f"strip {each.phase}"))
        if right - left >= _NAMED_SHARE:
            style = "phase-name" if right - left >= _WIDE_SHARE else "phase-name minor"
            parts.append(svg.label(phase_text(each.phase), (left + right) / 2, _STRIP_TOP + 12, style))
    return "".join(parts)


def _events(run: Run, start: float, x: svg.Scale, bottom: float) -> str:
    """Return a line for each event, with its number in the table of events; numbers that would touch are left out."""
    parts = []
    last = -1.0
    for at, event in enumerate(run.events, start=1):
        share = x.share(event.at - start)
        if not x.low <= event.at - start <= x.high:
            continue
        parts.append(svg.upright(share, _STRIP_TOP, bottom, "event"))
        if share - last >= _NUMBER_DISTANCE:
            parts.append(svg.label(str(at), share, 12, "event-number"))
            last = share
    return "".join(parts)


def _phases_in_words(phases: Sequence[Phase], start: float) -> str:
    times = [
        (phase_text(each.phase), svg.since_start(each.start - start), duration(each.end - start))
        for each in phases[:20]
    ]
    shown = [
        _("{phase} from {since} to {until}", phase=phase, since=since, until=until) for phase, since, until in times
    ]
    return _("Phases: {shown}.", shown=listed(shown)) if shown else ""


def _table(timeline: Timeline, names: Sequence[str], start: float) -> Table:
    columns = (Column(_("After")), *(Column(_(_LABELS[name])) for name in names))
    size = max(1, -(-len(timeline.times) // svg.TABLE_ROWS))
    values = [_scaled(timeline, name) for name in names]
    rows = tuple(
        (duration(timeline.times[at] - start), *(significant(_mean(each[at : at + size])) for each in values))
        for at in range(0, len(timeline.times), size)
    )
    return plain_table(
        _("Means of equal parts of the time") if size > 1 else _("The values in order of time"), columns, rows
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
