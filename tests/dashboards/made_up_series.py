# SPDX-License-Identifier: Apache-2.0
"""
Made-up GPUs and KV connectors under recorded servers, which had none.

Panels of GPUs, energy and cost need some. Of the recorded pair the prefill server's blocks expire now and then; the
decode server reads by NIXL and keeps blocks in tiers. Nothing here makes an alert on them fire for long, but for
failures, which are wanted on the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.alerts.replay import STEP
from tests.support.gpus import WHOLE

from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GPU_STATES
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition.text_format import label_text


GPUS: Mapping[str, tuple[str, ...]] = {
    "day": ("GPU-d1", "GPU-d2"),
    "sustained": ("GPU-s1",),
    "vl": ("GPU-v1",),
    "dp1": ("GPU-p1",),
    "queue": ("GPU-q1",),
    "rejections": ("GPU-r1",),
    "busy": ("GPU-b1",),
}
"""By the name of a recording; one of them is watched by two daemons. No two of them have equal values for long."""

WATTS = 300
COST_PER_HOUR = 2.4

_THROTTLED = {"power_cap": 0.05, "thermal": 0.001}
"""Shares of the time, for each of them by as many times as its place."""


def gpu_series(name: str, steps: int) -> dict[str, list[str]]:
    """Return the series of a recording's GPUs, and of what its server costs; none if it has no GPUs."""
    found = {}
    for index, gpu in enumerate(GPUS.get(name, ())):
        found |= {
            _series("server_gpu_info", server=name, gpu=gpu, how="pid", shared="false"): ["1"] * steps,
            _series("gpu_info", gpu=gpu, index=str(index), name="H", driver_version="580", mig="0"): ["1"] * steps,
            _series("gpu_process_memory_bytes", server=name, gpu=gpu): ["70e9"] * steps,
            _series("gpu_other_memory_bytes", gpu=gpu): ["0"] * steps,
            **_reported(gpu, steps),
            _series("gpu_energy_joules_total", gpu=gpu): [str(WATTS * STEP * step) for step in range(steps)],
        }
    if found:
        found[_series("server_cost_per_hour", server=name)] = [str(COST_PER_HOUR)] * steps
    return found


def _reported(gpu: str, steps: int) -> dict[str, list[str]]:
    """Return what a driver reports of a GPU that has no fault and uses its links, and the kernel of its past."""
    found = {}
    place = sorted(gpu for gpus in GPUS.values() for gpu in gpus).index(gpu) + 1
    for (name, *values), value in WHOLE.items():
        own = dict(zip(SERIES[name].labels[1:], values, strict=True))
        grows = STEP * (1e6 if name.endswith("_bytes_total") else _THROTTLED.get("".join(values), 0) * place)
        more = place if name == "gpu_power_watts" else 0
        found[_series(name, gpu=gpu, **own)] = [str(value + more + grows * step) for step in range(steps)]
    for state in GPU_STATES:
        found[_series("gpu_state", gpu=gpu, state=state)] = [str(int(state == "ok"))] * steps
    for action in GPU_ACTIONS:
        found[_series("gpu_recovery_action", gpu=gpu, action=action)] = [str(int(action == "none"))] * steps
    last = {"gpu": gpu, "pci_bus_id": "0000:18:00", "xid": "63", "class": "follow"}
    found[_series("gpu_xid_last_timestamp_seconds", **last)] = ["1.7e9"] * steps
    return found


def _series(series: str, **labels: str) -> str:
    return f"vllm_watch_{series}{label_text(labels.items())}"


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


def _named(server: str, values: dict[tuple[str, ...], float]) -> Iterator[tuple[str, float]]:
    for (series, *labels), value in values.items():
        named = zip(SERIES[series].labels, (server, *_OF_ENGINE, *labels), strict=True)
        yield f"vllm_watch_{series}{label_text(named)}", value
