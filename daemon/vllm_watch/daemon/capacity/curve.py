# SPDX-License-Identifier: Apache-2.0
"""
The capacity drawn on from what an engine did: X(N) = N / (alpha + beta N), at the number of requests that fit.

That number is from the engine's facts. The curve is used only where what was seen is much, alike and near enough to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import MAX_GAP_SECONDS, LimitName, LoadSample, grown, is_reset, share
from vllm_watch.daemon.catalog.codes import CapacityReason
from vllm_watch.daemon.statistics.throughput_fit import fit_throughput


WINDOW_SECONDS = 15.0


class LoadWindow(NamedTuple):
    """
    What an engine did in some seconds.

    `running` is the mean number of running requests, rates are in tokens per second; `computed` is of prompts, without
    cached tokens. `length` is the mean length of finished requests, prompt and answer, in tokens, `held` how much of
    the KV cache each takes: its prompt, but for what is shared, and half its answer.
    """

    running: float
    generated: float
    computed: float | None
    kv_cache_usage: float | None
    is_preempted: bool
    length: float | None
    held: float | None
    prefix_hits: float | None
    acceptance_length: float | None


class WindowCutter:
    """
    Cuts the samples of one engine into windows.

    A window counts if no request waited for capacity in it, and the engine worked in the windows beside it: work begins
    and ends somewhere in the others.
    """

    def __init__(self) -> None:
        self._first: LoadSample | None = None
        self._last: LoadSample | None = None
        self._running = self._kv = 0.0
        self._has_queue = False
        self._is_between_work = False
        self._waiting: LoadWindow | None = None
        """The last window that may count, until the one after it is known."""

    def add(self, sample: LoadSample) -> LoadWindow | None:
        """Take in the next sample; return a window if one is known to count."""
        first, last = self._first, self._last
        if first is None or last is None or sample.at - last.at > MAX_GAP_SECONDS or is_reset(last, sample):
            self._is_between_work, self._waiting = False, None
            self._begin(sample)
            return None
        seconds = sample.at - last.at
        self._running += sample.running * seconds
        self._kv += (sample.kv_cache_usage or 0.0) * seconds
        self._has_queue |= sample.queued >= 1
        self._last = sample
        if sample.at - first.at < WINDOW_SECONDS:
            return None
        return self._close(first, sample)

    def _begin(self, sample: LoadSample) -> None:
        self._first = self._last = sample
        self._running = self._kv = 0.0
        self._has_queue = sample.queued >= 1

    def _close(self, first: LoadSample, last: LoadSample) -> LoadWindow | None:
        running = self._running / (last.at - first.at)
        found = self._waiting if running > 0 else None
        may_count = running > 0 and self._is_between_work and not self._has_queue
        kv = None if last.kv_cache_usage is None else self._kv / (last.at - first.at)
        self._waiting = _window(first, last, running, kv) if may_count else None
        self._is_between_work = running > 0
        self._begin(last)
        return found


def _window(first: LoadSample, last: LoadSample, running: float, kv_cache_usage: float | None) -> LoadWindow | None:
    seconds = last.at - first.at
    generated, computed = grown(first.generated, last.generated), grown(first.computed, last.computed)
    if not generated:
        return None
    hits = share(grown(first.prefix_hits, last.prefix_hits), grown(first.prefix_queries, last.prefix_queries))
    drafts, accepted = grown(first.drafts, last.drafts), grown(first.accepted, last.accepted)
    length, held = _lengths(first, last, hits or 0.0)
    return LoadWindow(
        running=running,
        generated=generated / seconds,
        computed=None if computed is None else computed / seconds,
        kv_cache_usage=kv_cache_usage,
        is_preempted=bool(grown(first.preemptions, last.preemptions)),
        length=length,
        held=held,
        prefix_hits=hits,
        acceptance_length=1 + accepted / drafts if drafts and accepted is not None else None,
    )


def _lengths(first: LoadSample, last: LoadSample, hits: float) -> tuple[float | None, float | None]:
    """Return the mean length of the requests that were finished, and how much of the KV cache each took."""
    requests = grown(first.measured, last.measured)
    prompted, answered = grown(first.prompted, last.prompted), grown(first.answered, last.answered)
    if not requests or prompted is None or answered is None:
        return None, None
    return (prompted + answered) / requests, (prompted * (1 - hits) + answered / 2) / requests


MIN_WINDOWS = 20
"""The fewest windows that must be alike."""

MIN_LEVELS = 4
"""The fewest levels (`load_level`) that must have been seen."""

MAX_BEYOND = 1.3
"""A curve is evaluated at no more than this many times the requests that were seen to run at once."""

SEEN_WINDOWS = 4
"""The most that was seen is the mean of this many windows, those with the most requests: a minute."""

_FLATTENING = 0.3
"""How much longer a step at the most requests seen must be than with hardly any, as a part: else X(N) is straight."""

_ALIKE = 0.1
"""How far the curves through each half of the windows may differ at the limit, as a part of the larger."""

_LENGTH_TOLERANCE = 0.1
_ACCEPTANCE_TOLERANCE = 0.1
"""As a part of the median."""

_HIT_TOLERANCE = 0.05
"""As a difference of two ratios."""

_KV_TOLERANCE = 0.3
"""How far the two ways to tell how many requests fit may differ, as a part of the larger number."""

_LEAST_KV = 0.02
"""Below this share of the KV cache its rounding is too large to learn from how many requests fill it."""

_LEAST_SEATS = 128
"""No release runs fewer requests at once than this where --max-num-seqs is not given."""


class NoCurve(NamedTuple):
    """Why there is no curve, with the numbers that its reason is about, by name."""

    reason: CapacityReason
    numbers: Mapping[str, float] = {}


class Limit(NamedTuple):
    """How many requests run at most, and what limits them."""

    requests: float
    by: LimitName


class Curve(NamedTuple):
    """
    The capacity by a curve: at least what was `seen`, at most the curve's value `at_limit`.

    These are in generated tokens per second; `computed` is how many tokens of prompts come with each. `windows` is how
    many the curve is through, `most_running` the requests at which was seen what was, `prefix_hits` the mean share of
    prompt tokens from the cache.
    """

    seen: float
    at_limit: float
    computed: float | None
    limit: Limit
    windows: int
    most_running: float
    prefix_hits: float | None


def load_level(running: float) -> int:
    """Return the level of a number of running requests, 1, 2-3, 4-7, 8-15 and so on, as a number that grows by one."""
    return int(running).bit_length()


def draw_curve(windows: Sequence[LoadWindow], facts: Mapping[str, float]) -> Curve | NoCurve:
    """Return the capacity of an engine with these facts by its windows, or why they do not show it."""
    limit = running_limit(windows, facts)
    if isinstance(limit, NoCurve):
        return limit
    alike = _alike(windows)
    if isinstance(alike, NoCurve):
        return alike
    busiest = sorted(alike, key=lambda window: window.running)[-SEEN_WINDOWS:]
    most = sum(window.running for window in busiest) / SEEN_WINDOWS
    if limit.requests > MAX_BEYOND * most:
        return NoCurve("too_light", {"running": most, "limit": limit.requests})
    at_limit = _at_limit(alike, limit.requests, most)
    if at_limit is None:
        return NoCurve("no_curve")
    seen = sum(window.generated for window in busiest) / SEEN_WINDOWS
    total, computed = sum(each.generated for each in alike), _sum(each.computed for each in alike)
    return Curve(
        seen=seen,
        at_limit=max(seen, min(at_limit, seen * limit.requests / most)),
        computed=None if computed is None else computed / total,
        limit=limit,
        windows=len(alike),
        most_running=most,
        prefix_hits=_mean(each.prefix_hits for each in alike),
    )


def _at_limit(windows: Sequence[LoadWindow], limit: float, most: float) -> float | None:
    """Return the curve's value at the limit; `None` unless it flattens up to `most`, and each half says the same."""
    ordered = sorted(windows, key=lambda window: window.running)
    fits = [
        fit_throughput([(each.running, each.generated) for each in part])
        for part in (ordered, ordered[::2], ordered[1::2])
    ]
    values = [fit.at(limit) for fit in fits if fit is not None and fit.beta * most >= _FLATTENING * fit.alpha]
    if len(values) < len(fits) or min(values) < (1 - _ALIKE) * max(values):
        return None
    return values[0]


