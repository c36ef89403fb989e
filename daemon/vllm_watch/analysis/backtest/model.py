# SPDX-License-Identifier: Apache-2.0
"""What a backtest finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.config.times import TimeRange


class Alert(NamedTuple):
    """
    An alert that fired, or that was pending and did not fire.

    Args:
        alertname: Its name.
        severity: Its severity; empty if the rule gives none.
        labels: All its other labels.
        start: From when, in seconds since the epoch.
        end: Until when; `None` if it had not ended where the values end.
        pending_since: Since when it was pending before, if it was.
        began_before: Whether it was there already when the time began that was asked for; `start` is then that time.
    """

    alertname: str
    severity: str
    labels: Mapping[str, str]
    start: float
    end: float | None
    pending_since: float | None = None
    began_before: bool = False


class NotJudged(NamedTuple):
    """
    An alert of which nothing can be said.

    Args:
        alertname: Its name.
        severity: Its severity.
        reason: Why, of this alert.
        shared: Why, of all alerts of which nothing can be said for a reason of the same kind, if there are such.
        needed: What this one would need: how long the values would have to be, or which series.
        unknown: The flags of the server that are not known, where they are all that is missing.
    """

    alertname: str
    severity: str
    reason: str
    shared: str = ""
    needed: str = ""
    unknown: tuple[str, ...] = ()


class SetResult(NamedTuple):
    """
    What one set of rules says.

    Args:
        name: The set's name.
        alerts: What fired, in the order of the beginnings.
        pending: What was pending and did not fire.
        not_judged: What cannot be said.
        looks_further: The alerts that look back further than the values reach, with the seconds that they do.
    """

    name: str
    alerts: tuple[Alert, ...]
    pending: tuple[Alert, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    looks_further: tuple[tuple[str, float], ...] = ()


class SourceResult(NamedTuple):
    """
    What the sets of rules say of one source.

    Args:
        source: Its path or address.
        start: When its values begin, in seconds since the epoch.
        end: When they end.
        step: Seconds between two values.
        interval: Seconds between two evaluations of the rules.
        slowest: The longest interval that a group with alerts asks for: its alerts may come that much later.
        gaps: When nothing was scraped: what the rules say then is not what they would have said.
        warnings: What else a reader must know.
        sets: The result of each set.
    """

    source: str
    start: float
    end: float
    step: float
    interval: int
    slowest: int
    gaps: tuple[TimeRange, ...]
    warnings: tuple[str, ...]
    sets: tuple[SetResult, ...]
