# SPDX-License-Identifier: Apache-2.0
"""
A linter of the rules, for the faults that shipped rules of others have.

promtool accepts a rule over a series that does not exist: it installs clean, evaluates to nothing, and cannot be told
from health. What is judged here needs the table of series, and Prometheus' own check cannot know it.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import promql_parser as promql

from tests.alerts.shapes import CONFIGURED, NAMESPACE, Judge, Shape, branches, carrier, parts, selectors, shown_series


TEMPLATE_FUNCTIONS = frozenset(
    {
        "args", "externalURL", "first", "graphLink", "humanize", "humanize1024", "humanizeDuration",
        "humanizePercentage", "humanizeTimestamp", "label", "match", "parseDuration", "pathPrefix", "query",
        "reReplaceAll", "safeHtml", "sortByLabel", "stripDomain", "stripPort", "strvalue", "tableLink",
        "title", "toLower", "toTime", "toUpper", "value", "and", "or", "not", "eq", "ne", "lt", "le", "gt",
        "ge", "index", "len", "print", "printf", "println", "slice", "html", "js", "urlquery", "call", "if",
        "else", "end", "range", "with", "define", "template", "block", "break", "continue",
    }
)  # fmt: skip
"""What Prometheus 2.42 knows in a template: its own functions, Go's, and Go's keywords."""

KNOWN: Mapping[tuple[str, str], str] = {
    ("VllmServerNotWatched", "unless matches samples that differ in (configured), instance, job"): (
        "a server that another daemon shows, or that has other labels now, is shown"
    ),
    ("VllmServerNotWatched", "and matches samples that differ in instance, job"): "any daemon that is there will do",
    ("VllmServerNotWatched", "unless matches samples that differ in (configured)"): "labels change with a reload",
    ("VllmServersImbalanced", "and matches samples that differ in (configured), instance, job, server"): (
        "it is about another server of the same model"
    ),
    **{
        ("VllmServersImbalanced", f"{what} matches samples that differ in model_name"): "a role is of a whole server"
        for what in ("and", "unless")
    },
    ("VllmCapacityExhausted", "$value has several units: requests, seconds"): (
        "a label that told them apart would begin the alert anew when it changes; the description says both"
    ),
    ("VllmKvCacheLeaks", "unless matches samples that differ in model_name"): "a role is of a whole server",
    ("VllmPreemptionStorm", "+ of different units: preemptions and requests"): "each preemption begins a request again",
    ("VllmKvTransfersFail", "$value has several units: requests, transfers"): "the label `kind` tells them apart",
    ("VllmSlowerThanItWas", "1.5 is no ratio from 0 to 1"): "it is a time by a time of the past",
    ("GpuThrottled", "1.3 is no ratio from 0 to 1"): "it is a time by a time of the past",
    ("GpuMemoryFailing", "vllm_watch_gpu_ecc_errors_total is a counter and stands bare"): (
        "all errors since the driver was loaded count, until the GPU is reset"
    ),
    **{
        ("pair:vllm_watch_time_to_first_token_seconds:mean5m", fault): "it is of several servers, by their model"
        for fault in (
            "and matches samples that differ in model_name",
            "sum names a label that is not there: pair",
            "sum drops labels of the server: (configured), instance, job, server",
            "loses server",
            "loses (configured)",
            "loses engine",
            "loses instance",
        )
    },
}
"""Findings that are meant, and why."""

_DROPPED = re.compile(r"drops labels of the server")
_ACTION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_WORD = re.compile(r"(?<![.$\w])[A-Za-z_]\w*")
_LABEL = re.compile(r"\$labels\.(\w+)")
_OF_THE_VALUE = {"humanizePercentage": "ratio", "humanizeDuration": "seconds"}
_IN_A_PIPE = re.compile(r"\$value\s*\|\s*(\w+)")


class ReportLine(NamedTuple):
    """A fault of a rule."""

    rule: str
    fault: str


def lint(
    files: Mapping[str, str | Mapping[str, Any]], known: Mapping[tuple[str, str], str] = KNOWN
) -> list[ReportLine]:
    """Return the faults of rule files, given as they are loaded from YAML; `known` are those that are meant."""
    groups = [group for document in files.values() for group in document["groups"]]
    shapes = shown_series()
    found = [*_late(groups), *recorded(groups, shapes)]
    for group in groups:
        for rule in group["rules"]:
            if "alert" in rule:
                found += _alert(rule, shapes)
    found += _unpaired(groups)
    return [finding for finding in dict.fromkeys(found) if (finding.rule, finding.fault) not in known]


def _late(groups: Iterable[Mapping[str, Any]]) -> Iterator[ReportLine]:
    """Yield the rules that stand before one of their group that records what they use."""
    for group in groups:
        places = {rule["record"]: place for place, rule in enumerate(group["rules"]) if "record" in rule}
        for place, rule in enumerate(group["rules"]):
            for used in sorted(_names(rule["expr"])):
                if places.get(used, -1) > place:
                    yield ReportLine(rule.get("record") or rule["alert"], f"{used} is recorded after it is used")


def recorded(groups: Iterable[Mapping[str, Any]], shapes: dict[str, Shape]) -> Iterator[ReportLine]:
    """Put what rules record among the shapes; yield their faults."""
    waiting = {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}
    while waiting:
        ready = [name for name, expr in waiting.items() if not _names(expr) & (set(waiting) - {name})]
        if not ready:
            yield from (ReportLine(name, "is recorded from itself") for name in waiting)
            return
        for name in ready:
            expr = waiting.pop(name)
            faults: list[str] = []
            if name in _names(expr) and not _hand_on(name, expr, shapes):
                faults.append("is recorded from itself")
            shape = Judge(shapes, faults.append).whole(expr)
            if name.startswith("model:"):
                faults = [*_of_a_model(shape), *(fault for fault in faults if not _DROPPED.search(fault))]
            else:
                faults += _survival(expr, shapes, of_servers=name.startswith("server:"))
            shapes[name] = shape._replace(name=name, fixed=frozenset(), is_past=False)
            yield from (ReportLine(name, fault) for fault in faults)


def _of_a_model(shape: Shape) -> Iterator[str]:
    """Yield what is wrong with the labels of a series of which each model has one."""
    if shape.possible != {NAMESPACE, "model_name"}:
        yield f"a model has several of it, by {', '.join(sorted(shape.possible))}"


def _hand_on(name: str, text: str, shapes: dict[str, Shape]) -> bool:
    """Put the shape of what a rule hands on among the others; return whether it has it from elsewhere at first."""
    first = next(
        (each.prettify() for each in branches(promql.parse(text)) if name not in _names(each.prettify())), None
    )
    if first is not None:
        shapes[name] = Judge(shapes, lambda _: None).whole(first)._replace(name=name, fixed=frozenset(), is_past=False)
    return first is not None


def _names(text: str) -> set[str]:
    return {selector.name or "" for selector in selectors(promql.parse(text))}


def _alert(rule: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[ReportLine]:
    faults: list[str] = []
    shape = Judge(shapes, faults.append).whole(rule["expr"])
    faults += _survival(rule["expr"], shapes)
    faults += _never_absent(rule["expr"])
    for text in rule.get("annotations", {}).values():
        faults += _template(text, shape, rule.get("labels", {}))
    yield from (ReportLine(rule["alert"], fault) for fault in faults)


def _survival(text: str, shapes: Mapping[str, Shape], *, of_servers: bool = False) -> Iterator[str]:
    """Yield which labels of servers and engines an expression loses, branch by branch; what is of servers has none."""
    for branch in branches(promql.parse(text)):
        shape = Judge(shapes, lambda _: None).whole(branch.prettify())
        source = carrier(branch)
        first = shapes.get(source.name or "", Shape()) if source is not None else Shape()
        for label in ("server", CONFIGURED, *(() if of_servers else ("engine",)), "instance"):
            if label in first.labels and label not in shape.labels:
                yield f"loses {label}"


def _never_absent(text: str) -> Iterator[str]:
    """Yield where what is missing is read as a number."""
    for branch in branches(promql.parse(text)):
        if isinstance(branch, promql.Call) and branch.func.name == "vector" and text.strip() != "vector(1)":
            yield "or vector(): what is missing is read as a number"


def _template(text: str, shape: Shape, labels: Mapping[str, str]) -> Iterator[str]:
    is_told_apart = bool(shape.fixed & set(_LABEL.findall(text)))
    for action in _ACTION.findall(text):
        bare = _STRING.sub("", action)
        for word in _WORD.findall(bare):
            if word not in TEMPLATE_FUNCTIONS:
                yield f"there is no template function {word}"
        for label in _LABEL.findall(bare):
            if label not in shape.possible and label not in labels:
                yield f"$labels.{label} is never there"
        for function in _IN_A_PIPE.findall(bare):
            wanted = _OF_THE_VALUE.get(function)
            if wanted is not None and (wanted not in shape.units if is_told_apart else shape.units != {wanted}):
                yield f"{function} of what is no {wanted}"
    if "$value" in text:
        yield from _value(text, shape)


def _value(text: str, shape: Shape) -> Iterator[str]:
    if shape.units == {"1"}:
        yield "$value is always the same: the other side was meant"
    if len(shape.units) > 1 and not shape.fixed & set(_LABEL.findall(text)):
        yield f"$value has several units: {', '.join(sorted(map(str, shape.units)))}"


def _unpaired(groups: Iterable[Mapping[str, Any]]) -> Iterator[ReportLine]:
    """Yield the alerts on `== 0` that say nothing once the series is gone, and that no other alert stands in for."""
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    missed = {name for rule in alerts for name in _missed(promql.parse(rule["expr"]))}
    shapes = shown_series()
    for rule in alerts:
        for name in _zeros(promql.parse(rule["expr"])):
            whole = shapes.get(name, Shape())
            stand_ins = {
                other for other in missed if other in shapes and shapes[other].labels >= whole.labels & {"server"}
            }
            if not stand_ins:
                yield ReportLine(rule["alert"], f"{name} == 0 says nothing once {name} is gone, and nothing else does")


def _zeros(expression: promql.Expr) -> Iterator[str]:
    for part in parts(expression, promql.BinaryExpr):
        if str(part.op) == "==" and isinstance(part.rhs, promql.NumberLiteral) and part.rhs.val == 0:
            yield from (selector.name or "" for selector in selectors(part.lhs))


def _missed(expression: promql.Expr) -> Iterator[str]:
    """Yield the series whose absence is asked for."""
    for call in parts(expression, promql.Call):
        if call.func.name == "absent":
            yield from (selector.name or "" for selector in selectors(call))
    for part in parts(expression, promql.BinaryExpr):
        if str(part.op) == "unless":
            now = {selector.name for selector in selectors(part.rhs) if selector.offset is None}
            yield from (s.name or "" for s in selectors(part.lhs) if s.offset is not None and s.name in now)
