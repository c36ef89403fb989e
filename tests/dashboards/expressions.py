# SPDX-License-Identifier: Apache-2.0
"""
What a dashboard's expression asks for: whether its series and labels exist, and which labels its series keep.

Prometheus answers a query over a series or a label that there is not with nothing, and draws the rate of a gauge or the
sum of a counter since the beginning of time without a word. Here that is said. What the rules' linter judges beyond it
(units, and that no label of a server is lost) is not asked of dashboards: they add up on purpose.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import promql_parser as promql

from prometheus_client import CollectorRegistry, ProcessCollector
from tests.alerts.lint import KNOWN, recorded
from tests.alerts.replay import RULES
from tests.alerts.shapes import LABEL_VALUES, TARGET, Judge, Shape, shown_series
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.catalog.series import SERIES


RATE_INTERVAL, RANGE = "$__rate_interval", "$__range"

_STANDS_FOR = {RATE_INTERVAL: "7001s", RANGE: "7002s", "$__interval": "7003s", "$shift": "7004s"}
"""Durations that nobody writes, by what they stand for while an expression is parsed."""

_NUMBERS = {
    "__range_s": "3600",
    "__range_ms": "3600000",
    "__interval_ms": "15000",
    "__rate_interval_ms": "60000",
    "planned": "1000",
}
_VARIABLE = re.compile(r"\$([^\W\d]\w*)|\$\{(\w+)(?:\.[\w.]+)?(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]")
"""In ``$1`` Grafana finds no variable and leaves it to Prometheus."""

CHOICES = {"instance": "daemon", "server": "server", "model_name": "model", "engine": "engine"}
"""Which variable chooses which label."""

WINDOWS: Mapping[tuple[str, str], str] = {
    (r"vllm_watch_slo_(good_)?requests_total", "5m|30m|1h|6h|3d"): "burn rates are told over the windows of the alerts",
    (
        r"vllm_watch_time_to_first_token_seconds_(bucket|sum|count)",
        "5m",
    ): "a table's latencies are over one time for all",
    (
        r"vllm_watch_request_(prompt|generation)_tokens_(sum|count)",
        "10m",
    ): "many requests tell how large they are",
}
"""Over which fixed windows the growth of which counters may be asked for, and why."""

OF_GPUS = frozenset(
    series.full_name for series in SERIES.values() if series.feature == "gpu" and "server" not in series.labels
)
"""Series of GPUs may be another exporter's, with its `instance`: which GPUs count is chosen by their servers."""

_RATES = frozenset({"rate", "irate", "increase"})
_OF_COUNTERS = _RATES | {"resets"}
_OF_ANY = frozenset({"changes", "count_over_time", "present_over_time", "absent_over_time"})
_OF_GAUGES = frozenset(
    {
        "avg_over_time", "delta", "deriv", "idelta", "last_over_time", "max_over_time", "min_over_time",
        "predict_linear", "quantile_over_time", "stddev_over_time", "sum_over_time",
    }
)  # fmt: skip
_OF_VALUES = frozenset(
    {
        "abs",
        "ceil",
        "clamp",
        "clamp_max",
        "clamp_min",
        "exp",
        "floor",
        "ln",
        "log10",
        "log2",
        "round",
        "sgn",
        "sort",
        "sort_desc",
        "sqrt",
    }
)
_SETS = frozenset({"and", "or", "unless"})
_COUNTS = frozenset({"count", "group"})

Report = Callable[[str], None]


class Asked(NamedTuple):
    """
    What an expression yields.

    Args:
        labels: Those that its series may have.
        kind: gauge, counter, bucket, rated bucket, scalar or text.
        name: The series, if it is a selector.
    """

    labels: frozenset[str]
    kind: str = "gauge"
    name: str = ""


