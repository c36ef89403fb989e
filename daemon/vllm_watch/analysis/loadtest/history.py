# SPDX-License-Identifier: Apache-2.0
"""
What a server reported over time, all its engines together, whichever source it came from.

A recording, a finished log and a Prometheus give the same values, so that one analysis reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.analysis.loadtest.model import Event
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch_parsers.scrape import Histogram


class EnergyReading(NamedTuple):
    """
    What the GPUs of a server have used until a moment.

    Args:
        at: When they were read.
        joules: By GPU, since its driver was loaded; `None` of one that was not read, or does not count.
        unsplit: The GPUs of which nobody knows what the server used: they are shared with another one, or divided.
    """

    at: float
    joules: Mapping[str, float | None]
    unsplit: frozenset[str] = frozenset()


class Point(NamedTuple):
    """
    A server at one moment.

    `gauges`, `counters` and `histograms` are by the names of the series without their prefix, summed over the engines;
    ratios are means. `gauges` are present only while they are fresh; counters keep their values. A counter with a label
    has the label's value after a dot (``requests_finished_total.stop``); those that are no series have the names of
    `metric_names` (``prefix_cache_hits``). `is_fresh` is whether this point has new values of its own: the others
    repeat what was there before. `process` counts the server's starts. `energy` is the last that is known of its GPUs.
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


def labelled(counter: str, value: str) -> str:
    """Return the name that a point has for a counter with one value of its label."""
    return f"{counter}.{value}"


class ServerHistory(NamedTuple):
    """
    One server over time: its points in order, what is known of it, and what happened.

    `config` is by vLLM's flags without dashes; `facts` are numbers by the names of the series without their prefix.
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
    is_resolved: bool = False
    """Whether what vLLM made of all its flags is known: a flag that is not there is then not set."""
    is_given: bool = False
    """Whether its command line is known: a flag that is not there was not given."""
    cost_per_hour: float | None = None
    """What the server costs in an hour, in any currency, if its source says so."""
    config_since: float = 0.0
    """Since when it has run with `config`: before it a flag had another value, or 0."""
