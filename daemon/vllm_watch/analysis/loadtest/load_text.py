# SPDX-License-Identifier: Apache-2.0
"""What a benchmark was, and what it sent, in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.analysis.loadtest.model import Endpoint, Load, RateGrowth
from vllm_watch.analysis.loadtest.number_texts import count, limit


BENCHMARK_KINDS: Mapping[Endpoint, str] = {
    "online": "requests to a server",
    "throughput": "throughput without a server",
    "latency": "latency of one batch",
    "pooling": "requests to a server with a pooling model",
}


def load_text(load: Load) -> str | None:
    """
    Return how much was sent, `None` if that is not known.

    Such as ``4 requests/s``, ``1 to 8 requests/s (linear)``, ``8 at once``, ``all at once``.
    """
    rate = load.request_rate
    parts = [] if rate is None or rate == "inf" else [f"{limit(float(rate))} requests/s"]
    parts += [] if load.ramp_up is None else [_growth_text(load.ramp_up)]
    if load.max_concurrency is not None:
        parts.append(f"{'at most ' if parts else ''}{count(load.max_concurrency)} at once")
    if not parts and rate == "inf":
        return "all at once"
    return ", ".join(parts) or None


def _growth_text(growth: RateGrowth) -> str:
    if growth.start is None or growth.end is None:
        return f"a growing rate ({growth.strategy})"
    return f"{limit(growth.start)} to {limit(growth.end)} requests/s ({growth.strategy})"
