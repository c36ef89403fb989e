# SPDX-License-Identifier: Apache-2.0
"""
What a capacity is based on, and every reason why none is known: what each means, in words that an operator can act on.

The values of the labels `basis` and `reason`, and what the status page, `once` and the dashboards say derive from these
tables. A report says the same with its own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


CapacityBasis = Literal["saturated", "bench", "curve"]

CAPACITY_BASES: Mapping[CapacityBasis, str] = {
    "saturated": "measured while requests waited and the batch or the KV cache was full",
    "bench": "measured by a benchmark, from the configuration",
    "curve": "estimated from tokens per second by running requests",
}
"""What each basis means; the best is the first."""

CapacityReason = Literal[
    "no_metrics", "limit_unknown", "limits_differ", "too_few_loads", "too_light", "preempted", "lengths_differ",
    "prefix_hits_differ", "acceptance_differs", "no_curve", "curve_uncertain",
]  # fmt: skip

CAPACITY_UNKNOWN: Mapping[CapacityReason, str] = {
    "no_metrics": "Capacity is estimated from /metrics, which is not read, or has no running engine.",
    "limit_unknown": (
        "Neither the log, the command line nor /metrics shows how many requests run at most. Start vLLM with "
        "--max-num-seqs."
    ),
    "limits_differ": (
        "By its size the KV cache holds another number of these requests than by what is used of it: they differ by "
        "more than 30 %."
    ),
    "too_few_loads": (
        "The engine has not yet worked for five minutes without a queue at four levels of running requests, each about "
        "twice the one before."
    ),
    "too_light": "The engine has not yet run 40 % of the requests that fit.",
    "preempted": "Requests were preempted in too much of the time that was seen.",
    "lengths_differ": "The lengths of the requests change too much: fewer than five minutes have alike ones.",
    "prefix_hits_differ": "The share of prompt tokens from the prefix cache changes too much.",
    "acceptance_differs": "The acceptance of drafts changes too much.",
    "no_curve": "Throughput does not flatten as more requests run, or varies too much for a curve.",
    "curve_uncertain": "What was seen varies too much, and is too far from the limit, for a curve up to it.",
}
"""Why there is no estimate, in sentences."""
