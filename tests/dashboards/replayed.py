# SPDX-License-Identifier: Apache-2.0
"""What a shipped dashboard's query gives over made-up series, after each evaluation of the rules."""

from __future__ import annotations

import re

from collections.abc import Mapping
from typing import Any

from tests.alerts.replay import Labels, evaluated
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
    "shift": "5m",
}
"""Variables and what they are here; what begins with another one's name stands before it."""


def given(
    uid: str, title: str, name: str, series: Mapping[str, list[str]], steps: int
) -> dict[int, dict[Labels, float]]:
    """
    Return what a query gives, by second: everything is chosen, over a time range of `RANGE`.

    Args:
        uid: The dashboard's.
        title: The panel's.
        name: The query's, as its legend or the heading of its column.
        series: Values for every step, as promtool writes them.
        steps: How many there are.
    """
    targets: list[dict[str, Any]] = [
        target
        for panel in panels_of(dashboard(uid))
        if panel["title"] == title
        for target in panel["targets"]
        if target["legendFormat"] == name
    ]
    (target,) = targets
    expr = target["expr"]
    for variable, value in VALUES.items():
        expr = expr.replace(f"${variable}", value)
    return evaluated(series, steps, re.sub(r'"\$\w+"', '".*"', expr))
