# SPDX-License-Identifier: Apache-2.0
"""Asks a real Prometheus all that a dashboard asks, over every recording, and judges the answers."""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.dashboards.api import Api, QueryError, Series, has_data
from tests.dashboards.loaded import DAEMON_ADDRESS, FLEET, WATCHED_TWICE, Loaded, Span
from tests.dashboards.panels import (
    ALL,
    Sent,
    UnknownReferenceError,
    View,
    annotations_of,
    labels_of,
    legend_of,
    opened,
    panels_of,
    sent_by,
)


MOST_SERIES = 24
"""So many lines of one server can be told apart in a panel, with a legend that says which is which."""

MOST_BUCKETS = 64

EVERY_DAEMON = "fleet, every daemon"
"""
The view of the time in which one server is there twice: legends need not tell the two apart, but no query may fail.
"""

_MAY_BE_EMPTY = frozenset({"of", "at", "eng"})
"""Parts of legends, which are nothing where there is one server, one daemon or one engine."""

_BAD, _LASTS = "stalled|down", "20s"

_SWEEP = 15.0
_ROUNDING = 1e-9

Exceptions = Mapping[str, Mapping[str, str]]
"""Why a target has no data in any recording, by panel and letter."""


class Answer(NamedTuple):
    """What came of a query: where it was asked, by which panel (nothing: by the dashboard), and series or an error."""

    where: str
    panel: Mapping[str, Any]
    sent: Sent
    series: Sequence[Series] = ()
    error: str = ""

    @property
    def place(self) -> str:
        """Panel and target."""
        title = self.panel.get("title")
        return f"{title}: {self.sent.ref}" if title else self.sent.ref


def asked(dashboard: Mapping[str, Any], prometheus: Loaded, recordings: Iterable[str]) -> list[Answer]:
    """Return the answers to all that a dashboard asks when it is opened, over each of recordings and over the fleet."""
    api = Api(prometheus.url)
    views = [
        (name, {"server": name, "daemon": DAEMON_ADDRESS, "shift": since_the_fleet(prometheus, name)})
        for name in recordings
    ]
    views += [(FLEET, {"server": ALL, "daemon": DAEMON_ADDRESS}), (EVERY_DAEMON, {"server": ALL})]
    answers = []
    for where, given in views:
        span = while_watched_twice(prometheus) if where == EVERY_DAEMON else prometheus.spans[where]
        try:
            view = opened(dashboard, api, span, given)
        except (QueryError, UnknownReferenceError) as error:
            answers.append(Answer(where, {}, Sent("variables", "", *span, None), error=str(error)))
            continue
        answers += _variables(where, view)
        answers += _answers(where, {}, annotations_of(dashboard, view), api)
        for panel in panels_of(dashboard):
            answers += _answers(where, panel, sent_by(panel, view), api)
    return answers


def since_the_fleet(prometheus: Loaded, name: str) -> str:
    """Return how long before a recording it is there a first time, in the fleet: what a second range shows."""
    return f"{prometheus.spans[name].end - prometheus.spans[FLEET].end:.0f}s"


def while_watched_twice(prometheus: Loaded) -> Span:
    """Return the end of the fleet's time, in which a second daemon watches one of its servers."""
    _, end = prometheus.spans[FLEET]
    start, stop = prometheus.spans[WATCHED_TWICE]
    return Span(end - (stop - start), end)


def _variables(where: str, view: View) -> Iterator[Answer]:
    for name, options in view.options.items():
        if name in _MAY_BE_EMPTY:
            continue
        series = [Series({name: option}, {view.span.end: 1.0}) for option in options]
        error = "" if options else "offers no value"
        yield Answer(where, {}, Sent(f"variable {name}", "", *view.span, None), series, error)


def _answers(where: str, panel: Mapping[str, Any], sent: Iterator[Sent], api: Api) -> Iterator[Answer]:
    try:
        for each in sent:
            yield _answer(where, panel, each, api)
    except UnknownReferenceError as error:
        yield Answer(where, panel, Sent("?", "", 0, 0, None), error=str(error))


