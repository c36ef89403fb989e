# SPDX-License-Identifier: Apache-2.0
"""What a backtest finds: alerts from when to when, those that cannot be judged, and two sets of alerts side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.backtest.promtool import Answers, Labels
from vllm_watch.daemon.catalog.number_texts import duration
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


class SetResult(NamedTuple):
    """What one set of rules says: what fired, what was pending and did not fire, and what cannot be said."""

    name: str
    alerts: tuple[Alert, ...]
    pending: tuple[Alert, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()


class SourceResult(NamedTuple):
    """
    What the sets of rules say of one source: a path or an address, from when to when.

    A value stands for `step` seconds, and rules are evaluated every `interval` seconds. In `gaps` nothing was scraped:
    what the rules say then is not what they would have said.
    """

    source: str
    start: float
    end: float
    step: float
    interval: int
    gaps: tuple[TimeRange, ...]
    warnings: tuple[str, ...]
    sets: tuple[SetResult, ...]


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


class Pair(NamedTuple):
    """An alert as each of two sets of rules has it; `None` where one has it not."""

    first: Alert | None
    second: Alert | None

    @property
    def either(self) -> Alert:
        """The first one's, if it has it."""
        alert = self.first or self.second
        assert alert is not None  # noqa: S101 - No pair is of nothing.
        return alert

    @property
    def starts(self) -> float:
        """When the earlier of the two starts, in seconds since the epoch."""
        return min(alert.start for alert in self if alert is not None)

    def difference(self, names: tuple[str, str]) -> str:
        """Return in words what differs, nothing if nothing does; `names` are those of the sets."""
        if self.first is None or self.second is None:
            return f"only {names[0] if self.second is None else names[1]}"
        parts = [_moved("starts", self.second.start - self.first.start)]
        if self.first.end is not None and self.second.end is not None:
            parts.append(_moved("ends", self.second.end - self.first.end))
        elif self.first.end != self.second.end:
            parts.append("does not end" if self.second.end is None else "ends sooner")
        return ", ".join(part for part in parts if part)


def side_by_side(first: Sequence[Alert], second: Sequence[Alert]) -> list[Pair]:
    """Return the alerts of two sets in the order in which they start: those that overlap together."""
    alike: dict[tuple[object, ...], tuple[list[Alert], list[Alert]]] = defaultdict(lambda: ([], []))
    for side, alerts in enumerate((first, second)):
        for alert in alerts:
            alike[alert.alertname, alert.severity, tuple(sorted(alert.labels.items()))][side].append(alert)
    pairs = [pair for sides in alike.values() for pair in _paired(*sides)]
    return sorted(pairs, key=lambda pair: pair.starts)


def _paired(first: Sequence[Alert], second: Sequence[Alert]) -> Iterator[Pair]:
    left = list(second)
    for alert in first:
        other = next((candidate for candidate in left if _overlap(alert, candidate)), None)
        if other is not None:
            left.remove(other)
        yield Pair(alert, other)
    yield from (Pair(None, alert) for alert in left)


def _overlap(one: Alert, other: Alert) -> bool:
    return (other.end is None or one.start <= other.end) and (one.end is None or other.start <= one.end)


def _moved(verb: str, seconds: float) -> str:
    if not seconds:
        return ""
    return f"{verb} {duration(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"
