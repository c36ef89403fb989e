# SPDX-License-Identifier: Apache-2.0
"""The panel of preemptions, which several boards have."""

from __future__ import annotations

from boards.kit import palette, promql
from boards.kit.links import runbooks
from boards.kit.panels import Panel, Query, lines
from boards.kit.texts import Texts
from boards.kit.thresholds import number


PREEMPTED = promql.per_server(promql.rate(promql.of_engine("preemptions_total")))
"""Preemptions per second of each server."""


def preemptions(t: Texts, *more: Query, width: int) -> Panel:
    """Return how often requests are preempted, by server; `more` are drawn beside it."""
    return lines(
        t.panel("preemptions"),
        "suffix: /s",
        [Query(PREEMPTED, "{{server}}", palette.ORANGE), *more],
        width=width,
        soft_most=1,
        bounds=[(number("preemptions_per_second"), palette.BAD)],
        runbooks=runbooks(t, "VllmPreemptionStorm"),
    )
