# SPDX-License-Identifier: Apache-2.0
"""
What a server reported over time, all its engines together, whichever source it came from.

A recording, a finished log and a Prometheus give the same values, so that one analysis reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Event, Memory
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch_parsers.scrape import Histogram


GENERATED = "generation_tokens_total"
PROMPTED = "prompt_tokens_total"
COMPUTED = "prompt_tokens_computed"
FINISHED = "requests_finished_total"
REJECTIONS = "admission_rejections_total"
HTTP_REQUESTS = "http_requests_total"
DRAFTS = "spec_decode_drafts_total"
DRAFTED = "spec_decode_draft_tokens_total"
ACCEPTED = "spec_decode_accepted_tokens_total"
GPU_MEMORY = "gpu_memory_used_ratio"
"""How much of the memory of the server's fullest GPU is in use, by all processes: a gauge that is no series."""


class EnergyReading(NamedTuple):
    """Joules of each GPU since its driver was loaded, if it counts; of the `unsplit` the server's part is unknown."""

    at: float
    joules: Mapping[str, float | None]
    unsplit: frozenset[str] = frozenset()


class Point(NamedTuple):
    """
    A server at one moment, all engines together, by the names of the series without their prefix.

    `gauges` are fresh ones; counters keep their values, with the value of a label after a dot. What is no series has
    its name of `metric_names`. A point that is not `is_fresh` repeats the one before. `process` counts the server's
    starts.
    """

    at: float
    state: EngineState
    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    position_acceptance: tuple[float | None, ...] = ()
    process: int = 0
    is_fresh: bool = True
    energy: EnergyReading | None = None


class Life(NamedTuple):
    """What a server was from one start to the next; `config` and `facts` as in `ServerHistory`."""

    model: str | None = None
    version: str | None = None
    config: Mapping[str, str] = {}
    facts: Mapping[str, float] = {}
    hardware: Mapping[str, str] = {}
    memory: Memory | None = None
    are_all_flags_known: bool = False
    is_log_known: bool = True
    """Whether its log is the one that was read: else only what /metrics reports is known."""

    def is_configured_as(self, other: Life) -> bool:
        """Return whether both lives have one model, version and configuration."""
        return self[:3] == other[:3]


class ServerHistory(NamedTuple):
    """
    One server over time, as it was at the end.

    `config` is by vLLM's flags without dashes, `facts` by series without their prefix.
    """

    source: str
    name: str
    model: str | None
    version: str | None
    config: Mapping[str, str]
    facts: Mapping[str, float]
    points: tuple[Point, ...]
    events: tuple[Event, ...] = ()
    hardware: Mapping[str, str] = {}
    has_metrics: bool = True
    """Whether its counters are /metrics': those of a log alone are sums of what its lines print."""
    warnings: tuple[str, ...] = ()
    """Sentences on what its source cannot show."""
    server: str | None = None
    """The label `server` of its series, if it was read from a Prometheus."""
    engine_generation: str | None = None
    """``V0`` or ``V1``, if that is known."""
    are_all_flags_known: bool = False
    """Whether a flag that is not there is not set: its command line is known, or what vLLM made of all its flags."""
    cost_per_hour: float | None = None
    """What the server costs in an hour, in any currency, if its source says so."""
    memory: Memory | None = None
    failures: frozenset[str] = frozenset()
    """The kinds of failures in its log, also of those from before the first reading, which are no events."""
    config_since: float = 0.0
    """Since when it has run with `config`: before it a flag had another value, or 0."""
    lives: Mapping[int, Life] = {}
    """What is known of each of its lives, by the number that points have as `process`."""

    def life(self, process: int) -> Life:
        """Return what is known of a life: without `lives` there was only one."""
        known = (self.model, self.version, self.config, self.facts, self.hardware, self.memory)
        last = Life(*known, self.are_all_flags_known)
        return self.lives.get(process, Life()) if self.lives else last


def labelled(counter: str, value: str) -> str:
    """Return the name that a point has for a counter with one value of its label."""
    return f"{counter}.{value}"


def typical_step(points: Sequence[Point]) -> float:
    """
    Return the usual seconds between two points that have values of their own; 0 if there are not two.

    A log is silent while nothing happens: of several short tests every second step may have such a silence in it.
    """
    steps = sorted(later.at - earlier.at for earlier, later in pairwise(point for point in points if point.is_fresh))
    return steps[len(steps) // 4] if steps else 0.0


class Growth:
    """
    What was counted between the first and the last of some points.

    A counter that falls was reset, and what it counts afterwards is added, as Prometheus does.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = [point for point in points if point.counters]

    @property
    def seconds(self) -> float:
        """The time between the first and the last point that have counters; 0 if there are not two."""
        return self._points[-1].at - self._points[0].at if self._points else 0.0

    def counter(self, name: str) -> float | None:
        """Return how much a counter grew; `None` if the last point does not have it, or there are not two points."""
        if len(self._points) < 2 or name not in self._points[-1].counters:
            return None
        # Some counters appear with what they count first.
        values = [point.counters.get(name, 0.0) for point in self._points]
        return sum(new - old if new >= old else new for old, new in pairwise(values))

    def labelled(self, prefix: str) -> dict[str, float]:
        """Return how much each counter of one name grew, by its label's value."""
        names = self._points[-1].counters if self._points else ()
        start = labelled(prefix, "")
        grown = {name.removeprefix(start): self.counter(name) for name in names if name.startswith(start)}
        return {label: value for label, value in grown.items() if value is not None}

    def ratio(self, part: str, whole: str) -> float | None:
        """Return the ratio of two counters' growth, `None` if the whole did not grow."""
        some, every = self.counter(part), self.counter(whole)
        # Counters are read one after the other while they grow: a part may be ahead of the whole.
        return None if some is None or not every else min(some / every, 1.0)

    def histogram(self, name: str) -> Histogram | None:
        """Return what was observed, `None` if nothing was, or buckets changed."""
        histograms = [point.histograms[name] for point in self._points if name in point.histograms]
        if len(self._points) < 2 or len({histogram.bounds for histogram in histograms}) != 1:
            return None
        nothing = histograms[0]._replace(counts=(0.0,) * len(histograms[0].bounds), sum=0.0)
        observed = nothing
        # A histogram that only appears later has counted from 0.
        for old, new in pairwise([self._points[0].histograms.get(name, nothing), *histograms]):
            observed = added(observed, new if new.observations < old.observations else _difference(new, old))
        return observed if observed.observations > 0 else None


def added(one: Histogram, other: Histogram) -> Histogram:
    """Return two histograms with the same bounds as one."""
    counts = tuple(left + right for left, right in zip(one.counts, other.counts, strict=True))
    return Histogram(one.bounds, counts, one.sum + other.sum, one.is_estimate or other.is_estimate)


def _difference(new: Histogram, old: Histogram) -> Histogram:
    counts = tuple(max(after - before, 0.0) for before, after in zip(old.counts, new.counts, strict=True))
    return Histogram(new.bounds, counts, max(new.sum - old.sum, 0.0), new.is_estimate)


def rate(count: float | None, seconds: float) -> float | None:
    """Return a count per second; `None` if it or its time is not known."""
    return None if count is None or seconds <= 0 else count / seconds


def rounded(count: float | None) -> int | None:
    """Return a count as a whole number, if it is known."""
    return None if count is None else round(count)
