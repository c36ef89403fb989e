# SPDX-License-Identifier: Apache-2.0
"""
Finds the part of a server's history that a client measured.

A benchmark's result has its date in local time without a zone, or none. If the server did nothing like it at that time,
it is looked for by its shape: the same tokens in the same time, at a time that differs by a zone, or at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.analysis.loadtest.growth import Growth
from vllm_watch.analysis.loadtest.history import ServerHistory
from vllm_watch.analysis.loadtest.loads import LoadSpan, find_loads, load_between
from vllm_watch.analysis.loadtest.model import Result, Run
from vllm_watch.analysis.loadtest.usage import GENERATED


ZONE_STEP = 900.0
"""Time zones differ by multiples of a quarter of an hour."""

_FARTHEST = 26 * 3600.0
_TOLERANCE = 0.02
_LOG_TOLERANCE = 0.06
"""By how much counts may differ; those of a log are rounded, and cover ten seconds."""

_SHORTEST_IDLE = 3.0
_DURATION_TOLERANCE = 0.1
_DURATION_SECONDS = 15.0


class Match(NamedTuple):
    """When a client measured by the server's clock, and what is to be said of how that is known."""

    start: float
    end: float
    remark: str | None = None


def match(run: Run, history: ServerHistory) -> Match | None:
    """Return the part of a history that a client's run is of, `None` if there is none."""
    result = run.result
    if result is None or not history.points:
        return None
    if run.start is None or run.end is None:
        return _by_shape(result, history)
    here = load_between(history.points, run.start, run.end)
    if here is not None and _agrees(result, here, history) is not False:
        return Match(run.start, run.end)
    shifted = _by_zone(result, run.start, run.end, history)
    if shifted is not None:
        return shifted
    if here is None or not _has_tokens(here):
        return None
    return Match(run.start, run.end, _OTHERS)


_OTHERS = (
    "The server's counts in the client's time differ from the client's: others used the server, too, or one of the "
    "clocks is wrong."
)


def _by_zone(result: Result, start: float, end: float, history: ServerHistory) -> Match | None:
    """Look for a run at other zones' times, the nearest first; `None` also if it fits at several."""
    steps = int(_FARTHEST / ZONE_STEP)
    found = []
    for step in sorted(range(-steps, steps + 1), key=abs):
        shift = step * ZONE_STEP
        span = load_between(history.points, start + shift, end + shift) if step else None
        if span is not None and _agrees(result, span, history):
            found.append(shift)
    if len(found) != 1:
        return None
    hours = found[0] / 3600
    remark = f"The client's clock and the server's differ by {hours:+g} h: matched by the requests and tokens they saw."
    return Match(start + found[0], end + found[0], remark)


def _by_shape(result: Result, history: ServerHistory) -> Match | None:
    """Look for a run whose time is not known among all loads."""
    spans = [
        span
        for span in find_loads(history.points, _SHORTEST_IDLE)
        if _agrees(result, span, history) and _lasts(result, span)
    ]
    if len(spans) != 1:
        return None
    remark = "The result has no date: matched to the server's history by the requests and tokens it has."
    end = spans[0].end
    return Match(spans[0].start if result.duration_s is None else end - result.duration_s, end, remark)


def _lasts(result: Result, span: LoadSpan) -> bool:
    seconds = result.duration_s
    if seconds is None:
        return True
    return abs(span.end - span.start - seconds) <= _DURATION_SECONDS + _DURATION_TOLERANCE * seconds


def _agrees(result: Result, span: LoadSpan, history: ServerHistory) -> bool | None:
    """Return whether a server counted the tokens that a client did; `None` if either did not count them."""
    generated, expected = Growth(span.points).counter(GENERATED), result.total_output_tokens
    if generated is None or not expected:
        return None
    tolerance = _TOLERANCE if history.has_metrics else _LOG_TOLERANCE
    return abs(generated - expected) <= tolerance * expected


def _has_tokens(span: LoadSpan) -> bool:
    return bool(Growth(span.points).counter(GENERATED))
