# SPDX-License-Identifier: Apache-2.0
"""
What a server does over time, by its story: gauges of a moment, and counters and histograms that grow.

Rates and times are those of a phase. Counters are whole numbers, as vLLM's are: a request that is half finished is not
counted. Of requests that finish, and of first tokens, the times of the phase are observed.
"""

from __future__ import annotations

import math
import re

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

from tests.incidents.story import Gpu, Phase, Story, Swing, Value
from tests.support.corpus import bodies


HEALTHY: Mapping[str, float] = {
    "running": 4,
    "waiting": 0,
    "deferred": 0,
    "kv": 0.2,
    "awake": 1,
    # Each second.
    "computed": 400,
    "cached": 100,
    "fetched": 0,
    "generated": 200,
    "steps": 50,
    "finished": 1,
    "cut": 0.1,
    "aborted": 0,
    "errors": 0,
    "given_up": 0,
    "refused": 0,
    "preemptions": 0,
    # Of the drafts of speculative decoding, if the release's body has them; drafts each second.
    "acceptance": 0.7,
    "drafts": 80,
    # Each request's seconds; the time that a scrape takes.
    "queue": 0.01,
    "first_token": 0.2,
    "token_gap": 0.02,
    "prefill": 0.19,
    "decode": 3.8,
    "whole": 4.0,
    "scrape_seconds": 0.01,
}
"""A server under a light load: `cut` are those of the finished that reach their limit of tokens."""

GAUGES = ("running", "waiting", "deferred", "kv", "awake", "scrape_seconds")
COUNTED = (
    "computed", "cached", "fetched", "generated", "steps", "finished", "cut", "aborted", "errors", "given_up",
    "refused", "preemptions", "drafts",
)  # fmt: skip
TIMES = {
    "queue": "finished",
    "prefill": "finished",
    "decode": "finished",
    "whole": "finished",
    "first_token": "finished",
    "token_gap": "outputs",
}
"""
The times of requests, and which counter says how many have one more observation.

Tokens of one step are one output, whatever drafts made of it, and a request's first one follows no gap.
"""


@cache
def positions(release: str) -> int:
    """Return how many tokens a draft has in the release's body, 0 without speculative decoding."""
    return len(re.findall(r'accepted_tokens_per_pos_total\{engine="0"', bodies(release)["metrics_1.txt"].decode()))


@dataclass
class Totals:
    """What a process has counted since its start."""

    started: float
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*COUNTED, "outputs"), 0.0))
    accepted: float = 0.0
    """Drafted tokens that were accepted, of one position."""
    observed: dict[str, Counter[float]] = field(default_factory=lambda: {name: Counter() for name in TIMES})
    """How often each time was observed, to the millisecond."""

    def count(self, name: str) -> float:
        """Return a counter as it is shown."""
        return math.floor(self.counters[name] + 1e-6)


class Moment(NamedTuple):
    """One scrape: when, in seconds since the beginning, what holds, and what was counted."""

    at: float
    phase: Phase
    gauges: Mapping[str, float]
    totals: Totals
    lines: Mapping[str, float]
    gpu: Gpu | None
    gpu_values: Mapping[str, float]
    probe: float | Literal["timeout", "none"] | None
    kv_blocks: int
    is_first_of_phase: bool


def moments(story: Story) -> Iterator[Moment]:
    """Yield what there is to see at each scrape; the totals grow from one to the next."""
    usual: Mapping[str, Value] = {**HEALTHY, **story.usual}
    values, unknown = dict(usual), usual.keys() - HEALTHY.keys()
    phases = (Phase(seconds=story.before), *story.then)
    totals, start, at, blocks = Totals(-3600.0), 0.0, 0.0, 10_000
    lines, gpu_values = _Samples(), _Samples()
    gpu, probe = story.gpu, story.probe
    for phase in phases:
        gpu, probe = phase.gpu or gpu, probe if phase.probe is None else phase.probe
        values |= {**_presets(usual)[phase.does], **phase.values}
        unknown |= values.keys() - HEALTHY.keys()
        if unknown:
            raise ValueError(f"{story.title}: unknown values: {', '.join(sorted(unknown))}")
        if phase.starts:
            totals, lines = Totals(start), _Samples(lines.values)
        lines.values |= phase.lines
        gpu_values.values |= gpu.values if gpu is not None else {}
        blocks = phase.kv_blocks or blocks
        is_first = True
        while at < start + phase.seconds:
            share = (at - start, phase.seconds)
            now = {name: _at(value, *share) for name, value in values.items()}
            drafted = now["drafts"] * now["acceptance"] * positions(story.release)
            _add(totals, {**now, "outputs": max(now["generated"] - drafted - now["finished"], 0.0)}, story.every)
            samples = lines.shown(*share, story.every)
            of_gpu = gpu_values.shown(*share, story.every)
            yield Moment(at, phase, now, totals, samples, gpu, of_gpu, probe, blocks, is_first)
            is_first = False
            at += story.every
        # A value that moved through a phase stays where it ended.
        values = {name: value[1] if isinstance(value, tuple) else value for name, value in values.items()}
        start += phase.seconds


class _Samples:
    """Samples by their names and labels: totals, which grow, and others."""

    def __init__(self, values: Mapping[str, Value] = {}) -> None:
        self.values: dict[str, Value] = dict(values)
        self._totals: Counter[str] = Counter()

    def shown(self, at: float, whole: float, every: float) -> Mapping[str, float]:
        """Return their values so many seconds after the beginning of a phase, and count on."""
        now = {name: _at(value, at, whole) for name, value in self.values.items()}
        totals = {name for name in now if re.match(r"[\w:]+_(?:total|count|sum|bucket)\b", name)}
        for name in totals:
            self._totals[name] += now[name] * every
        return {name: math.floor(self._totals[name] + 1e-6) if name in totals else now[name] for name in now}


def _presets(usual: Mapping[str, Value]) -> Mapping[str | None, Mapping[str, Value]]:
    still = dict.fromkeys(COUNTED, 0.0)
    idle = {**still, "running": 0.0, "waiting": 0.0, "deferred": 0.0, "kv": 0.0}
    return {None: {}, "usual": usual, "nothing": still, "idle": idle}


def _at(value: Value, seconds: float, whole: float) -> float:
    if isinstance(value, Swing):
        low, high = value.swing
        return low + (high - low) * (0.5 - 0.5 * math.cos(2 * math.pi * seconds / value.seconds))
    if isinstance(value, tuple):
        return value[0] + (value[1] - value[0]) * min(seconds / whole, 1.0)
    return value


def _add(totals: Totals, now: Mapping[str, float], seconds: float) -> None:
    before = {name: totals.count(name) for name in set(TIMES.values())}
    for name in totals.counters:
        totals.counters[name] += now[name] * seconds
    totals.accepted += now["drafts"] * now["acceptance"] * seconds
    for name, counter in TIMES.items():
        totals.observed[name][round(now[name], 3)] += int(totals.count(counter) - before[counter])
