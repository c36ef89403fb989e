# SPDX-License-Identifier: Apache-2.0
"""
A linter of the rules, for what promtool cannot know: which series, labels and values of labels there are.

promtool accepts a rule over a series that does not exist: it installs clean, evaluates to nothing, and cannot be told
from health.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import promql_parser as promql

from tests.alerts.shapes import NAMESPACE, Judge, Shape, selectors, shown_series


KNOWN: Mapping[tuple[str, str], str] = {
    ("GpuMemoryFailing", "vllm_watch_gpu_ecc_errors_total is a counter and stands bare"): (
        "all errors since the driver was loaded count, until the GPU is reset"
    ),
    ("pair:vllm_watch_time_to_first_token_seconds:mean5m", "sum names a label that is not there: pair"): (
        "it is a label of the value that it hands on"
    ),
}
"""Findings that are meant, and why."""

OF_SEVERAL_SERVERS = ("model:", "pair:")
"""What is recorded of all servers of a model has none of their labels."""


class Finding(NamedTuple):
    """A fault of a rule."""

    rule: str
    fault: str


def lint(files: Mapping[str, str | Mapping[str, Any]], known: Mapping[tuple[str, str], str] = KNOWN) -> list[Finding]:
    """Return the faults of rule files, given as they are loaded from YAML; `known` are those that are meant."""
    groups = [group for document in files.values() for group in document["groups"]]
    shapes = shown_series()
    found = list(recorded(groups, shapes))
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        faults: list[str] = []
        Judge(shapes, faults.append).whole(rule["expr"])
        found += [Finding(rule["alert"], fault) for fault in faults]
    return [finding for finding in dict.fromkeys(found) if finding not in known]


def recorded(groups: Iterable[Mapping[str, Any]], shapes: dict[str, Shape]) -> Iterator[Finding]:
    """Put what rules record among the shapes; yield their faults."""
    waiting = {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}
    while waiting:
        ready = [name for name, expr in waiting.items() if not _names(expr) & (set(waiting) - {name})]
        if not ready:
            yield from (Finding(name, "is recorded from itself") for name in waiting)
            return
        for name in ready:
            expr = waiting.pop(name)
            if name in _names(expr):  # It hands its own value on.
                shapes[name] = Judge(shapes, lambda _: None).whole(expr)
            faults: list[str] = []
            shape = Judge(shapes, faults.append).whole(expr)
            if name.startswith(OF_SEVERAL_SERVERS):
                faults = [fault for fault in faults if "drops labels of the server" not in fault]
            if name.startswith("model:") and shape.possible != {NAMESPACE, "model_name"}:
                faults.append(f"a model has several of it, by {', '.join(sorted(shape.possible))}")
            shapes[name] = shape._replace(name=name)
            yield from (Finding(name, fault) for fault in faults)


def _names(text: str) -> set[str]:
    return {selector.name or "" for selector in selectors(promql.parse(text))}
