# SPDX-License-Identifier: Apache-2.0
"""The throughput of an engine while requests waited because the batch or the KV cache was full: its capacity, seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import MAX_GAP_SECONDS, LimitName, LoadSample, grown, is_reset


SATURATED_SECONDS = 60.0
ENOUGH_SECONDS = 300.0
"""A stretch this long is measured well: the next one counts by itself, and replaces it."""

MAX_STRETCHES = 8

_FLICKER_SECONDS = 10.0
"""How long a stretch survives without a waiting request, or without a token: a stalled engine shows no capacity."""

AT_LIMIT = 0.95
"""A batch is full when this share of the requests that may run at once runs or is deferred, on average."""

KV_AT_LIMIT = 0.9
"""The KV cache is full when this share of it is used, on average; alerts and advice mean the same by it."""

SATURATED_BOUNDS = (0.95, 1.05)
"""Between which parts of the measured throughput the capacity is."""


class Stretch(NamedTuple):
    """
    A time in which requests waited for capacity. `running`, `queued`, `kv_cache_usage` and `deferred` are means.

    Rates are in tokens per second; `computed` is of prompts, without cached tokens.
    """

    start: float
    seconds: float
    running: float
    queued: float
    kv_cache_usage: float | None
    generated: float | None
    computed: float | None
    deferred: float = 0.0

    @property
    def seated(self) -> float:
        """
        The requests that take the places of running ones.

        Deferred ones are counted: vllm-project/vllm#53130 shows 3 running and 5 deferred of 8 in 0.27.1, and nothing
        else is let in. In 0.33.0 only those that wait for their client's next input keep a place (`num_running` in
        vllm/v1/core/sched/scheduler.py), which /metrics does not tell apart.
        """
        return self.running + self.deferred

    def limit(self, facts: Mapping[str, float]) -> LimitName | None:
        """Return what was full by an engine's facts, `None` if nothing that is known was."""
        seats = facts.get("max_running_requests")
        if seats and self.seated >= AT_LIMIT * seats:
            return "max-num-seqs"
        if self.kv_cache_usage is not None and self.kv_cache_usage >= KV_AT_LIMIT:
            return "KV cache"
        return None

    def shows_capacity(self, facts: Mapping[str, float]) -> bool:
        """Return whether this is a measurement of the capacity: long enough, with tokens, and at a limit."""
        return self.seconds >= SATURATED_SECONDS and bool(self.generated) and self.limit(facts) is not None


class SaturationMeter:
    """Finds the stretches of one engine, in order of time."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        """The last ones that are long enough to measure, the present one included."""
        self.longest_seconds = 0.0
        """How long the longest was, also if it is too short."""
        self._start: LoadSample | None = None
        self._end: LoadSample | None = None
        self._last: LoadSample | None = None
        self._shorter: Stretch | None = None
        """The last of the stretches without its last interval."""
        self._sums = [0.0, 0.0, 0.0, 0.0]

    def add(self, sample: LoadSample) -> bool:
        """Take in the next sample; return whether there is a new or a longer stretch."""
        last, self._last = self._last, sample
        if last is None or sample.at - last.at > MAX_GAP_SECONDS or is_reset(last, sample):
            self._start = None
        if self._start is None or last is None:
            # The samples of a stall, whose requests wait, are no part of what comes after it.
            if sample.queued > 0 and (last is None or _has_tokens(last, sample)):
                self._begin(sample)
            return False
        self._sum(sample, sample.at - last.at)
        if sample.queued > 0 and _has_tokens(last, sample):
            return self._go_on(self._start, sample)
        if sample.queued > 0 and last is self._end:
            self._take_back(self._start)
        if self._end is None or sample.at - self._end.at > _FLICKER_SECONDS:
            self._start = None
        return False

    def measured(self, facts: Mapping[str, float]) -> Stretch | None:
        """Return the best measurement of the capacity: the longest, or the last of those that are long enough."""
        best: Stretch | None = None
        for each in self.stretches:
            if each.shows_capacity(facts) and (best is None or each.seconds >= min(best.seconds, ENOUGH_SECONDS)):
                best = each
        return best

    def present(self) -> Stretch | None:
        """Return the stretch under way, however short; `None` if no request waits."""
        if self._start is None or self._last is None or self._last.at <= self._start.at:
            return None
        return _stretch(self._start, self._last, self._sums)

    def _begin(self, sample: LoadSample) -> None:
        self._start = self._end = sample
        self._sums = [0.0, 0.0, 0.0, 0.0]

    def _sum(self, sample: LoadSample, seconds: float) -> None:
        means = (sample.running, sample.queued, sample.kv_cache_usage or 0.0, sample.deferred)
        for place, value in enumerate(means):
            self._sums[place] += value * seconds

    def _go_on(self, start: LoadSample, sample: LoadSample) -> bool:
        seconds = sample.at - start.at
        if seconds <= 0:
            return False
        self._end = sample
        self.longest_seconds = max(self.longest_seconds, seconds)
        if seconds < SATURATED_SECONDS:
            return False
        is_longer = bool(self.stretches) and self.stretches[-1].start == start.at
        self._shorter = self.stretches.pop() if is_longer else None
        self.stretches.append(_stretch(start, sample, self._sums))
        del self.stretches[:-MAX_STRETCHES]
        if seconds >= ENOUGH_SECONDS:
            self._begin(sample)
        return True

    def _take_back(self, start: LoadSample) -> None:
        """Leave out the last interval of a stretch: the stall that is seen now began within it."""
        if self.stretches and self.stretches[-1].start == start.at:
            self.stretches.pop()
            self.stretches += [] if self._shorter is None else [self._shorter]
            self._shorter = None


def _has_tokens(old: LoadSample, new: LoadSample) -> bool:
    return bool(grown(old.generated, new.generated) or grown(old.computed, new.computed))


def _stretch(start: LoadSample, end: LoadSample, sums: list[float]) -> Stretch:
    seconds = end.at - start.at
    generated, computed = grown(start.generated, end.generated), grown(start.computed, end.computed)
    running, queued, kv, deferred = (each / seconds for each in sums)
    return Stretch(
        start=start.at,
        seconds=seconds,
        running=running,
        queued=queued,
        kv_cache_usage=None if end.kv_cache_usage is None else kv,
        generated=None if generated is None else generated / seconds,
        computed=None if computed is None else computed / seconds,
        deferred=deferred,
    )
