# SPDX-License-Identifier: Apache-2.0
"""
What an expression of the rules yields: which labels and of what kind, and the faults seen on the way.

Prometheus takes any name and any label; what matches nothing is silent. Here each expression is judged against the
table of series that the daemon shows. What it does with them the cases of ``alerts/tests`` say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import promql_parser as promql

from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GPU_LINK_ERRORS, GPU_STATES, GPU_THROTTLING
from vllm_watch.daemon.catalog.reasons import BY_SOURCE, STALL_REASONS
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.catalog.states import DOWN, ENGINE_STATES
from vllm_watch_parsers.events import FAILURE_KINDS
from vllm_watch_parsers.kernel_messages import BY_CODE, GPU_XID, XID_CLASSES


CONFIGURED = "(configured)"
"""Stands for the labels that a server's configuration gives it: `by` loses them, `without` keeps them."""

TARGET = frozenset({"job", "instance"})

SHOWN_BY = "gpu:vllm_watch_gpu_info:shown_by"
"""What the rules of each exporter of GPUs record beside the daemon's own series."""

NAMESPACE = "namespace"
"""A label of what is scraped in Kubernetes."""

LABEL_VALUES: Mapping[tuple[str, str], frozenset[str]] = {
    ("vllm_watch_engine_state", "state"): frozenset(ENGINE_STATES),
    ("vllm_watch_log_events_total", "event"): frozenset({*FAILURE_KINDS, GPU_XID}),
    ("vllm_watch_source_up", "source"): frozenset(BY_SOURCE),
    ("vllm_watch_source_info", "source"): frozenset(BY_SOURCE),
    ("vllm_watch_source_info", "reason"): frozenset().union(*BY_SOURCE.values()),
    ("vllm_watch_engine_stall_info", "reason"): frozenset(STALL_REASONS),
    ("vllm_watch_engine_down_info", "reason"): frozenset(DOWN),
    ("vllm_watch_server_gpu_info", "shared"): frozenset({"true", "false"}),
    ("vllm_watch_gpu_state", "state"): frozenset(GPU_STATES),
    ("vllm_watch_gpu_recovery_action", "action"): frozenset(GPU_ACTIONS),
    ("vllm_watch_gpu_throttled_seconds_total", "reason"): frozenset(GPU_THROTTLING),
    ("vllm_watch_gpu_nvlink_errors_total", "kind"): frozenset(GPU_LINK_ERRORS),
    ("vllm_watch_gpu_ecc_errors_total", "kind"): frozenset({"corrected", "uncorrected"}),
    ("vllm_watch_gpu_ecc_errors_total", "lifetime"): frozenset({"boot", "life"}),
    ("vllm_watch_gpu_xid_last_timestamp_seconds", "class"): frozenset(XID_CLASSES),
    ("vllm_watch_gpu_xid_last_timestamp_seconds", "xid"): frozenset(BY_CODE),
    ("up", "job"): frozenset({"vllm-watch"}),
}
"""Labels whose values are a closed list."""

_SETS = frozenset({"and", "or", "unless"})
_OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
_OF_ANY = frozenset({"changes", "count_over_time", "last_over_time"})


class Shape(NamedTuple):
    """
    What an expression yields.

    Args:
        labels: The labels that every sample of it has.
        possible: Those that some have.
        kind: gauge, counter, bucket or scalar.
        name: A selector's series.
    """

    labels: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    kind: str = "gauge"
    name: str = ""


def shown_series() -> dict[str, Shape]:
    """Return the shape of every series that the daemon shows, and of those that Prometheus makes or others' rules."""
    shapes = {"up": _vector(TARGET, "gauge"), SHOWN_BY: _vector({"gpu", "exporter"}, "gauge")}
    for series in SERIES.values():
        labels = TARGET | set(series.labels) | ({CONFIGURED} if "server" in series.labels else set())
        if series.type == "histogram":
            shapes[f"{series.full_name}_bucket"] = _vector(labels | {"le"}, "bucket")
            shapes[f"{series.full_name}_count"] = shapes[f"{series.full_name}_sum"] = _vector(labels, "counter")
        else:
            shapes[series.full_name] = _vector(labels, series.type)
    return shapes


def _vector(labels: Collection[str], kind: str) -> Shape:
    return Shape(frozenset(labels), frozenset({*labels, NAMESPACE}), kind)


def parts(expression: promql.Expr, *kinds: type) -> list[Any]:
    """Return the parts of an expression that are of some kinds."""
    found: list[Any] = []

    def look(part: promql.Expr) -> bool:
        if isinstance(part, kinds):
            found.append(part)
        return True

    promql.walk(expression, look)
    return found


