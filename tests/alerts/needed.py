# SPDX-License-Identifier: Apache-2.0
"""
Which rules a query depends on: those that write what it selects, those that write what they select, and so on.

Rules touch one another only by the series that they write, so that the others can be left out of an evaluation: it
gives the same, in a tenth of the time.
"""

from __future__ import annotations

import functools

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import promql_parser as promql

from tests.alerts.shapes import selectors


OF_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
"""What every alert writes, with its name as a label."""

Groups = list[dict[str, Any]]
"""Groups of rules, as they stand in a file."""


def needed(groups: Sequence[Mapping[str, Any]], queries: Iterable[str]) -> Groups:
    """Return the rules that queries depend on, in the order of the groups; groups without any are left out."""
    found = set()
    pending = list(queries)
    while pending:
        wanted = _selectors(pending.pop())
        for group in groups:
            for number, rule in enumerate(group["rules"]):
                place = group["name"], number
                if place not in found and any(_may_write(rule, selector) for selector in wanted):
                    found.add(place)
                    pending.append(rule["expr"])
    smaller = (
        {**group, "rules": [rule for number, rule in enumerate(group["rules"]) if (group["name"], number) in found]}
        for group in groups
    )
    return [group for group in smaller if group["rules"]]


def alert_query(name: str) -> str:
    """Return the query for an alert."""
    return f'ALERTS{{alertname="{name}"}}'


@functools.cache
def _selectors(query: str) -> tuple[promql.VectorSelector, ...]:
    return tuple(selectors(promql.parse(query)))


def _may_write(rule: Mapping[str, Any], selector: promql.VectorSelector) -> bool:
    """Whether a rule may write what is selected; a selector without a name may select anything."""
    if "record" in rule:
        return selector.name in {None, rule["record"]}
    if selector.name not in OF_ALERTS | {None}:
        return False
    return all(
        matcher.value == rule["alert"]
        for matcher in selector.matchers.matchers
        if matcher.name == "alertname" and matcher.op == promql.MatchOp.Equal
    )
