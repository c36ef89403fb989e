# SPDX-License-Identifier: Apache-2.0
"""
Long runs of statistics lines without their middle, for a reader that wants to know only what is so after them.

An engine that computes prints the same lines every few seconds, and each replaces the one before it. Five things
outlive the next lines: the first ones show that the server is ready, the last ones how often it prints, those of the
last minutes how long its steps take, one of them when it had its last prompt tokens, and the tokens of all drafts are
added up.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from vllm_watch.daemon.catalog.codes import STEP_TIME_SECONDS
from vllm_watch.daemon.reading.event_filter import ONE_OF_SEVERAL
from vllm_watch_parsers.events import SpecDecoding
from vllm_watch_parsers.usual_statistics import UsualStatistics, interval_statistics, usual_intervals


_HEAD_SECONDS = 20
"""For so long lines are kept that may prove that a server lives whose end was reported: it takes one interval."""

_BEFORE = 7
"""So many intervals decide how often an engine prints, over how long its drafts are, and where the next one begins."""

_Interval = re.Match[str]


def without_middles(lines: Sequence[bytes]) -> Iterator[bytes | UsualStatistics]:
    r"""
    Yield lines in order (without their ``\n``), most statistics parsed; of a long run of them the first and last.

    A run is of one engine, within one hour, with tokens in each interval. The sum of the drafts of its middle is one
    line on drafts that has nothing else.
    """
    if not lines:
        return
    text = b"\n".join([*lines, b""]).decode("latin-1")
    runs = [(run, list(found)) for run, found in groupby(usual_intervals(text), _run_of)]
    last = {_engine(found[-1]): found[-1] for run, found in runs if run is not None}
    for run, found in runs:
        if run is not None:
            yield from _shortened(found, is_recent=not _is_long_before(found[-1], last[_engine(found[-1])]))
            continue
        for each in found:
            if each["engine"] is None:
                yield each[0][:-1].encode("latin-1")
            else:
                yield from interval_statistics(each)


def _engine(found: _Interval) -> tuple[str | None, ...]:
    return found.group("process", "engine")


def _is_long_before(one: _Interval, other: _Interval) -> bool:
    """Return whether steps of the one are not among those of the last minutes at the other; if in doubt they are."""
    (day, hour), (other_day, other_hour) = ((each["hour"][:-3], int(each["hour"][-2:])) for each in (one, other))
    if day > other_day:
        return False
    hours = other_hour - hour + 24 * (day < other_day)
    return hours * 3600 + _seconds(other["clock"]) - _seconds(one["clock"]) >= STEP_TIME_SECONDS


def _run_of(found: re.Match[str]) -> tuple[str | bool, ...] | None:
    """Return what the intervals of a run have in common; `None` for other lines and for intervals that are in none."""
    process, hour, engine, generation = found.group("process", "hour", "engine", "generation")
    if not generation or _is_zero(generation) or (process and process.startswith(ONE_OF_SEVERAL)):
        return None
    drafted, rate = found.group("drafted", "drafted_rate")
    if drafted and (_is_zero(drafted) or _is_zero(rate)):
        return None
    return process, hour, engine, drafted is None


def _is_zero(number: str) -> bool:
    return not number.strip("0.")


def _shortened(run: Sequence[_Interval], *, is_recent: bool) -> Iterator[UsualStatistics]:
    """Yield what is reported by the lines of a run that outlive it, with its last minutes if it is recent."""
    clocks = [found["clock"] for found in run]
    start = _seconds(clocks[0])
    head = next((number for number, clock in enumerate(clocks, 1) if _seconds(clock) > start + _HEAD_SECONDS), len(run))
    tail = _tail(clocks) if is_recent else max(len(run) - _BEFORE, 0)
    middle = run[head:tail]
    if not middle or any(clock <= before for before, clock in pairwise(clocks)):
        yield from _statistics(run)
        return
    yield from _statistics(run[:head])
    prompted = next((found for found in reversed(middle) if not _is_zero(found["prompt"])), None)
    if middle[0]["drafted"]:
        yield _sum_of_drafts(middle, prompted)
    yield from _statistics([prompted] if prompted else [])
    yield from _statistics(run[tail:])


def _tail(clocks: Sequence[str]) -> int:
    """Return the number of the first interval without which the last minutes would not be known."""
    since = _seconds(clocks[-1]) - STEP_TIME_SECONDS
    return max(0, next(number for number, clock in enumerate(clocks) if _seconds(clock) >= since) - _BEFORE)


def _statistics(intervals: Iterable[_Interval]) -> Iterator[UsualStatistics]:
    return (line for found in intervals for line in interval_statistics(found))


def _sum_of_drafts(middle: Sequence[_Interval], kept: _Interval | None) -> UsualStatistics:
    """Return the tokens of a run's middle, but for an interval that is kept, as one line without rates and ratios."""
    accepted, drafted = (
        sum(int(found[group]) for found in middle if found is not kept) for group in ("accepted", "drafted")
    )
    process, hour, clock = middle[0].group("process", "hour", "clock")
    return UsualStatistics(SpecDecoding(accepted_tokens=accepted, drafted_tokens=drafted), hour + clock, process or "")


def _seconds(clock: str) -> int:
    """Return the seconds since the hour of ``:35:10``."""
    return int(clock[1:3]) * 60 + int(clock[4:])
