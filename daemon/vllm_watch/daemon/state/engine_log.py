# SPDX-License-Identifier: Apache-2.0
"""What the log reports of one engine: how its lines become readings, and whether it makes progress."""

from __future__ import annotations

import math

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from vllm_watch.daemon.state.sleep_reports import TokenSpan
from vllm_watch.daemon.state.snapshot import Reading
from vllm_watch.daemon.state.window import LastingQueue
from vllm_watch_parsers.events import (
    AGGREGATED,
    DEFAULT_INTERVAL,
    AchievedWork,
    DiffusionDecoding,
    EngineStats,
    KvTransfers,
    SpecDecoding,
)
from vllm_watch_parsers.exposition import DEFAULT_ENGINE
from vllm_watch_parsers.kv_transfer import FETCHING, KV_FETCH_STAGES, KvKey


CompanionLine = AchievedWork | DiffusionDecoding | SpecDecoding

_RATES: dict[type[CompanionLine], dict[str, str]] = {
    AchievedWork: {
        "achieved_flops_per_second": "flops_per_second",
        "achieved_memory_bytes_per_second": "memory_bytes_per_second",
    },
    DiffusionDecoding: {"diffusion_committed_tokens_per_second": "committed_tokens_per_second"},
    SpecDecoding: {
        "spec_decode_accepted_tokens_per_second": "accepted_tokens_per_second",
        "spec_decode_drafted_tokens_per_second": "drafted_tokens_per_second",
    },
}
"""The series that are rates, and the fields of the line that have them."""

_MEANS: dict[type[CompanionLine], dict[str, str]] = {
    AchievedWork: {},
    DiffusionDecoding: {"diffusion_tokens_per_step": "tokens_per_denoising_step"},
    SpecDecoding: {
        "spec_decode_mean_acceptance_length": "mean_acceptance_length",
        "spec_decode_acceptance_ratio": "acceptance_ratio",
        "spec_decode_system_efficiency_ratio": "system_efficiency",
    },
}
"""The series that no pause dilutes."""


class Companion(NamedTuple):
    """
    The last line of one kind that vLLM prints below the statistics: when it was printed, and its values by series.

    vLLM divides what such a line counts by the time since the last one, and prints none while there is nothing to
    count. So the first after a pause, or after the start, is diluted by it: only a line that follows one of the
    interval before is about its own interval.
    """

    at: float
    line: CompanionLine
    values: Mapping[str, float]


def companion(line: CompanionLine, at: float, before: Companion | None, interval_start: float) -> Companion:
    """
    Return what a line says of its interval.

    Args:
        line: The line.
        at: When it was printed.
        before: The one of its kind before it.
        interval_start: When the engine printed its last statistics but one.
    """
    follows = before is not None and before.at >= interval_start
    shown = {**_MEANS[type(line)], **(_RATES[type(line)] if follows else {})}
    values = {name: getattr(line, field) for name, field in shown.items()}
    return Companion(at, line, {name: value for name, value in values.items() if value is not None})


MAX_INTERVAL = 300.0
INTERVALS_UNTIL_STALE = 3

_KEPT = 5
"""How many lines it remembers the distances of."""

_SEVERAL = 2

_HELD_WHILE_IDLE = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_running",
    "requests_waiting",
    "requests_deferred",
    "requests_swapped",
    "kv_cache_usage_ratio",
    "cpu_kv_cache_usage_ratio",
)
"""What the silence of an idle engine implies."""
_LOGGED = (
    *_HELD_WHILE_IDLE,
    "prefix_cache_hit_ratio",
    "cpu_prefix_cache_hit_ratio",
    "external_prefix_cache_hit_ratio",
    "mm_cache_hit_ratio",
)
"""The fields of a statistics line that are series of the same names."""

GAUGES_OF_DRAFTS = (_RATES[SpecDecoding].keys() | _MEANS[SpecDecoding]) - {"spec_decode_system_efficiency_ratio"}
"""The series that a line on drafts has in every release."""

GAUGES_OF_FIRST_LINE = frozenset(
    {
        "prompt_tokens_per_second",
        "generation_tokens_per_second",
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
        "prefix_cache_hit_ratio",
    }
)
"""The series that lines of statistics have in the releases that are usual, and that follow from some of them."""

