# SPDX-License-Identifier: Apache-2.0
"""Two sets of alerts side by side: which ones are the same incident, and what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_watch.analysis.backtest.model import Alert
from vllm_watch.analysis.loadtest.number_texts import duration


class Pair(NamedTuple):
    """An alert as each of two sets of rules has it; `None` where one has it not."""

    first: Alert | None
    second: Alert | None

    @property
    def either(self) -> Alert:
        """The first one's, if it has it."""
        found = self.first or self.second
        assert found is not None  # noqa: S101 - No pair is of nothing.
        return found

    @property
    def starts(self) -> float:
        """When the earlier of the two starts, in seconds since the epoch."""
        return min(each.start for each in self if each is not None)

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
        for each in alerts:
            alike[_identity(each)][side].append(each)
    pairs = [pair for sides in alike.values() for pair in _paired(*sides)]
    return sorted(pairs, key=lambda pair: pair.starts)


def _identity(alert: Alert) -> tuple[object, ...]:
    return alert.alertname, alert.severity, tuple(sorted(alert.labels.items()))


def _paired(first: Sequence[Alert], second: Sequence[Alert]) -> Iterator[Pair]:
    """Yield alerts of one name and labels: each with the first of the other side that overlaps it."""
    left = list(second)
    for each in first:
        other = next((candidate for candidate in left if _overlap(each, candidate)), None)
        if other is not None:
            left.remove(other)
        yield Pair(each, other)
    yield from (Pair(None, each) for each in left)


def _overlap(one: Alert, other: Alert) -> bool:
    return (other.end is None or one.start <= other.end) and (one.end is None or other.start <= one.end)


def _moved(verb: str, seconds: float) -> str:
    if not seconds:
        return ""
    return f"{verb} {duration(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"
