# SPDX-License-Identifier: Apache-2.0
"""
A linter of the dashboards, for the faults that shipped dashboards of others have.

Grafana takes any JSON: a data source that only its author has, a unit that does not exist, a variable that nobody
defined, two panels on one place. It shows them as something else, or as nothing.
"""

from __future__ import annotations

import re

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.dashboards.expressions import asked_for, variables_in
from tests.dashboards.layout import misplaced, unreadable
from tests.dashboards.panels import panels_of


RUNBOOKS = Path(__file__).parents[2] / "alerts" / "runbooks"
TAG = "vllm-watch"
TAGS = frozenset({TAG, "vllm"})
"""Tags that dashboards link to: ours and those of vLLM's own."""

SCHEMA_VERSIONS = range(39, 42)
"""Of Grafana 11 and 12: an older Grafana does not know what is newer, a newer one brings what is older up to date."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

GRAFANA = {"type": "grafana", "uid": "-- Grafana --"}
"""Grafana's own database of annotations."""

MOST_REGIONS = 200
"""So many regions of load tests a dashboard shows; without a limit Grafana shows 100."""

UNITS = frozenset(
    {
        "none", "short", "locale", "percent", "percentunit", "s", "ms", "dtdurations", "dateTimeFromNow",
        "dateTimeAsIso", "dateTimeAsLocal", "bytes", "decbytes", "Bps", "binBps", "reqps", "ops", "cps", "string",
        "celsius", "flops",
    }
)  # fmt: skip
"""Units of Grafana's that make sense here. It takes any other word, and writes it behind the number."""

WORDLESS = frozenset({"none", "short", "locale"})
"""Units that write a bare number: an axis needs a label then."""

OWN_UNIT = re.compile(r"(suffix|prefix|time): ?\S.*")

HIDDEN = 2
"""A variable's ``hide``: it is not shown at all."""

BUILT_IN = re.compile(r"__(all|rate_interval|interval|range|from|to|data|field|value|series|url_time_range)\w*")
"""Variables that Grafana has without a definition."""

EXEMPLARS = "rgba(255,0,255,0.7)"
"""Grafana's own colour of a heatmap's exemplars, which none of our series has."""

KNOWN: Mapping[tuple[str, str], str] = {
    (
        "vllm-watch-sources",
        r"A: vllm_watch_(\w+_stats_lines|\w+_values\w*|\w+_field|log_\w+)_total is a counter and stands bare",
    ): "counts since the daemon began to watch, as the description says: what should be 0 is not, however long ago",
    (
        "vllm-watch-sources",
        r"[A-F]: vllm_watch_source_(last_reading_timestamp_seconds|info) is not narrowed to \$server",
    ): "it is of all servers, as the title says: one not to be trusted is found by somebody who looks at another",
    (
        "vllm-watch-sources",
        r"[CG]: vllm_watch_(source_up|collect_errors_total) is not narrowed to \$server",
    ): "a daemon is told of with all its servers",
    (
        "vllm-watch-server",
        "D: vllm_watch_gpu_ecc_errors_total is a counter and stands bare",
    ): "all errors since the driver was loaded count, until the GPU is reset",
    (
        "vllm-watch-kv-transfer",
        "C: names a label that the query has not: pair",
    ): "it is a label that somebody may configure for the servers of a pair; without it nothing stands there",
}
"""Findings that are meant, by dashboard and fault (a regular expression), and why."""

_UID = re.compile(r"vllm-watch-[a-z]+(-[a-z]+)*")
_COLOR_KEYS = frozenset({"color", "fixedColor", "iconColor"})
_LEGEND_LABEL = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_FULL_STOPS = (".", "。")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|。")
MOST_SENTENCES = 2
"""So many has a panel's description: somebody reads it while something is wrong."""
_BOARD_LINK = re.compile(r"/d/([\w-]+)(?:\?(.*))?")
_RUNBOOK_LINK = re.compile(r"https://\S+/alerts/runbooks/(.+)\.md")
_CONFIGURED_LINK = re.compile(r"\$\{(?:__value\.raw|__data\.fields\.\w+_url):raw\}")
"""
A URL that is a label of the row, written as it is: Grafana would encode its percent signs once more.

Nothing stands beside it, so that there is no link where there is no URL.
"""
_MOST_RATIO = 10
"""A threshold on a ratio is never beyond this: one that is was meant in per cent."""