@cache
def known_series() -> Mapping[str, Shape]:
    """Return all series that there are: the daemon's, its process', Prometheus' own, and those of the rules."""
    shapes = shown_series()
    for name in ("scrape_duration_seconds", "scrape_samples_scraped"):
        shapes[name] = shapes["up"]
    for family in ProcessCollector(registry=CollectorRegistry()).collect():
        for sample in family.samples:
            shapes[sample.name] = Shape(TARGET, TARGET, kind=family.type)
    groups = [group for path in sorted(RULES.glob("*.yml")) for group in _read(path)]
    for fault in recorded(groups, shapes):
        if tuple(fault) not in KNOWN:
            raise ValueError(fault)
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    labels = {"alertname"}.union(
        *(rule["labels"] for rule in alerts),
        *(Judge(shapes, lambda _: None).whole(rule["expr"]).possible for rule in alerts),
    )
    shapes["ALERTS_FOR_STATE"] = Shape(frozenset({"alertname"}), frozenset(labels))
    shapes["ALERTS"] = Shape(frozenset({"alertname"}), frozenset(labels | {"alertstate"}))
    return shapes


def _read(path: Path) -> list[Mapping[str, object]]:
    return load_yaml(path.read_text(encoding="utf-8"))["groups"]


@cache
def known_labels() -> frozenset[str]:
    """Return all labels that there are."""
    return frozenset().union(*(shape.possible for shape in known_series().values()))


def variables_in(text: str) -> Iterator[str]:
    """Yield the variables that a text refers to."""
    for match in _VARIABLE.finditer(text):
        yield match[1] or match[2] or match[3]


def _stand_in(match: re.Match[str]) -> str:
    name = match[1] or match[2] or match[3]
    duration = _STANDS_FOR.get(f"${name}")
    return duration or _NUMBERS.get(name) or ("0.99" if name == "slo" else f"\\\\${name}")


def asked_for(expr: str, report: Report, *, variables: Collection[str] = (), is_instant: bool = False) -> Asked:
    """
    Return what an expression yields; `report` is told of each fault.

    Args:
        expr: The expression, as it stands in the dashboard.
        report: Told of faults, each a sentence's end.
        variables: Those of the dashboard: what it shows has to heed what is chosen.
        is_instant: Whether it is asked once, at the end of the time range.
    """
    try:
        tree = promql.parse(_VARIABLE.sub(_stand_in, expr))
    except ValueError as error:
        report(f"is no PromQL: {error}")
        return Asked(frozenset())
    return _Reader(report, variables, is_instant=is_instant).value_of(tree)


