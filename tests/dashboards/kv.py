# SPDX-License-Identifier: Apache-2.0
"""
Made-up KV connectors of the recorded pair of servers, whose own connector measures nothing.

The prefill server's blocks expire now and then; the decode server reads by NIXL and keeps blocks in tiers. Nothing here
makes an alert on them fire for long, but for failures, which are wanted on the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.alerts.replay import STEP

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition.text_format import label_text


_PREFILL: dict[tuple[str, ...], float] = {
    ("kv_transfer_bytes_total", "mooncake", "out"): 2e6,
    ("kv_transfer_seconds_total", "mooncake", "out"): 0.02,
    ("kv_transfers_total", "mooncake", "out"): 1.0,
    ("kv_transfer_failures_total", "mooncake", "transfer"): 0.02,
    ("kv_expired_requests_total", "mooncake"): 0.03,
}
_DECODE: dict[tuple[str, ...], float] = {
    ("kv_transfer_bytes_total", "nixl", "in"): 3e6,
    ("kv_transfer_seconds_total", "nixl", "in"): 0.03,
    ("kv_transfers_total", "nixl", "in"): 2.0,
    ("kv_transfer_failures_total", "nixl", "transfer"): 0.025,
    ("kv_notifications_after_expiry_total", "nixl"): 0.01,
    ("kv_transfer_bytes_total", "kv_offload", "out"): 1e6,
    ("kv_transfers_total", "kv_offload", "out"): 0.9,
    ("kv_transfers_skipped_total", "kv_offload", "no_space"): 0.05,
    ("kv_transfers_skipped_total", "kv_offload", "backpressure"): 0.03,
    ("kv_tier_bytes_total", "kv_offload", "fs", "in"): 4e5,
    ("kv_tier_bytes_total", "kv_offload", "fs", "out"): 5e5,
    ("kv_tier_queries_total", "kv_offload", "fs"): 4.0,
    ("kv_tier_hits_total", "kv_offload", "fs"): 1.0,
}
"""Series with the values of their labels behind those of the engine, and how much each grows in a second."""

_NOW: dict[tuple[str, ...], float] = {("kv_offload_usage_ratio", "kv_offload", "cpu"): 0.3}

_GROWTH = {"prefill": _PREFILL, "decode": _DECODE}
_OF_ENGINE = ("Qwen3.6-27B", "0")


def kv_series(name: str, steps: int) -> dict[str, list[str]]:
    """Return the series of a recording's KV connectors; none if it has none."""
    found = {
        key: [
            repr(rate * STEP * step if "_seconds_" in key else float(int(rate * STEP * step))) for step in range(steps)
        ]
        for key, rate in _named(name, _GROWTH.get(name, {}))
    }
    if name == "decode":
        found |= {key: [repr(value)] * steps for key, value in _named(name, _NOW)}
    return found


def _growing(rate: float, steps: int) -> list[float]:
    return [rate * STEP * step for step in range(steps)]


def _named(server: str, values: dict[tuple[str, ...], float]) -> Iterator[tuple[str, float]]:
    for (series, *labels), value in values.items():
        named = zip(SERIES[series].labels, (server, *_OF_ENGINE, *labels), strict=True)
        yield f"vllm_watch_{series}{label_text(named)}", value