Json = Mapping[str, Any]


class ReportLine(NamedTuple):
    """A fault, and the panel or other part of a dashboard that has it."""

    place: str
    fault: str


def lint(
    dashboard: Json,
    palette: Collection[str],
    boards: Mapping[str, Json] | None = None,
    known: Mapping[tuple[str, str], str] = KNOWN,
) -> list[ReportLine]:
    """
    Return the faults of a dashboard.

    Args:
        dashboard: Its JSON.
        palette: The colours that there are.
        boards: All dashboards by uid, which links may lead to; by default this one alone.
        known: Findings that are meant.
    """
    found = [
        *(ReportLine("dashboard", fault) for fault in _head(dashboard)),
        *_datasources(dashboard),
        *_colors(dashboard, palette),
        *_variables(dashboard, boards or {}),
        *_annotations(dashboard),
        *_panels(dashboard),
        *(ReportLine(*fault) for fault in misplaced(dashboard["panels"])),
        *_links(dashboard, boards or {dashboard["uid"]: dashboard}),
    ]
    meant = [fault for uid, fault in known if uid == dashboard["uid"]]
    return [each for each in dict.fromkeys(found) if not any(re.fullmatch(fault, each.fault) for fault in meant)]


def twice(dashboards: Sequence[Json]) -> list[str]:
    """Return the uids and titles that several dashboards have."""
    names = Counter(name for each in dashboards for name in (each["uid"], each["title"]))
    return [name for name, count in names.items() if count > 1]


def _head(dashboard: Json) -> Iterator[str]:
    if not _UID.fullmatch(dashboard.get("uid") or ""):
        yield "uid is not vllm-watch-… in small letters"
    if TAG not in dashboard.get("tags", []):
        yield f"has no tag {TAG}"
    if dashboard.get("schemaVersion") not in SCHEMA_VERSIONS:
        yield f"schemaVersion is not from {SCHEMA_VERSIONS[0]} to {SCHEMA_VERSIONS[-1]}"
    if dashboard.get("id") is not None:
        yield "has an id, which is of one Grafana's database"
    if dashboard.get("editable") is not True:
        yield "is not editable"
    if not dashboard.get("title"):
        yield "has no title"
    yield from _description(dashboard)


def _description(part: Json) -> Iterator[str]:
    text = part.get("description") or ""
    if not text.endswith(_FULL_STOPS):
        yield "has no description that ends with a full stop"
    elif set(_words(text)) <= set(_words(part.get("title") or "")):
        yield "the description repeats the title"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _walk(node: object, place: str) -> Iterator[tuple[str, Json]]:
    """Yield every object of a dashboard, with the title or name of what it is in."""
    if isinstance(node, Mapping):
        named = node.get("title") if "gridPos" in node else node.get("name") if "type" in node else None
        place = named or place
        yield place, node
        for below in node.values():
            yield from _walk(below, place)
    elif isinstance(node, list):
        for each in node:
            yield from _walk(each, place)


def _datasources(dashboard: Json) -> Iterator[ReportLine]:
    for place, node in _walk(dashboard, "dashboard"):
        of_grafana = "tags" in node.get("target", {}) and node.get("datasource") == GRAFANA
        if "datasource" in node and node["datasource"] != DATASOURCE and not of_grafana:
            yield ReportLine(place, "a datasource is not ${datasource}")
        asks = "expr" in node or node.get("type") == "query" or ("gridPos" in node and node["type"] != "row")
        if asks and "datasource" not in node:
            yield ReportLine(place, "asks without a datasource")


def _colors(dashboard: Json, palette: Collection[str]) -> Iterator[ReportLine]:
    for place, node in _walk(dashboard, "dashboard"):
        for key in _COLOR_KEYS & set(node):
            if isinstance(node[key], str) and node[key] not in palette and node[key] != EXEMPLARS:
                yield ReportLine(place, f"colour {node[key]} is not of the palette")