def running_limit(windows: Sequence[LoadWindow], facts: Mapping[str, float]) -> Limit | NoCurve:
    """Return how many requests run at most, or why that is not known."""
    seats, tokens = facts.get("max_running_requests"), facts.get("kv_cache_capacity_tokens")
    held = _mean(window.held for window in windows)
    by_facts = tokens / held if tokens and held else None
    seen = [w.running / w.kv_cache_usage for w in windows if w.kv_cache_usage and w.kv_cache_usage >= _LEAST_KV]
    by_sight = _median(seen)
    fitting = min((each for each in (by_facts, by_sight) if each is not None), default=None)
    if seats and (fitting is None or seats <= fitting):
        return Limit(seats, "max-num-seqs")
    if fitting is None or not (seats or fitting <= _LEAST_SEATS):
        return NoCurve("limit_unknown")
    if by_facts and by_sight and abs(by_facts - by_sight) > _KV_TOLERANCE * max(by_facts, by_sight):
        return NoCurve("limits_differ", {"by_size": by_facts, "by_usage": by_sight})
    return Limit(fitting, "KV cache")


def _alike(windows: Sequence[LoadWindow]) -> Sequence[LoadWindow] | NoCurve:
    """Return the windows that can be compared, if they are enough; they are near the median in all that matters."""
    problem = _too_few(windows, "too_few_loads")
    if problem is not None:
        return problem
    windows = [window for window in windows if not window.is_preempted]
    problem = _too_few(windows, "preempted")
    for reason, value, ratio, difference in _CONDITIONS:
        if problem is not None:
            return problem
        windows = _near_median(windows, value, ratio, difference)
        problem = _too_few(windows, reason)
    return windows if problem is None else problem


