# SPDX-License-Identifier: Apache-2.0
"""What a shipped dashboard's query gives over made-up series, after each evaluation of the rules."""

from __future__ import annotations

import re

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tests.alerts.replay import Answers, evaluated_together
from tests.dashboards.panels import panels_of
from tests.dashboards.shipped import dashboard


RANGE = "10m"
VALUES = {
    "__rate_interval_ms": "60000",
    "__rate_interval": "1m",
    "__range_s": "600",
    "__range": RANGE,
    "__interval_ms": "15000",
    "__interval": "15s",
    "slo": "0.99",
    "planned": "1000",
    "shift": "5m",
}
"""Variables and what they are here; what begins with another one's name stands before it."""


class Query(NamedTuple):
    """
    A query of a shipped dashboard.

    Args:
        uid: The dashboard's.
        title: The panel's.
        name: The query's, as its legend where one server is chosen, or the heading of its column.
    """

    uid: str
    title: str
    name: str

    @property
    def expression(self) -> str:
        """Its expression: everything is chosen, over a time range of `RANGE`."""
        targets: list[dict[str, Any]] = [
            target
            for panel in panels_of(dashboard(self.uid))
            if panel["title"] == self.title
            for target in panel["targets"]
            if target["legendFormat"].replace("${of}", "").replace("${eng}", "").replace("${at}", "") == self.name
        ]
        (target,) = targets
        expr = target["expr"]
        for variable, value in VALUES.items():
            expr = expr.replace(f"${variable}", value)
        return re.sub(r'"\$[^\W\d]\w*"', '".*"', expr)


def given(uid: str, title: str, name: str, series: Mapping[str, list[str]], steps: int) -> Answers:
    """
    Return what a query gives, by second.

    Args:
        uid: As of `Query`, like the next two.
        title: The panel's.
        name: The query's.
        series: Values for every step, as promtool writes them.
        steps: How many there are.
    """
    query = Query(uid, title, name)
    return given_together([query], series, steps)[query]


def given_together(queries: Collection[Query], series: Mapping[str, list[str]], steps: int) -> dict[Query, Answers]:
    """Return what queries give, by the query and by second; the rules are evaluated once."""
    found = evaluated_together(series, steps, {query.expression for query in queries})
    return {query: found[query.expression] for query in queries}
