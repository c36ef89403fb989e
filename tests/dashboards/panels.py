# SPDX-License-Identifier: Apache-2.0
"""
What a dashboard asks Prometheus, as Grafana would send it.

Variables are filled in the order in which they stand, and replaced as Grafana's data source for Prometheus does: what
may have several values is a regular expression. Conditions of ad hoc filters are left out: at first there are none.
"""

from __future__ import annotations

import re

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.alerts.replay import STEP
from tests.dashboards.api import Api, Series
from tests.dashboards.loaded import Span


ALL = "$__all"
SCRAPE_INTERVAL = float(STEP)
"""The data source's ``timeInterval``, which is that of the scrapes."""

WIDTH = 1280
"""Of the window, in pixels: a panel asks for as many points as it has pixels."""

COLUMNS = 24

_REFERENCE = re.compile(r"\$([^\W\d]\w*)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]")
_LABEL = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_LABEL_VALUES = re.compile(r"label_values\(\s*(?:(.+),\s*)?(\w+)\s*\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.+)\)", re.DOTALL)
_OPTION = re.compile(r"^\s*(.+?)\s+:\s+(.+?)\s*$")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_ROUNDED = (
    (10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000),
    (7500, 5000), (12500, 10000), (17500, 15000), (25000, 20000), (45000, 30000), (90000, 60000), (210000, 120000),
    (450000, 300000), (750000, 600000), (1050000, 900000), (1500000, 1200000), (2700000, 1800000), (5400000, 3600000),
)  # fmt: skip
"""Below how many milliseconds a step is which: Grafana's steps, as far as an hour."""


class UnknownReferenceError(Exception):
    """A text refers to a variable that the dashboard has not, or in a way that is not known here."""


class Sent(NamedTuple):
    """
    A query as it is sent.

    Args:
        ref: The target's letter, or what asks.
        expr: What is asked.
        start: The first time, in seconds since the epoch.
        end: The last, or the only one.
        step: Seconds from one value to the next; `None` if only what is at `end` is asked for.
        legend: A series' name, in which ``{{label}}`` stands for a label's value.
        format: time_series, table or heatmap.
    """

    ref: str
    expr: str
    start: float
    end: float
    step: float | None
    legend: str = ""
    format: str = "time_series"


class Chosen(NamedTuple):
    """
    A variable's value.

    Args:
        values: All that are chosen.
        is_several: Whether there may be several, and they stand in regular expressions.
        whole: What stands for all of them, if they all are chosen and the variable says so.
    """

    values: tuple[str, ...]
    is_several: bool = False
    whole: str = ""


class View(NamedTuple):
    """A dashboard as it is open: its time range, its variables, and the values that each offers."""

    span: Span
    chosen: Mapping[str, Chosen]
    options: Mapping[str, tuple[str, ...]]

    def text(self, template: str, step: float = SCRAPE_INTERVAL, least: float = SCRAPE_INTERVAL) -> str:
        """
        Return a text with its variables replaced.

        Args:
            template: The text.
            step: Seconds from one point to the next.
            least: What the step is at least: it counts as the interval of the scrapes.

        Raises:
            UnknownReferenceError: There is no such variable.
        """
        seconds = round(self.span.end - self.span.start)
        rate = max(step + least, 4 * least)
        known = {
            "__interval": _duration(step),
            "__interval_ms": f"{step * 1000:.0f}",
            "__rate_interval": _duration(rate),
            "__rate_interval_ms": f"{rate * 1000:.0f}",
            "__range": f"{seconds}s",
            "__range_s": f"{seconds}",
            "__range_ms": f"{seconds * 1000}",
            "__from": f"{self.span.start * 1000:.0f}",
            "__to": f"{self.span.end * 1000:.0f}",
        }

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2] or match[4]
            if name in known:
                return known[name]
            if name not in self.chosen:
                raise UnknownReferenceError(f"there is no variable {name}")
            return _written(self.chosen[name], match[3] or match[5])

        return _REFERENCE.sub(value, template)


def opened(dashboard: Mapping[str, Any], api: Api, span: Span, given: Mapping[str, str]) -> View:
    """
    Return a dashboard as it is when somebody opens it.

    Args:
        dashboard: Its JSON.
        api: Where the variables ask for their values.
        span: The time range.
        given: Values of variables; the others have what the dashboard chooses, or their first value.

    Raises:
        QueryError: A variable's query fails.
        UnknownReferenceError: A variable refers to one that does not stand before it.
    """
    view = View(span, {}, {})
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "adhoc":
            options = _options(variable, api, view)
            chosen = _choose(variable, options, given.get(variable["name"]))
            view = view._replace(
                chosen={**view.chosen, variable["name"]: chosen},
                options={**view.options, variable["name"]: options},
            )
    return view


