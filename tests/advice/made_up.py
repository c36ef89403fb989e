# SPDX-License-Identifier: Apache-2.0
"""Servers that are made up, second by second: for what no recording shows."""

from __future__ import annotations

import math

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch.analysis.loadtest.server_history import Point, ServerHistory
from vllm_watch_parsers.scrape import Histogram


START = 1_700_000_000.0
STEP = 5.0
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
STEP_BOUNDS = (1.0, 8.0, 16.0, 64.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, math.inf)
BATCH = {"max-num-seqs": "16"}
FACTS = {"max_running_requests": 16.0}


class Part(NamedTuple):
    """Some time in which a server does one thing: gauges, what counters grow by each second, and what is observed."""

    seconds: float
    gauges: dict
    rates: Mapping = MappingProxyType({})
    observed: Mapping = MappingProxyType({})
    """By histogram: values, each with how often it is seen a second."""
    state: str = "serving"


def load(running=16.0, waiting=0.0, kv=0.2):
    """Return the gauges of a load."""
    return {"requests_running": running, "requests_waiting": waiting, "kv_cache_usage_ratio": kv}


class Counted:
    """Counts what is observed in a histogram."""

    def __init__(self, bounds):
        self.bounds, self.counts, self.sum = bounds, [0.0] * len(bounds), 0.0

    def add(self, values, seconds):
        """Count values, each as often a second as is given, for so many seconds."""
        for value, often in values.items():
            self.sum += value * often * seconds
            for place, bound in enumerate(self.bounds):
                self.counts[place] += often * seconds * (value <= bound)

    def histogram(self):
        """Return what was counted."""
        return Histogram(self.bounds, tuple(self.counts), self.sum)


def points(parts):
    """Return the points of a server that does one thing after the other."""
    at, counters, histograms, found = START, {}, {}, []
    for part in parts:
        for name in part.rates:
            counters.setdefault(name, 0.0)
        for name in part.observed:
            histograms.setdefault(name, Counted(STEP_BOUNDS if name.endswith("_tokens") else BOUNDS))
    found.append(Point(at, "idle", {}, dict(counters), {n: each.histogram() for n, each in histograms.items()}))
    for part in parts:
        for _ in range(round(part.seconds / STEP)):
            at += STEP
            for name, rate in part.rates.items():
                counters[name] += rate * STEP
            for name, values in part.observed.items():
                histograms[name].add(values, STEP)
            seen = {name: each.histogram() for name, each in histograms.items()}
            found.append(Point(at, part.state, dict(part.gauges), dict(counters), seen))
    return tuple(found)


def server(*parts, config=None, facts=None, device="cuda", name="made-up", **more):
    """Return the history of such a server."""
    known = {"version": "0.32.0", "model": "m", **more}
    return ServerHistory(
        source=f"{name}.jsonl",
        name=name,
        config=BATCH if config is None else {**BATCH, **config},
        facts=FACTS if facts is None else {**FACTS, **facts},
        points=points(parts),
        hardware={} if device is None else {"device": device},
        **known,
    )
