# SPDX-License-Identifier: Apache-2.0
"""The capacity of an engine on each basis: seen, from a benchmark, and by a curve; or why none is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch.daemon.capacity.curve import NoCurve
from vllm_watch.daemon.capacity.estimates import CapacityRange, curve_range, saturated_range
from vllm_watch.daemon.capacity.tracker import CapacityTracker
from vllm_watch.daemon.catalog.codes import CapacityBasis, CapacityReason


class EngineCapacity(NamedTuple):
    """The capacities by basis, the best first; `unknown` is why there is none."""

    ranges: Mapping[CapacityBasis, CapacityRange] = MappingProxyType({})
    unknown: CapacityReason | None = None


def engine_capacity(
    tracker: CapacityTracker | None, facts: Mapping[str, float], bench: CapacityRange | None, engines: float
) -> EngineCapacity:
    """
    Return the capacity of an engine.

    Args:
        tracker: What was learnt of it; `None` without scrapes of it.
        facts: What it was started with.
        bench: What a benchmark has measured of all engines of the server together.
        engines: How many those are.
    """
    ranges: dict[CapacityBasis, CapacityRange] = {}
    reason: CapacityReason | None = "no_metrics"
    learnt = None if tracker is None else tracker.learnt(facts)
    if learnt is not None and learnt.saturated is not None:
        ranges["saturated"] = saturated_range(learnt.saturated)
    if bench is not None:
        ranges["bench"] = bench.part(engines)
    if learnt is not None:
        curve = learnt.curve
        if isinstance(curve, NoCurve):
            reason = curve.reason
        else:
            ranges["curve"] = curve_range(curve)
    return EngineCapacity(ranges, None if ranges else reason)