class _Reader:
    def __init__(self, report: Report, variables: Collection[str], *, is_instant: bool) -> None:
        self._report = report
        self._choices = {label: name for label, name in CHOICES.items() if name in variables}
        self._is_instant = is_instant
        self._is_filter = False
        """Whether it matters only that there is something, and not what value it has."""
        self._is_beside = False
        """Whether it only chooses among what is shown."""

    def value_of(self, part: promql.Expr) -> Asked:
        """Return what an expression yields whose values are used."""
        found = self._of(part)
        if found.kind in {"counter", "bucket"}:
            if not self._is_filter:
                self._report(f"{found.name} is a counter and stands bare")
            return found._replace(kind="gauge")
        return found

    def _filter(self, part: promql.Expr) -> Asked:
        before, self._is_filter = self._is_filter, True
        found = self._of(part)
        self._is_filter = before
        return found

    def _beside(self, part: promql.Expr) -> Asked:
        before, self._is_beside = self._is_beside, True
        found = self._filter(part)
        self._is_beside = before
        return found

    def _of(self, part: promql.Expr) -> Asked:
        if isinstance(part, promql.NumberLiteral):
            return Asked(frozenset(), "scalar")
        if isinstance(part, promql.StringLiteral):
            return Asked(frozenset(), "text")
        if isinstance(part, (promql.ParenExpr, promql.UnaryExpr)):
            return self._of(part.expr)
        if isinstance(part, promql.SubqueryExpr):
            return self.value_of(part.expr)
        if isinstance(part, promql.VectorSelector):
            return self._selector(part)
        if isinstance(part, promql.MatrixSelector):
            return self._selector(part.vector_selector)
        if isinstance(part, promql.AggregateExpr):
            return self._aggregate(part)
        if isinstance(part, promql.Call):
            return self._call(part)
        return self._binary(part)

    def _selector(self, part: promql.VectorSelector) -> Asked:
        if part.name:
            return self._series(part, part.name)
        names = next((each.value for each in part.matchers.matchers if each.name == "__name__"), "")
        found = [self._series(part, name) for name in known_series() if re.fullmatch(names, name)]
        if len({each.kind for each in found}) != 1:
            self._report(f"series of one kind are not what {names} names")
            return Asked(known_labels(), name=names)
        return Asked(frozenset().union(*(each.labels for each in found)), found[0].kind, names)

    def _series(self, part: promql.VectorSelector, name: str) -> Asked:
        shape = known_series().get(name)
        if shape is None:
            self._report(f"there is no series {name}")
            return Asked(known_labels(), name=name)
        for matcher in part.matchers.matchers:
            if matcher.name not in shape.possible | {"__name__"}:
                self._report(f"{name} has no label {matcher.name}")
            known = LABEL_VALUES.get((name, matcher.name))
            for value in re.split(r"\|", matcher.value):
                if known is not None and value and not re.search(r"[^\w-]", value) and value not in known:
                    self._report(f"{matcher.name} of {name} is never {value}")
        if not self._is_beside:
            self._check_choices(part, shape, name)
        kind = shape.kind if shape.kind in {"counter", "bucket"} else "gauge"
        return Asked(shape.possible, kind, name)

    def _check_choices(self, part: promql.VectorSelector, shape: Shape, name: str) -> None:
        if name in OF_GPUS:
            return
        heeded = {(each.name, chosen) for each in part.matchers.matchers for chosen in variables_in(each.value)}
        for label, variable in self._choices.items():
            if label in shape.labels and (label, variable) not in heeded:
                self._report(f"{name} is not narrowed to ${variable}")

    def _aggregate(self, part: promql.AggregateExpr) -> Asked:
        operation = str(part.op)
        inner = self._filter(part.expr) if operation in _COUNTS else self.value_of(part.expr)
        named = frozenset(part.modifier.labels) if part.modifier else frozenset()
        is_by = part.modifier is None or part.modifier.type == promql.AggModifierType.By
        for label in sorted(named - (inner.labels if is_by else inner.labels | known_labels())):
            self._report(f"{operation} names a label that is not there: {label}")
        if operation in {"topk", "bottomk"}:
            return inner
        kept = named if is_by else inner.labels - named
        if operation == "count_values":
            kept |= {part.param.val}
        return Asked(kept, "gauge" if operation in _COUNTS else inner.kind, inner.name)

    def _call(self, part: promql.Call) -> Asked:
        function, arguments = part.func.name, part.args
        if function in {"time", "pi", "vector", "scalar"}:
            for argument in arguments:
                self.value_of(argument)
            return Asked(frozenset(), "gauge" if function == "vector" else "scalar")
        if function in {"absent", "timestamp"}:
            return self._filter(arguments[0])._replace(kind="gauge")
        if function in {"label_replace", "label_join"}:
            inner = self._of(arguments[0])
            return inner._replace(labels=inner.labels | {arguments[1].val})
        if function == "histogram_quantile":
            return self._quantile(self._of(arguments[1]))
        if function in _OF_COUNTERS | _OF_GAUGES | _OF_ANY:
            return self._over_time(function, part)
        if function in _OF_VALUES:
            return self.value_of(arguments[0])
        self._report(f"{function}() is nothing that is judged here")
        return Asked(known_labels())

    def _quantile(self, buckets: Asked) -> Asked:
        if buckets.kind != "rated bucket" or "le" not in buckets.labels:
            self._report("histogram_quantile() wants rated buckets with their le")
        return Asked(buckets.labels - {"le"}, name=buckets.name)

    def _over_time(self, function: str, part: promql.Call) -> Asked:
        window = next(each for each in part.args if isinstance(each, (promql.MatrixSelector, promql.SubqueryExpr)))
        inner = self._of(window)
        is_counted = inner.kind in {"counter", "bucket"}
        if function in _OF_COUNTERS and not is_counted:
            self._report(f"{function}() of the gauge {inner.name}")
        if function in _OF_GAUGES and is_counted and not self._is_filter:
            self._report(f"{function}() of the counter {inner.name}")
        if function in _RATES and is_counted:
            self._check_window(function, inner.name, window)
        return inner._replace(kind="rated bucket" if inner.kind == "bucket" and function in _RATES else "gauge")

    def _check_window(self, function: str, name: str, window: promql.MatrixSelector) -> None:
        duration = _written(window)
        if duration == RATE_INTERVAL:
            return
        if duration == RANGE:
            # What is asked once looks at the whole range; what is asked all along would look at what is before it.
            if not self._is_instant and window.vector_selector.at is None:
                self._report(f"{function}() of {name} over the whole range, from each of its moments")
            return
        if not any(re.fullmatch(series, name) and re.fullmatch(windows, duration) for series, windows in WINDOWS):
            self._report(f"{function}() of {name} over {duration} and not {RATE_INTERVAL}")

    def _binary(self, part: promql.BinaryExpr) -> Asked:
        operation = str(part.op)
        if operation in _SETS:
            return self._set(operation, part)
        # What is multiplied by nothing is asked whether it is there, and not what it is.
        is_nothing = operation == "*" and isinstance(part.rhs, promql.NumberLiteral) and part.rhs.val == 0
        is_growth = _is_growth(part)
        before = self._is_filter
        self._is_filter = before or is_nothing or is_growth
        left, right = self.value_of(part.lhs), self.value_of(part.rhs)
        self._is_filter = before
        if "scalar" in {left.kind, right.kind}:
            vector = right if left.kind == "scalar" else left
            return vector._replace(kind=vector.kind if vector.kind == "scalar" else "gauge")
        self._check_matching(left, right, part.modifier)
        of_bucket = is_growth and left.name in known_series() and known_series()[left.name].kind == "bucket"
        return Asked(_joined(left, right, part.modifier), "rated bucket" if of_bucket else "gauge", left.name)

    def _set(self, operation: str, part: promql.BinaryExpr) -> Asked:
        left = self._of(part.lhs)
        right = self._of(part.rhs) if operation == "or" else self._beside(part.rhs)
        self._check_matching(left, right, part.modifier)
        if operation != "or":
            return left
        kinds = {left.kind, right.kind}
        counted = next((each for each in (left, right) if each.kind in {"counter", "bucket"}), left)
        return Asked(left.labels | right.labels, kinds.pop() if len(kinds) == 1 else counted.kind, counted.name)

    def _check_matching(self, left: Asked, right: Asked, modifier: promql.BinModifier | None) -> None:
        matching = modifier.matching if modifier else None
        if matching is None:
            return
        is_on = matching.type == promql.LabelModifierType.Include
        for label in sorted(matching.labels):
            if label not in (left.labels & right.labels if is_on else left.labels | right.labels | known_labels()):
                self._report(f"{'on' if is_on else 'ignoring'} () names a label that is not there: {label}")