def selectors(expression: promql.Expr) -> list[promql.VectorSelector]:
    """Return the selectors of an expression."""
    return parts(expression, promql.VectorSelector)


class Judge:
    """Judges expressions against known series; `report` is told of each fault."""

    def __init__(self, known: Mapping[str, Shape], report: Callable[[str], None]) -> None:
        self._known = known
        self._report = report

    def whole(self, text: str) -> Shape:
        """Return the shape of a rule's expression."""
        return self._bare(self._of(promql.parse(text)))

    def _of(self, part: promql.Expr) -> Shape:
        if isinstance(part, promql.NumberLiteral):
            return Shape(kind="scalar")
        if isinstance(part, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
            return self._of(part.expr)
        if isinstance(part, promql.VectorSelector):
            return self._selector(part)
        if isinstance(part, promql.MatrixSelector):
            return self._selector(part.vector_selector)
        if isinstance(part, promql.AggregateExpr):
            return self._aggregate(part)
        if isinstance(part, promql.Call):
            return self._call(part)
        return self._binary(part)

    def _selector(self, part: promql.VectorSelector) -> Shape:
        name = part.name or ""
        shape = self._known.get(name)
        if shape is None:
            self._report(f"there is no series {name}")
            return Shape(name=name)
        for matcher in part.matchers.matchers:
            if matcher.name not in shape.possible:
                self._report(f"{name} has no label {matcher.name}")
            self._check_values(name, matcher)
        return shape._replace(name=name)

    def _check_values(self, name: str, matcher: promql.Matcher) -> None:
        known = LABEL_VALUES.get((name, matcher.name))
        is_list = matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
        for value in matcher.value.split("|") if is_list else [matcher.value]:
            if known is not None and value not in known:
                self._report(f"{matcher.name} of {name} is never {value}")

    def _aggregate(self, part: promql.AggregateExpr) -> Shape:
        shape = self._bare(self._of(part.expr))
        modifier, operation = part.modifier, str(part.op)
        named = frozenset(modifier.labels) if modifier else frozenset()
        for label in sorted(named - shape.possible):
            self._report(f"{operation} names a label that is not there: {label}")
        is_by = modifier is None or modifier.type == promql.AggModifierType.By
        kept = named & shape.possible if is_by else shape.possible - named
        lost = {"server", CONFIGURED, *TARGET} - kept
        if "server" in shape.possible and lost:
            self._report(f"{operation} drops labels of the server: {', '.join(sorted(lost))}")
        return Shape(kept & shape.labels, kept, shape.kind)

    def _call(self, part: promql.Call) -> Shape:
        function = part.func.name
        windows = [each for each in part.args if isinstance(each, (promql.MatrixSelector, promql.SubqueryExpr))]
        shapes = [self._of(each) for each in windows or part.args if not isinstance(each, promql.StringLiteral)]
        shape = next((each for each in shapes if each.kind != "scalar"), Shape())
        if function in {"absent", "vector"}:
            return Shape()
        if function == "label_replace":
            added = part.args[1].val
            return shape._replace(labels=shape.labels | {added}, possible=shape.possible | {added})
        if function == "histogram_quantile":
            return Shape(shape.labels - {"le"}, shape.possible - {"le"})
        is_counted = shape.kind in {"counter", "bucket"}
        if windows and shape.name and function not in _OF_ANY and is_counted != (function in _OF_COUNTERS):
            self._report(f"{function}() of the {'counter' if is_counted else 'gauge'} {shape.name}")
        return shape._replace(kind="gauge", name="") if windows or function == "timestamp" else self._bare(shape)

    def _binary(self, part: promql.BinaryExpr) -> Shape:
        left, right, operation = self._of(part.lhs), self._of(part.rhs), str(part.op)
        if "scalar" in {left.kind, right.kind}:
            vector = right if left.kind == "scalar" else left
            # A counter that is there at all is a finding, whatever its number.
            is_there = operation == ">" and part.rhs.prettify() == "0"
            return vector._replace(kind="gauge") if is_there else self._bare(vector)
        matching = part.modifier.matching if part.modifier else None
        for label in sorted(matching.labels) if matching else ():
            if label not in left.possible | right.possible:
                self._report(f"{operation} matches by a label that is not there: {label}")
        if operation == "or":
            left, right = self._bare(left), self._bare(right)
            return Shape(left.labels & right.labels, left.possible | right.possible)
        return left._replace(kind="gauge") if operation in _SETS else self._bare(left)

    def _bare(self, shape: Shape) -> Shape:
        if shape.kind in {"counter", "bucket"}:
            self._report(f"{shape.name} is a counter and stands bare")
            return shape._replace(kind="gauge")
        return shape