def _variables(dashboard: Json, boards: Mapping[str, Json]) -> Iterator[ReportLine]:
    variables, names = dashboard["templating"]["list"], _names(dashboard)
    for place, name in _references(dashboard):
        if name not in names and not BUILT_IN.fullmatch(name):
            yield ReportLine(place, f"there is no variable {name}")
    # What another dashboard uses is here for the links that carry it there.
    used = {name for board in (dashboard, *boards.values()) for _, name in _references(board)}
    for variable in variables:
        yield from (ReportLine(variable["name"], fault) for fault in _variable(variable, names, used))


def _names(dashboard: Json) -> list[str]:
    return [variable["name"] for variable in dashboard["templating"]["list"]]


def _references(dashboard: Json) -> Iterator[tuple[str, str]]:
    """Yield the variables that a dashboard refers to, with the places."""
    for place, node in _walk(dashboard, "dashboard"):
        for text in _texts(node):
            if isinstance(text, str):
                yield from ((place, name) for name in variables_in(text))


def _variable(variable: Json, names: Sequence[str], used: Collection[str]) -> Iterator[str]:
    if names.count(variable["name"]) > 1:
        yield "there are two variables of this name"
    if variable["name"] not in used and variable["type"] != "adhoc":
        yield "the variable is not used"
    if not variable.get("label") and variable.get("hide") != HIDDEN:
        yield "the variable has no label"
    if variable["type"] == "datasource" and variable.get("query") != "prometheus":
        yield "the data source is no Prometheus"
    if variable["type"] == "query":
        yield from _variable_query(variable["query"]["query"])


def _texts(node: Json) -> Iterator[object]:
    for value in node.values():
        yield from value if isinstance(value, list) else (value,)


def _variable_query(query: str) -> Iterator[str]:
    faults: list[str] = []
    result = re.fullmatch(r"query_result\((.+)\)", query, re.DOTALL)
    if result is not None:
        asked_for(result[1], faults.append, is_instant=True)
        yield from faults
        return
    match = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", query, re.DOTALL)
    if match is None:
        yield "asks for something else than the values of a label of a series, or what a query gives"
        return
    found = asked_for(f"count({match[1]}) by ({match[2]})", faults.append)
    yield from faults
    if match[2] not in found.labels:
        yield f"asks for a label that is not there: {match[2]}"


def _annotations(dashboard: Json) -> Iterator[ReportLine]:
    annotations = dashboard.get("annotations", {}).get("list", [])
    names = [annotation["name"] for annotation in annotations]
    regions = [annotation["target"] for annotation in annotations if "target" in annotation]
    wanted = {"limit": MOST_REGIONS, "matchAny": False, "tags": [TAG], "type": "tags"}
    if regions != [wanted]:
        yield ReportLine("dashboard", f"does not show {MOST_REGIONS} load tests by the tag {TAG}, once")
    for annotation in annotations:
        name = annotation["name"]
        faults = ["there are two annotations of this name"] if names.count(name) > 1 else []
        if annotation.get("hide"):
            faults.append("nobody can switch it off")
        if "target" not in annotation:
            faults += _marks(annotation, _names(dashboard))
        yield from (ReportLine(name, fault) for fault in faults)