def _is_growth(part: promql.BinaryExpr) -> bool:
    """Whether a series' own past is taken from it: its value then, or else its first one in a window."""
    now, past = (side.expr if isinstance(side, promql.ParenExpr) else side for side in (part.lhs, part.rhs))
    if str(part.op) != "-":
        return False
    present = _single(now, "last_over_time")
    if isinstance(past, promql.BinaryExpr) and str(past.op) == "or":
        before, first = _single(past.lhs, ""), _single(past.rhs, "min_over_time")
        return _is_before(before, present) and first is not None and first.prettify() == present.prettify()
    return _is_before(_single(past, ""), present)


def _is_before(past: promql.VectorSelector | None, now: promql.VectorSelector | None) -> bool:
    if past is None or now is None or now.offset is not None or past.offset is None:
        return False
    return past.prettify().startswith(now.prettify())


def _single(part: promql.Expr, function: str) -> promql.VectorSelector | None:
    """Return the series that a part is, or that such a function is of."""
    if isinstance(part, promql.Call) and part.func.name == function and len(part.args) == 1:
        (window,) = part.args
        return window.vector_selector if isinstance(window, promql.MatrixSelector) else None
    return part if isinstance(part, promql.VectorSelector) else None


def _written(window: promql.MatrixSelector) -> str:
    """Return a window as it stands in the dashboard."""
    by_duration = {promql.parse_duration(text): variable for variable, text in _STANDS_FOR.items()}
    return by_duration.get(window.range) or promql.display_duration(window.range)


def _joined(left: Asked, right: Asked, modifier: promql.BinModifier | None) -> frozenset[str]:
    """Return the labels of what two vectors make together."""
    if modifier is None or modifier.matching is None:
        return left.labels
    taken, matching = frozenset(modifier.group_labels or ()), modifier.matching
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left.labels | taken
    if modifier.card == promql.VectorMatchCardinality.OneToMany:
        return right.labels | taken
    named = frozenset(matching.labels)
    return left.labels & named if matching.type == promql.LabelModifierType.Include else left.labels - named
