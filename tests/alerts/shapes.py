# SPDX-License-Identifier: Apache-2.0
"""
What an expression of the rules yields: labels, unit and kind, and the faults seen on the way.

Prometheus takes any name, any label and any comparison; what matches nothing is silent. Here each expression is
judged against the table of series that the daemon shows.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Iterator, Mapping
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

REQUEST_BOUNDS = frozenset(
    {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)
"""The bounds of vLLM's histograms of whole requests, of their queue, prefill and decode, in seconds."""

LONGEST_SECONDS = 600
"""No threshold on seconds is longer: one that is was meant in milliseconds."""

_COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
_SETS = frozenset({"and", "or", "unless"})
_OF_COUNTERS = {"rate": "/s", "irate": "/s", "increase": "", "resets": None, "changes": None}
_OF_GAUGES = {
    "deriv": "/s",
    "delta": "",
    "predict_linear": "",
    "avg_over_time": "",
    "min_over_time": "",
    "max_over_time": "",
    "quantile_over_time": "",
}
_OF_BOTH = {"changes": None, "count_over_time": None, "last_over_time": ""}
_MOVING = frozenset({"rate", "irate"})


class Shape(NamedTuple):
    """
    What an expression yields.

    Args:
        labels: The labels that every sample of it has.
        possible: Those that some have.
        fixed: Those that have one value only.
        kind: gauge, counter, bucket, rated bucket, rate, quantile, window (of a range) or scalar.
        units: The units that its values may have; `None` is an unknown one.
        number: A scalar's value, where it is written.
        name: A selector's series.
        is_past: Whether it is of an earlier moment.
    """

    labels: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    kind: str = "gauge"
    units: frozenset[str | None] = frozenset({None})
    number: float | None = None
    name: str = ""
    is_past: bool = False

    @property
    def unit(self) -> str | None:
        """The unit, if there is one only."""
        return next(iter(self.units)) if len(self.units) == 1 else None


def shown_series() -> dict[str, Shape]:
    """Return the shape of every series that the daemon shows, and of those that Prometheus makes or others' rules."""
    shapes = {"up": _vector(TARGET, "gauge", "1"), SHOWN_BY: _vector({"gpu", "exporter"}, "gauge", "1")}
    for series in SERIES.values():
        labels = TARGET | set(series.labels) | ({CONFIGURED} if "server" in series.labels else set())
        if series.type == "histogram":
            shapes[f"{series.full_name}_bucket"] = _vector(labels | {"le"}, "bucket", series.unit)
            shapes[f"{series.full_name}_count"] = _vector(labels, "counter", "observations")
            shapes[f"{series.full_name}_sum"] = _vector(labels, "counter", series.unit)
        else:
            shapes[series.full_name] = _vector(labels, series.type, series.unit)
    return shapes


def _vector(labels: frozenset[str], kind: str, unit: str | None) -> Shape:
    return Shape(frozenset(labels), frozenset(labels | {NAMESPACE}), kind=kind, units=frozenset({unit}))


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


def carrier(expression: promql.Expr) -> promql.VectorSelector | None:
    """Return the selector whose samples an expression hands on, or `None` if it makes its own."""
    if isinstance(expression, promql.VectorSelector):
        return expression
    if isinstance(expression, promql.MatrixSelector):
        return expression.vector_selector
    if isinstance(expression, promql.BinaryExpr):
        left = carrier(expression.lhs)
        return left if str(expression.op) in _SETS else left or carrier(expression.rhs)
    if isinstance(expression, (promql.ParenExpr, promql.UnaryExpr, promql.AggregateExpr)):
        return carrier(expression.expr)
    if isinstance(expression, promql.Call) and expression.func.name != "absent":
        return next((found for argument in expression.args if (found := carrier(argument)) is not None), None)
    return None


def branches(expression: promql.Expr) -> Iterator[promql.Expr]:
    """Yield the alternatives of an expression: what stands between its outermost `or`."""
    if isinstance(expression, promql.ParenExpr):
        yield from branches(expression.expr)
    elif isinstance(expression, promql.BinaryExpr) and str(expression.op) == "or":
        yield from branches(expression.lhs)
        yield from branches(expression.rhs)
    else:
        yield expression