def _too_few(windows: Sequence[LoadWindow], reason: CapacityReason) -> NoCurve | None:
    levels = len({load_level(window.running) for window in windows})
    if len(windows) >= MIN_WINDOWS and levels >= MIN_LEVELS:
        return None
    return NoCurve(reason, {"windows": len(windows), "levels": levels})


def _near_median(
    windows: Sequence[LoadWindow], value: Callable[[LoadWindow], float | None], ratio: float, difference: float
) -> Sequence[LoadWindow]:
    """Return the windows whose value is near the median of all, or not known."""
    middle = _median([number for window in windows if (number := value(window)) is not None]) or 0.0
    most = difference + ratio * middle
    return [window for window in windows if (number := value(window)) is None or abs(number - middle) <= most]


_CONDITIONS: tuple[tuple[CapacityReason, Callable[[LoadWindow], float | None], float, float], ...] = (
    ("lengths_differ", lambda window: window.length, _LENGTH_TOLERANCE, 0.0),
    ("prefix_hits_differ", lambda window: window.prefix_hits, 0.0, _HIT_TOLERANCE),
    ("acceptance_differs", lambda window: window.acceptance_length, _ACCEPTANCE_TOLERANCE, 0.0),
)
"""Why windows cannot be compared, the value that must be near its median, and how near: a ratio, or a difference."""


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None


def _median(values: Sequence[float]) -> float | None:
    """Return the middle value, the lower of two: the standard library's module takes long to import."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    known = [each for each in every if each is not None]
    return sum(known) if known and len(known) == len(every) else None
