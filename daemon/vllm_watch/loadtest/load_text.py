# SPDX-License-Identifier: Apache-2.0
"""What a benchmark was, and what it sent, in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.loadtest.model import Endpoint, Load
from vllm_watch.loadtest.number_texts import count, limit


BENCHMARK_KINDS: Mapping[Endpoint, str] = {
    "online": "requests to a server",
    "throughput": "throughput without a server",
    "latency": "latency of one batch",
    "pooling": "requests to a server with a pooling model",
}


def load_text(load: Load) -> str | None:
    """Return how much was sent: ``4 requests/s``, ``8 at once``, ``all at once``; `None` if that is not known."""
    rate = load.request_rate
    parts = [] if rate is None or rate == "inf" else [f"{limit(float(rate))} requests/s"]
    if load.max_concurrency is not None:
        parts.append(f"{'at most ' if parts else ''}{count(load.max_concurrency)} at once")
    if not parts and rate == "inf":
        return "all at once"
    return ", ".join(parts) or None
