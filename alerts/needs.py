# SPDX-License-Identifier: Apache-2.0
"""
Which series each alert needs, read from the rules' expressions, for `vllm-watch check`.

An alert needs one of several sets of series, all of a set: ``a and b``, ``a > b`` and ``a / b`` need both, ``a or b``
either, ``a unless b`` the first. Of all labels only `source` decides whether a series can be there; the values of
the others come and go.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import promql_parser as promql
import yaml

from vllm_watch.daemon.catalog.codes import severity_rank


PREFIX = "vllm_watch_"

_OF_SEVERAL_ENGINES = frozenset({"VllmDataParallelImbalance"})
_STATES_OF_LOG = frozenset({"starting"})
_PARTS = ("_bucket", "_sum", "_count")

Need = tuple[str, str]
"""A series and its source; the source is empty where any will do."""

Ways = frozenset[frozenset[Need]]
"""The sets of series, each of which is enough."""

_NOTHING: Ways = frozenset({frozenset()})
_NO_WAY: Ways = frozenset()
_BEING_READ = ""
"""In place of the expression of a rule that hands its own value on: that value has no other way to come to be."""


def needs(rule_files: dict[str, str]) -> dict[str, dict[str, object]]:
    """
    Return each alert's severity, summary and ways to fire.

    Two rules of one name are one alert of two severities: it has the summary of the first, the worst severity, and the
    ways of both.

    Args:
        rule_files: The texts of rendered rule files, by name.
    """
    groups = [group for text in rule_files.values() for group in yaml.safe_load(text)["groups"]]
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for rule in rules:
        if "alert" in rule:
            by_name.setdefault(rule["alert"], []).append(rule)
    return {
        name: {
            "severity": min((rule["labels"]["severity"] for rule in same), key=severity_rank),
            "summary": same[0]["annotations"]["summary"],
            "ways": [
                [{"series": series, **({"source": source} if source else {})} for series, source in way]
                for way in sorted(sorted(way) for way in _ways_of_rules(same, recorded))
            ],
            **({"several_engines": True} if name in _OF_SEVERAL_ENGINES else {}),
        }
        for name, same in by_name.items()
    }


def _ways_of_rules(rules: list[dict[str, Any]], recorded: dict[str, str]) -> Ways:
    return _least(_NO_WAY.union(*(_ways(promql.parse(rule["expr"]), recorded) for rule in rules)))


def _ways(expression: promql.Expr, recorded: dict[str, str]) -> Ways:
    if isinstance(expression, promql.BinaryExpr):
        left = _ways(expression.lhs, recorded)
        operation = str(expression.op)
        if operation == "unless":
            return left
        right = _ways(expression.rhs, recorded)
        return _least(left | right) if operation == "or" else _both(left, right)
    if isinstance(expression, promql.Call):
        if expression.func.name.startswith("absent"):
            return _NOTHING
        ways = _NOTHING
        for argument in expression.args:
            ways = _both(ways, _ways(argument, recorded))
        return ways
    if isinstance(expression, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return _ways(expression.expr, recorded)
    if isinstance(expression, promql.MatrixSelector):
        return _ways(expression.vector_selector, recorded)
    if isinstance(expression, promql.VectorSelector):
        return _ways_of_series(expression, recorded)
    return _NOTHING


def _ways_of_series(selector: promql.VectorSelector, recorded: dict[str, str]) -> Ways:
    selected = selector.name or ""
    if recorded.get(selected) == _BEING_READ:
        return _NO_WAY
    if selected in recorded:
        return _ways(promql.parse(recorded[selected]), {**recorded, selected: _BEING_READ})
    if not selected.startswith(PREFIX):
        return _NOTHING
    name = selected.removeprefix(PREFIX)
    base = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
    wanted = {each.name: each.value for each in selector.matchers.matchers if each.op == promql.MatchOp.Equal}
    source = "log" if wanted.get("state") in _STATES_OF_LOG else wanted.get("source")
    return frozenset({frozenset({(base, source or "")})})


def _both(left: Ways, right: Ways) -> Ways:
    return _least(frozenset(one | other for one, other in product(left, right)))


def _least(ways: Ways) -> Ways:
    """Leave out the ways that need more than another one does."""
    return frozenset(way for way in ways if not any(other < way for other in ways))