_of_idle: Callable[[EngineStats], tuple[float | None, ...]] = attrgetter(*_HELD_WHILE_IDLE)
_of_stats: Callable[[EngineStats], tuple[float | None, ...]] = attrgetter(*_LOGGED)


@dataclass(slots=True)
class EngineLog:
    """The last statistics of one engine."""

    stats: EngineStats
    stats_at: float
    stands_since: float
    """Since when it can have stood still: its last line with tokens, or the first one of its present work."""
    moved_at: float | None = None
    """When it last printed tokens since its server was started, as far as the log was read."""
    prompted_from: float | None = None
    """Its last prompt tokens came after this moment: the start of their line's interval."""
    kv_gauges: tuple[tuple[KvKey, float], ...] = ()
    """What its last line on KV transfers has of the present."""
    kv_at: float = 0.0
    gaps: tuple[float, ...] = ()
    interval: float = DEFAULT_INTERVAL
    """
    How often this engine prints, as far as can be seen: an idle one pauses, none prints more often.

    A line that was read late makes one gap too short: of several the shortest is left out.
    """
    before_at: float = math.inf
    """When the line of statistics before the last one was printed."""
    queue: LastingQueue = field(default_factory=LastingQueue)
    companions: dict[type[CompanionLine], Companion] = field(default_factory=dict)
    """The last line of each kind that is printed below the statistics."""

    @classmethod
    def first(cls, at: float, stats: EngineStats) -> EngineLog:
        """Return what the first line of statistics reports."""
        engine = cls(stats, at, at)
        engine._note_line(at, had_work=False)
        return engine

    def add_stats(self, at: float, stats: EngineStats) -> None:
        """Take in the next line of statistics."""
        if at > self.stats_at:
            self.gaps = (*self.gaps, at - self.stats_at)[-_KEPT:]
            gaps = sorted(self.gaps)
            self.interval = min(max(gaps[len(gaps) > _SEVERAL], 1.0), MAX_INTERVAL)
        if stats.requests_swapped is not None:  # V0 prints its hit ratios on a line of their own.
            stats = stats._replace(
                prefix_cache_hit_ratio=self.stats.prefix_cache_hit_ratio,
                cpu_prefix_cache_hit_ratio=self.stats.cpu_prefix_cache_hit_ratio,
            )
        had_work = self._has_to_compute
        self.before_at = self.stats_at
        self.stats, self.stats_at = stats, at
        self._note_line(at, had_work=had_work)

    def add_hit_ratios(self, ratios: EngineStats) -> None:
        """Take in V0's line of hit ratios, which belongs to the line of statistics before it."""
        self.stats = self.stats._replace(
            prefix_cache_hit_ratio=ratios.prefix_cache_hit_ratio,
            cpu_prefix_cache_hit_ratio=ratios.cpu_prefix_cache_hit_ratio,
        )

    def add_companion(self, at: float, line: CompanionLine) -> None:
        """Take in a line that is printed below the statistics."""
        self.companions[type(line)] = companion(line, at, self.companions.get(type(line)), self.before_at)

    def add_transfers(self, at: float, transfers: KvTransfers) -> None:
        """Take in a line on KV transfers."""
        self.kv_gauges, self.kv_at = transfers.gauges, at

    @property
    def has_work(self) -> bool:
        """Whether requests were running or waiting."""
        return bool((self.stats.requests_running or 0) + (self.stats.requests_waiting or 0))

    @property
    def moves(self) -> bool:
        """Whether there were tokens in the line's interval."""
        return bool((self.stats.prompt_tokens_per_second or 0) + (self.stats.generation_tokens_per_second or 0))

    @property
    def served(self) -> TokenSpan | None:
        """When the last tokens were computed."""
        if self.moved_at is None:
            return None
        return TokenSpan(self.moved_at - DEFAULT_INTERVAL, self.moved_at, self.prompted_from)

    def is_fresh(self, now: float) -> bool:
        """Whether the line is recent enough to be the present."""
        return now - self.stats_at <= INTERVALS_UNTIL_STALE * max(self.interval, DEFAULT_INTERVAL)

    def ended_idle(self) -> bool:
        """Whether the line is the one after which an idle engine prints nothing."""
        return not self.has_work and not self.moves

    def ended_still(self) -> bool:
        """Whether the line is the one after which a hanging engine prints nothing: work, and no token."""
        return self._has_to_compute and not self.moves

    def gauges(self, now: float, *, keeps_stale: bool, ahead: float) -> dict[str, Reading]:
        """
        Return the gauges by the last lines: fresh ones, and those that the silence of an idle engine implies.

        Args:
            now: The moment.
            keeps_stale: Whether nothing is dropped for its age.
            ahead: How many seconds the wall clock is ahead of the lines' times: readings have the wall clock's.
        """
        is_fresh, at = self.is_fresh(now) or keeps_stale, self.stats_at + ahead
        readings: dict[str, Reading] = {}
        if is_fresh:
            readings = _readings(_LOGGED, _of_stats(self.stats), at)
        elif self.ended_idle():
            readings = _readings(_HELD_WHILE_IDLE, _of_idle(self.stats), at)
        # An idle or a hanging engine prints none of these lines; the last ones are not about the present.
        for line in self.companions.values():
            if self._is_about_present(line.at, now, keeps_stale=keeps_stale):
                readings.update({name: Reading(value, line.at + ahead, "log") for name, value in line.values.items()})
        return readings

    def position_acceptance(self, now: float, *, keeps_stale: bool, ahead: float) -> tuple[Reading | None, ...]:
        """Return the share of drafts accepted at each position, `None` at one that the line prints as ``nan``."""
        last = self.companions.get(SpecDecoding)
        if last is None or not isinstance(last.line, SpecDecoding):
            return ()
        if not self._is_about_present(last.at, now, keeps_stale=keeps_stale):
            return ()
        ratios = last.line.position_acceptance_ratio or ()
        if all(ratio is None for ratio in ratios):
            return ()
        return tuple(None if ratio is None else Reading(ratio, last.at + ahead, "log") for ratio in ratios)

    def kv_readings(self, now: float, *, keeps_stale: bool, ahead: float) -> dict[KvKey, Reading]:
        """Return what its KV connectors do by the last lines: an idle engine's connectors print nothing."""
        if not keeps_stale and not self.is_fresh(now):
            return {}
        readings = {
            KvKey(FETCHING, (stage,)): Reading(float(count), self.stats_at + ahead, "log")
            for stage, count in zip(KV_FETCH_STAGES, self.stats.kv_fetch or (), strict=False)
        }
        if self._is_about_present(self.kv_at, now, keeps_stale=keeps_stale):
            readings.update({series: Reading(value, self.kv_at + ahead, "log") for series, value in self.kv_gauges})
        return readings

    def _is_about_present(self, at: float, now: float, *, keeps_stale: bool) -> bool:
        """Return whether a line below the statistics belongs to the last ones, and those are fresh."""
        return keeps_stale or (self.is_fresh(now) and at >= self.stats_at)

    @property
    def _has_to_compute(self) -> bool:
        """Whether there is something to compute: a request that waits for something remote does not count."""
        stats = self.stats
        return bool(stats.requests_running) or (stats.requests_waiting or 0) > (stats.requests_deferred or 0)

    def _note_line(self, at: float, *, had_work: bool) -> None:
        """Take in what a line reports; `had_work` is whether there was something to compute at the line before."""
        stats = self.stats
        self.queue.note(at, stats.requests_running or 0, stats.requests_waiting or 0, stats.requests_deferred or 0)
        if self.moves:
            self.moved_at = at
        if self.moves or not (had_work and self._has_to_compute):
            self.stands_since = at
        if self.stats.prompt_tokens_per_second:
            self.prompted_from = at - DEFAULT_INTERVAL


def _readings(names: Iterable[str], values: Iterable[float | None], at: float) -> dict[str, Reading]:
    pairs = zip(names, values, strict=True)
    return {name: Reading(float(value), at, "log") for name, value in pairs if value is not None}


def name_of(stats: EngineStats) -> str:
    """Return the name of the engine that a line of statistics is about."""
    return AGGREGATED if stats.is_rust else stats.engine or DEFAULT_ENGINE