class Judge:
    """Judges expressions against known series; `report` is told of each fault."""

    def __init__(self, known: Mapping[str, Shape], report: Callable[[str], None]) -> None:
        self._known = known
        self._report = report

    def whole(self, text: str) -> Shape:
        """Return the shape of a rule's expression."""
        shape = self._of(promql.parse(text))
        if shape.kind in {"counter", "bucket"}:
            self._report(f"{shape.name} is a counter and stands bare")
        return shape

    def _of(self, part: promql.Expr) -> Shape:
        if isinstance(part, promql.NumberLiteral):
            return Shape(kind="scalar", number=part.val)
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
        if isinstance(part, promql.BinaryExpr):
            return self._binary(part)
        self._report(f"{type(part).__name__} is nothing that is judged here")
        return Shape()

    def _selector(self, part: promql.VectorSelector) -> Shape:
        name = part.name or ""
        shape = self._known.get(name)
        if shape is None:
            self._report(f"there is no series {name}")
            return Shape(name=name)
        fixed = set()
        for matcher in part.matchers.matchers:
            if matcher.name not in shape.possible:
                self._report(f"{name} has no label {matcher.name}")
            if matcher.op == promql.MatchOp.Equal:
                fixed.add(matcher.name)
            self._check_values(name, matcher)
        return shape._replace(name=name, fixed=shape.fixed | fixed, is_past=part.offset is not None)

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
        is_by = modifier is None or modifier.type == promql.AggModifierType.By
        for label in named - shape.possible:
            self._report(f"{operation} names a label that is not there: {label}")
        kept = named & shape.possible if is_by else shape.possible - named
        if "server" in shape.possible and not kept >= {"server", CONFIGURED} | TARGET:
            self._report(f"{operation} drops labels of the server: {_listed((TARGET | {'server', CONFIGURED}) - kept)}")
        if operation == "sum" and shape.unit == "ratio":
            self._report("ratios are added up")
        kind = "gauge" if shape.kind == "counter" else shape.kind
        units = frozenset({None}) if operation == "count" else shape.units
        return Shape(kept & shape.labels, kept, shape.fixed & kept, kind, units)

    def _call(self, part: promql.Call) -> Shape:
        function = part.func.name
        if function == "vector":
            return Shape(units=frozenset({"1"}))
        if function == "absent":
            self._of(part.args[0])
            return Shape(units=frozenset({"1"}))
        if function == "label_replace":
            shape, added = self._bare(self._of(part.args[0])), part.args[1].val
            return shape._replace(
                labels=shape.labels | {added}, possible=shape.possible | {added}, fixed=shape.fixed | {added}
            )
        if function == "timestamp":
            return self._of(part.args[0])._replace(name="", kind="gauge", units=frozenset({"unix time"}))
        if function == "histogram_quantile":
            return self._quantile(self._of(part.args[1]))
        if function in {"clamp_min", "clamp_max", "clamp"}:
            shape = self._bare(self._of(part.args[0]))
            if function == "clamp_min" and shape.kind == "rate":
                self._report("clamp_min on a rate: what is below it is never seen")
            return shape
        return self._over_time(function, part)

    def _over_time(self, function: str, part: promql.Call) -> Shape:
        windows = [each for each in part.args if isinstance(each, (promql.MatrixSelector, promql.SubqueryExpr))]
        if len(windows) != 1 or function not in {*_OF_COUNTERS, *_OF_GAUGES, *_OF_BOTH}:
            self._report(f"{function}() is nothing that is judged here")
            return Shape()
        shape = self._of(windows[0])
        is_counted = shape.kind in {"counter", "bucket"}
        if shape.name and is_counted and function not in {*_OF_COUNTERS, *_OF_BOTH}:
            self._report(f"{function}() of the counter {shape.name}")
        if shape.name and not is_counted and function not in {*_OF_GAUGES, *_OF_BOTH}:
            self._report(f"{function}() of the gauge {shape.name}")
        suffix = {**_OF_COUNTERS, **_OF_GAUGES, **_OF_BOTH}[function]
        unit = None if suffix is None or shape.unit is None else shape.unit + suffix
        if (function == "avg_over_time" and unit == "1") or unit == "s/s":
            unit = "ratio"  # The share of the time in which it was so.
        kind = "rate" if function in _MOVING else "gauge"
        if shape.kind == "bucket":
            kind = "rated bucket" if function in {"rate", "irate", "increase"} else "gauge"
        return shape._replace(kind=kind, units=frozenset({unit}), is_past=False)

    def _quantile(self, shape: Shape) -> Shape:
        if shape.kind != "rated bucket" or "le" not in shape.labels:
            self._report("histogram_quantile() wants rated buckets with their le")
        unit = shape.unit.removesuffix("/s") if shape.unit else None
        gone = frozenset({"le"})
        is_of_requests = re.search(r"(queue|e2e|prefill|decode)", shape.name)
        return Shape(
            shape.labels - gone,
            shape.possible - gone,
            shape.fixed - gone,
            "quantile" if is_of_requests else "gauge",
            frozenset({unit}),
        )

    def _binary(self, part: promql.BinaryExpr) -> Shape:
        left, right, operation = self._of(part.lhs), self._of(part.rhs), str(part.op)
        if left.kind == "scalar" or right.kind == "scalar":
            return self._with_scalar(left, right, operation)
        if operation in _SETS:
            return self._set(left, right, operation, part.modifier)
        left, right = self._bare(left), self._bare(right)
        card = part.modifier.card if part.modifier else promql.VectorMatchCardinality.OneToOne
        matched = self._matched(left, right, part.modifier)
        for side, is_one in (
            (left, card != promql.VectorMatchCardinality.ManyToOne),
            (right, card != promql.VectorMatchCardinality.OneToMany),
        ):
            if is_one and side.labels - side.fixed - matched:
                self._report(
                    f"many-to-many at {operation}: samples may differ in {_listed(side.labels - side.fixed - matched)}"
                )
        return self._joined(left, right, operation)

    def _joined(self, left: Shape, right: Shape, operation: str) -> Shape:
        units = {left.unit, right.unit}
        if operation in {*_COMPARISONS, "+", "-"} and None not in units and len(units) > 1:
            self._report(f"{operation} of different units: {left.unit} and {right.unit}")
        if operation in _COMPARISONS:
            return left
        if operation == "-" and units == {"unix time"}:
            return left._replace(name="", kind="gauge", units=frozenset({"seconds"}))
        if operation in {"+", "-"}:
            return left._replace(name="", kind="gauge")
        if operation == "/" and len(units) == 1 and None not in units:
            return left._replace(name="", kind="gauge", units=frozenset({"ratio"}))
        if operation == "*" and units == {"ratio"}:
            return left._replace(name="", kind="gauge")
        if operation == "*" and "1" in units:
            return left._replace(name="", kind="gauge", units=frozenset(units - {"1"}) or frozenset({"1"}))
        both = units - {"tokens"}
        if operation == "*" and both == {"seconds"} and "tokens" in units:
            return left._replace(name="", kind="gauge", units=frozenset({"seconds"}))
        return left._replace(name="", kind="gauge", units=frozenset({None}))

    def _with_scalar(self, left: Shape, right: Shape, operation: str) -> Shape:
        vector, scalar = (right, left) if left.kind == "scalar" else (left, right)
        if vector.kind == "scalar":
            return Shape(kind="scalar")
        if operation not in _COMPARISONS:
            return self._bare(vector)._replace(name="", kind="gauge")
        if vector.kind == "counter" and not (operation == ">" and scalar.number == 0):
            self._report(f"{vector.name} is a counter and is compared")
        if scalar.number is not None:
            self._check_threshold(vector, scalar.number)
        return vector

    def _check_threshold(self, vector: Shape, number: float) -> None:
        if vector.unit == "ratio" and not 0 <= number <= 1:
            self._report(f"{number} is no ratio from 0 to 1")
        if vector.unit == "1" and number not in {0, 1}:
            self._report(f"{number} is neither 0 nor 1")
        if vector.unit == "seconds" and number > LONGEST_SECONDS:
            self._report(f"{number} s is so long that milliseconds may be meant")
        if vector.kind == "quantile" and number > 0 and number not in REQUEST_BOUNDS:
            self._report(f"{number} s is no bound of the histogram: the quantile there is a guess")

    def _set(self, left: Shape, right: Shape, operation: str, modifier: promql.BinModifier | None) -> Shape:
        matched = self._matched(left, right, modifier, is_strict=operation != "or")
        if operation == "or":
            left, right = self._bare(left), self._bare(right)
            return Shape(
                left.labels & right.labels,
                left.possible | right.possible,
                left.fixed & right.fixed,
                left.kind if left.kind == right.kind else "gauge",
                left.units | right.units,
            )
        lost = (left.labels & right.labels) - left.fixed - right.fixed - matched
        if lost:
            self._report(f"{operation} matches samples that differ in {_listed(lost)}")
        is_new = operation == "unless" and left.name == right.name and right.is_past != left.is_past
        if left.kind == "counter" and is_new:
            return left._replace(kind="gauge", name="")
        if right.kind in {"counter", "bucket"} and not is_new:
            self._bare(right)
        return left

    def _matched(
        self, left: Shape, right: Shape, modifier: promql.BinModifier | None, *, is_strict: bool = True
    ) -> frozenset[str]:
        """Return the labels by which samples find each other."""
        matching = modifier.matching if modifier else None
        if matching is not None and matching.type == promql.LabelModifierType.Include:
            named = frozenset(matching.labels)
            for label in named:
                if label not in left.possible or label not in right.possible:
                    self._report(f"on () names {label}, which one side has not")
            return named
        ignored = frozenset(matching.labels) if matching else frozenset()
        for label in ignored - left.possible - right.possible:
            self._report(f"ignoring () names {label}, which no side has")
        one, other = left.labels - ignored, right.labels - ignored
        if is_strict and one != other and left.labels and right.labels:
            self._report(f"nothing ever matches: only one side has {_listed(one ^ other)}")
        return one | other

    def _bare(self, shape: Shape) -> Shape:
        if shape.kind in {"counter", "bucket"}:
            self._report(f"{shape.name} is a counter and stands bare")
            return shape._replace(kind="gauge")
        return shape


def _listed(labels: frozenset[str]) -> str:
    return ", ".join(sorted(labels))