def panels_of(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all panels but the rows, also those of collapsed rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or []
        else:
            yield panel


def sent_by(panel: Mapping[str, Any], view: View) -> Iterator[Sent]:
    """
    Yield what a panel asks.

    Raises:
        UnknownReferenceError: A query refers to a variable that is not there.
    """
    for target in panel.get("targets", []):
        if not target.get("hide"):
            yield from _sent(panel, target, view)


def annotations_of(dashboard: Mapping[str, Any], view: View) -> Iterator[Sent]:
    """
    Yield what the annotations ask.

    Raises:
        UnknownReferenceError: A query refers to a variable that is not there.
    """
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            least = seconds_of(annotation.get("step") or "60s")
            step = max(_step(view.span, WIDTH), least)
            expr = view.text(annotation["expr"], step, least)
            yield _aligned(Sent(f"annotation {annotation['name']}", expr, *view.span, step))


def labels_of(template: str) -> list[str]:
    """Return the labels that a series' name has in it."""
    return _LABEL.findall(template)


def legend_of(template: str, labels: Mapping[str, str]) -> str:
    """Return a series' name."""
    return _LABEL.sub(lambda place: labels.get(place[1], ""), template)


def seconds_of(duration: str) -> float:
    """
    Return a duration such as ``15s`` in seconds.

    Raises:
        ValueError: It is none.
    """
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration} is no duration")
    return float(match[1]) * _UNITS[match[2]]


def _sent(panel: Mapping[str, Any], target: Mapping[str, Any], view: View) -> Iterator[Sent]:
    least = seconds_of(target.get("interval") or panel.get("interval") or f"{SCRAPE_INTERVAL:g}s")
    points = panel.get("maxDataPoints") or WIDTH * panel["gridPos"]["w"] // COLUMNS
    span = _own_span(panel, view.span)
    step = max(_step(span, points), least)
    whole = Sent(
        target["refId"],
        view._replace(span=span).text(target["expr"], step, least),
        *span,
        step,
        view.text(target.get("legendFormat", "")),
        target.get("format", "time_series"),
    )
    if target.get("range", not target.get("instant")):
        yield _aligned(whole)
    if target.get("instant"):
        yield whole._replace(step=None)


def _own_span(panel: Mapping[str, Any], span: Span) -> Span:
    """Return a panel's time range, which may be another than the dashboard's."""
    return Span(span.end - seconds_of(panel["timeFrom"]), span.end) if panel.get("timeFrom") else span


def _aligned(sent: Sent) -> Sent:
    assert sent.step is not None
    return sent._replace(start=sent.start // sent.step * sent.step, end=sent.end // sent.step * sent.step)


def _step(span: Span, points: int) -> float:
    milliseconds = (span.end - span.start) * 1000 / points
    found = next(step for below, step in _ROUNDED if milliseconds < below) / 1000
    return max(found, SCRAPE_INTERVAL)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"


def _options(variable: Mapping[str, Any], api: Api, view: View) -> tuple[str, ...]:
    """Return the values that a variable offers."""
    kind, query = variable["type"], variable.get("query", "")
    if kind == "query":
        return _asked(query["query"] if isinstance(query, Mapping) else query, variable.get("regex", ""), api, view)
    if kind == "custom":
        pairs = (_OPTION.match(option) for option in query.split(","))
        return tuple(pair[2] if pair else option.strip() for pair, option in zip(pairs, query.split(","), strict=True))
    if kind in {"datasource", "constant", "textbox"}:
        return (query,)
    raise UnknownReferenceError(f"variables of type {kind} are not known here")


def _asked(query: str, regex: str, api: Api, view: View) -> tuple[str, ...]:
    result = _QUERY_RESULT.fullmatch(view.text(query).strip())
    if result is not None:
        lines = [_line(series) for series in api.instant(result[1], view.span.end)]
        found = (re.search(regex.strip("/"), line) for line in lines)
        return tuple(dict.fromkeys(match[1] for match in found if match))
    match = _LABEL_VALUES.fullmatch(view.text(query).strip())
    if match is None:
        raise UnknownReferenceError(f"{query} is not known here")
    return tuple(sorted(api.label_values(match[2], match[1], *view.span)))


def _line(series: Series) -> str:
    """Return a series as Grafana writes it where a variable asks for a query's result."""
    labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
    return f"{{{labels}}} {' '.join(f'{value:g} {at * 1000:.0f}' for at, value in series.values.items())}"


def _choose(variable: Mapping[str, Any], options: tuple[str, ...], given: str | None) -> Chosen:
    is_several = bool(variable.get("multi") or variable.get("includeAll"))
    value = given or variable.get("current", {}).get("value") or (ALL if variable.get("includeAll") else None)
    values = tuple(value) if isinstance(value, list) else (value,)
    if ALL in values:
        return Chosen(options, is_several, variable.get("allValue") or "")
    return Chosen(options[:1] if value is None else values, is_several)


def _written(chosen: Chosen, form: str | None) -> str:
    """Return a variable's value as it stands in a query."""
    if chosen.whole:
        return chosen.whole
    if form in {"regex", "pipe"}:
        return "|".join(chosen.values)
    if form not in {None, "raw"}:
        raise UnknownReferenceError(f"the format {form} of a variable is not known here")
    if form == "raw" or not chosen.is_several:
        return ",".join(chosen.values)
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", r"\\\\")) for value in chosen.values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