def _answer(where: str, panel: Mapping[str, Any], sent: Sent, api: Api) -> Answer:
    try:
        if sent.step is None:
            return Answer(where, panel, sent, api.instant(sent.expr, sent.end))
        return Answer(where, panel, sent, api.range(sent.expr, sent.start, sent.end, sent.step))
    except QueryError as error:
        return Answer(where, panel, sent, error=str(error))


def errors(answers: Sequence[Answer]) -> list[str]:
    """Return what Prometheus refused, and what could not be asked."""
    return [f"{answer.where}: {answer.place}: {answer.error}" for answer in answers if answer.error]


def empty(answers: Sequence[Answer], prometheus: Loaded, known: Exceptions) -> list[str]:
    """Return the targets without data in all recordings, but for known ones; and the known ones that have some."""
    api = Api(prometheus.url)
    by_target: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        if answer.panel:
            by_target[answer.panel["title"], answer.sent.ref].append(answer)
    faults = [
        f"there is no target {title}: {ref}"
        for title, targets in known.items()
        for ref in targets
        if (title, ref) not in by_target
    ]
    for (title, ref), each in by_target.items():
        is_known = ref in known.get(title, {})
        if is_known == any(_has_data(answer, api) for answer in each):
            faults.append(f"{title}: {ref}: {'has data, and is an exception' if is_known else 'no data anywhere'}")
    return faults


def _has_data(answer: Answer, api: Api) -> bool:
    """Whether a query gives anything. A range may end at any time: what asks for its end is asked all along."""
    if any(has_data(series) for series in answer.series):
        return True
    sent = answer.sent
    if sent.step is not None or answer.error:
        return False
    return any(has_data(series) for series in api.range(sent.expr, sent.start, sent.end, _SWEEP))


def crowded(answers: Sequence[Answer]) -> list[str]:
    """Return the panels that show more of one server than can be told apart."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for answer in answers:
        if answer.panel and answer.where not in {FLEET, EVERY_DAEMON} and answer.sent.format != "table":
            counts[answer.where, answer.panel["title"]] += len(answer.series)
    most = {answer.panel["title"]: _most(answer.panel) for answer in answers if answer.panel}
    return [f"{where}: {title}: {count} series" for (where, title), count in counts.items() if count > most[title]]


def _most(panel: Mapping[str, Any]) -> int:
    return MOST_BUCKETS if panel["type"] == "heatmap" else MOST_SERIES


def confused(answers: Sequence[Answer]) -> list[str]:
    """Return the panels in which two series have the same name, or one has none; in tables, two rows the same keys."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for answer in answers:
        if answer.panel and answer.where != EVERY_DAEMON:
            of_table = answer.sent.format == "table"
            key = (answer.where, answer.place if of_table else answer.panel["title"])
            names[key] += [_row(answer, each) if of_table else _name(answer, each) for each in answer.series]
    return [
        f"{where}: {place}: {'a series has no name' if not name.strip() else f'two series are named {name}'}"
        for (where, place), found in names.items()
        for name in sorted(set(found))
        if not name.strip() or found.count(name) > 1
    ]


def wordy(answers: Sequence[Answer]) -> list[str]:
    """Return the panels whose legends name the server though one is chosen, or the daemon though there is one."""
    faults = {}
    for answer in answers:
        if answer.panel and answer.where not in {FLEET, EVERY_DAEMON} and answer.sent.format != "table":
            for series in answer.series:
                said = " ".join(series.labels.get(label, "") for label in labels_of(answer.sent.legend)).split()
                for word in sorted({answer.where, DAEMON_ADDRESS} & set(said)):
                    faults[f"{answer.where}: {answer.place}: a legend names {word}"] = None
    return list(faults)


class Failure(NamedTuple):
    """A server that serves nobody: which, its state, and a moment when it has been in it for a while."""

    server: str
    state: str
    at: float


def failures(prometheus: Loaded) -> list[Failure]:
    """Return of each server in the fleet the last moment at which it had been down, or stalled, for some time."""
    start, end = prometheus.spans[FLEET]
    # What was before it is shown for the look back.
    lasting = f'min_over_time(vllm_watch_engine_state{{instance="{DAEMON_ADDRESS}",state=~"{_BAD}"}}[{_LASTS}]) == 1'
    found = Api(prometheus.url).range(lasting, start, end, _SWEEP / 3)
    return [Failure(each.labels["server"], each.labels["state"], max(each.values)) for each in found]


