# SPDX-License-Identifier: Apache-2.0
"""What a backtest finds: alerts from when to when, and those that cannot be judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_watch.analysis.backtest.promtool import Answers, Labels
from vllm_watch.daemon.config.moments import TimeRange


ALWAYS_FIRING = frozenset({"Watchdog"})
"""What fires to show that alerts arrive at all."""

_OF_THE_RULE = ("__name__", "alertname", "alertstate", "severity")


class Alert(NamedTuple):
    """
    An alert that fired, or that was pending and did not fire; `labels` are all but its name and severity.

    Times are in seconds since the epoch. `end` is `None` if it had not ended where the values end; `pending_since` is
    when it was pending before it fired. One that `began_before` the time that was asked for has that time as its
    `start`.
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
    An alert of which nothing can be said, and why.

    `unknown` are the flags of the server that are all that is missing.
    """

    alertname: str
    severity: str
    reason: str
    unknown: tuple[str, ...] = ()


class SourceResult(NamedTuple):
    """
    What the rules say of one source, a path or an address, from when to when: what fired, what cannot be said.

    A value stands for `step` seconds, and rules are evaluated every `interval` seconds. In `gaps` nothing was scraped:
    what the rules say then is not what they would have said. `pending` are those that were pending and did not fire.
    """

    source: str
    start: float
    end: float
    step: float
    interval: int
    gaps: tuple[TimeRange, ...]
    warnings: tuple[str, ...]
    alerts: tuple[Alert, ...]
    pending: tuple[Alert, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()


def intervals(answers: Answers) -> Iterator[Alert]:
    """Yield the alerts in the order in which they begin, with seconds since the first value; none that always fires."""
    since: dict[Labels, int] = {}
    spans: list[tuple[int, int | None, Labels]] = []
    for moment, now in answers.items():
        spans += [(since.pop(labels), moment, labels) for labels in set(since) - set(now)]
        for labels in now:
            since.setdefault(labels, moment)
    spans += [(start, None, labels) for labels, start in since.items()]
    for start, end, pairs in sorted(spans, key=lambda span: (span[0], span[2])):
        alert = dict(pairs)
        if alert["alertname"] not in ALWAYS_FIRING:
            others = {name: value for name, value in alert.items() if name not in _OF_THE_RULE}
            yield Alert(alert["alertname"], alert.get("severity", ""), others, start, end)
