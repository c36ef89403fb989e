# SPDX-License-Identifier: Apache-2.0
"""From when to when alerts fire, from what ``ALERTS`` has after each evaluation of the rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from vllm_watch.analysis.backtest.evaluation import Answers, Labels


ALWAYS_FIRING = frozenset({"Watchdog"})
"""What fires to show that alerts arrive at all."""

_OF_THE_RULE = ("__name__", "alertname", "alertstate", "severity")


class Fired(NamedTuple):
    """
    An alert from `start` to `end`, in seconds since the first value; `end` is `None` if it had not ended at the last.

    `labels` are all others that the alert has. One without a severity has an empty one.
    """

    alert: str
    severity: str
    labels: Mapping[str, str]
    start: int
    end: int | None


def intervals(answers: Answers, left_out: Collection[str] = ALWAYS_FIRING) -> Iterator[Fired]:
    """Yield the alerts in the order in which they begin."""
    since: dict[Labels, int] = {}
    spans: list[tuple[int, int | None, Labels]] = []
    for moment, now in answers.items():
        spans += [(since.pop(labels), moment, labels) for labels in set(since) - set(now)]
        for labels in now:
            since.setdefault(labels, moment)
    spans += [(start, None, labels) for labels, start in since.items()]
    for start, end, alert in sorted(spans, key=lambda span: (span[0], span[2])):
        found = dict(alert)
        if found["alertname"] not in left_out:
            own = {name: value for name, value in found.items() if name not in _OF_THE_RULE}
            yield Fired(found["alertname"], found.get("severity", ""), own, start, end)