def _marks(annotation: Json, variables: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with what a Prometheus is asked for."""
    faults: list[str] = []
    asked = asked_for(annotation["expr"], faults.append, variables=variables)
    yield from faults
    for key in ("titleFormat", "textFormat"):
        yield from _legend(annotation.get(key, ""), asked.labels)


def _panels(dashboard: Json) -> Iterator[ReportLine]:
    panels = list(panels_of(dashboard))
    everything = [*panels, *(panel for panel in dashboard["panels"] if panel["type"] == "row")]
    titles = Counter(panel.get("title") for panel in panels)
    ids = Counter(panel.get("id") for panel in everything)
    for panel in everything:
        title = panel.get("title") or "?"
        if not panel.get("title"):
            yield ReportLine(title, "a panel has no title")
        if not isinstance(panel.get("id"), int) or ids[panel["id"]] > 1:
            yield ReportLine(title, "the id is no number of its own")
    for panel in panels:
        title = panel.get("title") or "?"
        if titles[panel.get("title")] > 1:
            yield ReportLine(title, "there are two panels of this title")
        yield from (ReportLine(title, fault) for fault in (*_panel(panel), *_targets(panel, dashboard)))
    yield from _asked_twice(panels)


def _asked_twice(panels: Sequence[Json]) -> Iterator[ReportLine]:
    """Yield the queries that a dashboard asks twice; a figure of the end may have the query of a course."""
    first: dict[tuple[str, bool], str] = {}
    for panel in panels:
        for target in panel.get("targets", []):
            key = (" ".join(target["expr"].split()), bool(target.get("instant")))
            title = panel.get("title") or "?"
            if key in first:
                yield ReportLine(title, f"{target['refId']}: {first[key]} asks the same")
            first.setdefault(key, title)


def _panel(panel: Json) -> Iterator[str]:
    yield from _description(panel)
    if len(_SENTENCE.findall(panel.get("description") or "")) > MOST_SENTENCES:
        yield f"the description has more than {MOST_SENTENCES} sentences"
    yield from _axis(panel)
    yield from _alerts_order(panel)
    yield from unreadable(panel)
    yield from _fields(panel)
    yield from _overrides(panel)
    options = panel.get("options", {})
    if panel["type"] == "timeseries":
        if not options.get("legend", {}).get("showLegend"):
            yield "shows no legend"
        if panel["fieldConfig"]["defaults"].get("custom", {}).get("spanNulls"):
            yield "draws a line where nothing is known"
    is_of_end = all(target.get("instant") and not target.get("range") for target in panel["targets"])
    if panel["type"] == "table" and not is_of_end:
        yield "a table's targets ask for one moment"
    is_last = options.get("reduceOptions", {}).get("calcs") == ["last"]
    if panel["type"] in {"stat", "gauge", "bargauge"} and not (is_of_end or is_last):
        yield "shows what may be no longer true: ask for one moment, or for the last value"


def _axis(panel: Json) -> Iterator[str]:
    if panel["type"] == "timeseries":
        defaults = panel["fieldConfig"]["defaults"]
        unit, label = defaults.get("unit"), defaults.get("custom", {}).get("axisLabel")
    elif panel["type"] == "heatmap":
        axis = panel["options"].get("yAxis", {})
        unit, label = axis.get("unit"), axis.get("axisLabel")
    else:
        return
    if unit in WORDLESS and not label:
        yield "an axis does not say of what its numbers are"


def _alerts_order(panel: Json) -> Iterator[str]:
    """Yield that a list of alerts is not in the order of what to do: critical ones first, then the newest."""
    if panel["type"] != "table" or not any("ALERTS_FOR_STATE" in target["expr"] for target in panel["targets"]):
        return
    names = {}
    for transformation in panel.get("transformations", []):
        names |= transformation["options"].get("renameByName", {})
    order = [(each["displayName"], bool(each.get("desc"))) for each in panel["options"].get("sortBy", [])]
    # The severities are in this order of letters, too; ages are least of the newest.
    if order != [(names.get("severity"), False), (names.get("Value"), False)]:
        yield "alerts are not ordered by severity, critical ones first, then the newest"


def _fields(panel: Json) -> Iterator[str]:
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    if not defaults.get("noValue"):
        yield "does not say why it is empty"
    units = [defaults.get("unit")]
    thresholds = [(defaults.get("unit"), defaults.get("thresholds"))]
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        values = {each["id"]: each.get("value") for each in override["properties"]}
        units += [values["unit"]] if "unit" in values else []
        thresholds.append((values.get("unit", defaults.get("unit")), values.get("thresholds")))
    if panel["type"] == "heatmap":
        units.append(panel["options"].get("yAxis", {}).get("unit"))
    for unit in units:
        if not unit:
            yield "has no unit"
        elif unit not in UNITS and not OWN_UNIT.fullmatch(unit):
            yield f"there is no unit {unit}"
    for unit, steps in thresholds:
        values = [step["value"] for step in (steps or {}).get("steps", []) if step.get("value") is not None]
        if unit == "percentunit" and any(abs(value) > _MOST_RATIO for value in values):
            yield "a threshold of a ratio is in per cent"


def _overrides(panel: Json) -> Iterator[str]:
    """Yield the overrides, and columns of transformations, that are of nothing."""
    refs = {target["refId"] for target in panel.get("targets", [])}
    names = {target.get("legendFormat") for target in panel.get("targets", [])}
    # Variables of a legend are empty where one server with one engine is chosen.
    names |= {re.sub(r"\$\{\w+\}", "", name) for name in names if name}
    for transformation in panel.get("transformations", []):
        renamed = transformation["options"].get("renameByName", {})
        names |= set(renamed.values())
        for column in renamed:
            if column.startswith("Value #") and column.removeprefix("Value #") not in refs:
                yield f"there is no column {column}"
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        matcher = override["matcher"]
        if matcher["id"] == "byFrameRefID" and matcher["options"] not in refs:
            yield f"an override is of target {matcher['options']}, which is not there"
        if matcher["id"] == "byName" and matcher["options"] not in names:
            yield f"an override is of {matcher['options']}, which is not there"


def _targets(panel: Json, dashboard: Json) -> Iterator[str]:
    refs = Counter(target["refId"] for target in panel.get("targets", []))
    if not refs:
        yield "asks nothing"
    for target in panel.get("targets", []):
        ref, faults = target["refId"], []
        is_instant = bool(target.get("instant"))
        asked = asked_for(target["expr"], faults.append, variables=_names(dashboard), is_instant=is_instant)
        legend = target.get("legendFormat", "")
        if refs[ref] > 1:
            faults.append("there are two targets of this letter")
        if target.get("hide"):
            faults.append("is hidden")
        if target.get("format") != "table" and legend in {"", "__auto"}:
            faults.append("has no legend")
        faults += _legend(legend, asked.labels)
        yield from (f"{ref}: {fault}" for fault in faults)


def _legend(legend: str, labels: Collection[str]) -> Iterator[str]:
    for label in _LEGEND_LABEL.findall(legend):
        if label not in labels:
            yield f"names a label that the query has not: {label}"


def _links(dashboard: Json, boards: Mapping[str, Json]) -> Iterator[ReportLine]:
    for link in dashboard.get("links", []):
        unknown = set(link.get("tags") or []) - TAGS
        if unknown:
            yield ReportLine("dashboard", f"a link leads to the tag {', '.join(sorted(unknown))}")
    for place, node in _walk(dashboard, "dashboard"):
        if "url" in node and node.get("type") != "dashboards":
            yield from (ReportLine(place, fault) for fault in _url(node["url"], boards))
            if _CONFIGURED_LINK.fullmatch(node["url"]) and not node.get("targetBlank"):
                yield ReportLine(place, "a link out of Grafana opens no window of its own")


def _url(url: str, boards: Mapping[str, Json]) -> Iterator[str]:
    board, runbook = _BOARD_LINK.fullmatch(url), _RUNBOOK_LINK.fullmatch(url)
    if board is not None:
        target = boards.get(board[1])
        if target is None:
            yield f"a link leads to {board[1]}, which is no dashboard"
            return
        names = {variable["name"] for variable in target["templating"]["list"]}
        for name in re.findall(r"var-(\w+)=", board[2] or ""):
            if name not in names:
                yield f"a link sets {name}, which {board[1]} has not"
    elif runbook is not None:
        # Where the name is the cell's, it is an alert's.
        if not list(variables_in(runbook[1])) and not (RUNBOOKS / f"{runbook[1]}.md").exists():
            yield f"there is no runbook {runbook[1]}"
    elif _CONFIGURED_LINK.fullmatch(url) is None:
        yield f"a link leads to {url}, which is neither a dashboard nor a runbook nor a label's URL"