def reassuring(
    dashboard: Mapping[str, Any], prometheus: Loaded, failed: Iterable[Failure], good: Collection[str]
) -> list[str]:
    """Return the figures and cells of tables that say in a colour that all is well while the server serves nobody."""
    api, faults = Api(prometheus.url), {}
    for failure in failed:
        span = Span(prometheus.spans[FLEET].start, failure.at)
        view = opened(dashboard, api, span, {"server": failure.server, "daemon": DAEMON_ADDRESS})
        for panel in judging(panels_of(dashboard)):
            for target, sent in zip(panel["targets"], sent_by(panel, view), strict=True):
                for series in api.instant(sent.expr, sent.end):
                    colors = {color_of(panel, target, value) for value in series.values.values()}
                    if colors & set(good):
                        faults[f"{failure.state}: {panel['title']}: {sent.ref} is green"] = None
    return list(faults)


def _name(answer: Answer, series: Series) -> str:
    return legend_of(answer.sent.legend, series.labels)


def _row(answer: Answer, series: Series) -> str:
    """Return what a table shows of a series' labels."""
    shown = series.labels
    for transformation in answer.panel.get("transformations", []):
        options = transformation["options"]
        if transformation["id"] == "filterFieldsByName":
            kept = options["include"]["names"]
            shown = {name: value for name, value in shown.items() if name in kept}
        if transformation["id"] == "organize":
            hidden = {name for name, is_hidden in options.get("excludeByName", {}).items() if is_hidden}
            shown = {name: value for name, value in shown.items() if name not in hidden}
    return " ".join(f"{name}={value}" for name, value in sorted(shown.items())) or "the only row"


def unreal(answers: Sequence[Answer]) -> list[str]:
    """Return the targets that give what is no number, or one beyond the ends of the panel's axis."""
    faults = {}
    for answer in answers:
        if answer.panel:
            defaults = answer.panel.get("fieldConfig", {}).get("defaults", {})
            least, most = defaults.get("min", -math.inf), defaults.get("max", math.inf)
            for series in answer.series:
                for value in series.values.values():
                    if not math.isfinite(value):
                        faults[f"{answer.where}: {answer.place}: {value}"] = None
                    elif not least - _ROUNDING <= value <= most + _ROUNDING:
                        faults[f"{answer.where}: {answer.place}: a value is not from {least} to {most}"] = None
    return list(faults)


PLAIN_CELLS = frozenset({"auto", "json-view"})
"""Kinds of a table's cells that have no colour of their own."""

Panel = Mapping[str, Any]


def color_of(panel: Panel, target: Mapping[str, Any], value: float) -> str | None:
    """Return the colour of a value that a target gives; nothing if it has that of text, or of no judgement."""
    if panel["type"] not in {"stat", "table"}:
        return None
    field = _field(panel, target)
    if panel["type"] == "table" and field.get("custom.cellOptions", {"type": "auto"})["type"] in PLAIN_CELLS:
        return None
    mapped = _mapped(field.get("mappings") or [], value)
    return mapped or _step(field.get("thresholds", {}).get("steps", []), value)


def _field(panel: Panel, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a target's values are shown: the panel's defaults, and what is set for this target."""
    field = dict(panel.get("fieldConfig", {}).get("defaults", {}))
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        if _is_of(override["matcher"], target):
            field |= {each["id"]: each.get("value") for each in override["properties"]}
    return field


def _is_of(matcher: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    names = {"byFrameRefID": target["refId"], "byName": target.get("legendFormat")}
    return names.get(matcher["id"]) == matcher["options"]


def _mapped(mappings: Sequence[Mapping[str, Any]], value: float) -> str | None:
    for mapping in mappings:
        result = mapping["options"].get(f"{value:g}") if mapping["type"] == "value" else None
        if result is not None:
            return result.get("color")
    return None


def _step(steps: Sequence[Mapping[str, Any]], value: float) -> str | None:
    reached = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]]
    return reached[-1] if reached else None


def judging(panels: Iterator[Panel]) -> Iterator[Panel]:
    """Yield the panels that may tell by a colour whether all is well."""
    yield from (panel for panel in panels if panel["type"] in {"stat", "table"})
