# SPDX-License-Identifier: Apache-2.0
"""Readings of GPUs as a driver's library would give them, and readers that hand them out."""

from __future__ import annotations

import msgspec

from vllm_watch.daemon.catalog.gpu_texts import GPU_LINK_ERRORS, GPU_PCIE_ERRORS, GPU_THROTTLING
from vllm_watch.daemon.catalog.reasons import explain, standing
from vllm_watch.daemon.exposition.json_view import gpu_document
from vllm_watch.daemon.state.gpu_report import GpuProcess, GpuReading, GpuReport, ServerGpu


GIB = float(1 << 30)

PLAIN = {
    "gpu_busy_ratio": 0.97,
    "gpu_memory_busy_ratio": 0.61,
    "gpu_memory_total_bytes": 80 * GIB,
    "gpu_memory_used_bytes": 73 * GIB,
    "gpu_power_watts": 512.25,
    "gpu_power_limit_watts": 700.0,
    "gpu_energy_joules_total": 123456.789,
    "gpu_sm_clock_hertz": 1.755e9,
    "gpu_sm_clock_max_hertz": 1.98e9,
    "gpu_row_remap_pending": 0.0,
    "gpu_row_remap_failed": 0.0,
    "gpu_nvlink_active_links": 18.0,
}
LABELLED = {
    "gpu_recovery_action": {("none",): 1.0},
    "gpu_temperature_celsius": {("core",): 61.0, ("memory",): 74.0},
    "gpu_throttled_seconds_total": {(reason,): float(place) for place, reason in enumerate(GPU_THROTTLING)},
    "gpu_ecc_errors_total": {
        (kind, lifetime): 0.0 for kind in ("corrected", "uncorrected") for lifetime in ("boot", "life")
    },
    "gpu_remapped_rows": {("corrected",): 1.0, ("uncorrected",): 0.0},
    "gpu_nvlink_errors_total": {(kind,): 0.0 for kind in GPU_LINK_ERRORS},
    "gpu_nvlink_bytes_total": {("tx",): 5e12, ("rx",): 6e12},
    "gpu_pcie_errors_total": {(kind,): 0.0 for kind in GPU_PCIE_ERRORS},
    "gpu_pcie_bytes_total": {("tx",): 1e12, ("rx",): 2e12},
}
WHOLE = {
    **{(name,): value for name, value in PLAIN.items()},
    **{(name, *labels): value for name, of_series in LABELLED.items() for labels, value in of_series.items()},
}
"""All that a GPU of a data center reports."""


def uuid(number):
    """Return a GPU's UUID."""
    return f"GPU-{number:08x}-1c2d-4e5f-8a9b-0c1d2e3f4a5b"


def gpu(number=0, *pids, memory=70 * GIB, values=WHOLE, state="ok"):
    """Return a reading of one GPU with these processes, each of which has as much memory."""
    return GpuReading(
        gpu=uuid(number),
        number=number,
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"0000:{number + 0x18:02x}:00",
        driver_version="580.95.05",
        vendor="nvidia",
        mig="0",
        state=state,
        values=values,
        processes=tuple(GpuProcess(pid, memory) for pid in pids),
    )


def report(at, *gpus, reason="ok"):
    """Return a reading of a machine."""
    return GpuReport(at, reason, 0.02 if gpus else 0.0, gpus)


NORMAL = {"power_cap": 0.53, "thermal": 0.0}
HOT = {"power_cap": 0.9, "hw_thermal": 0.214}


def used(reading, throttled=None, memory=70 * GIB, other=0.0):
    """Return a GPU that a server uses by a process of its own."""
    return ServerGpu(reading.gpu, "pid", False, memory, reading, other, throttled)


def eight(**others):
    """Return eight GPUs of a server; some are different, by ``gpu3`` and the like."""
    return tuple(others.get(f"gpu{number}", used(gpu(number), NORMAL)) for number in range(8))


def lost(number):
    """Return a GPU that the driver does not reach: nothing but that is known of it."""
    return used(gpu(number, state="lost", values={}), None, None, None)


def advised(number, action):
    """Return a GPU for which the driver recommends an action."""
    values = {key: value for key, value in WHOLE.items() if key[0] != "gpu_recovery_action"}
    return used(gpu(number, values={**values, ("gpu_recovery_action", action): 1.0}), {})


def divided():
    """Return a GPU in parts, which does not say how busy it is, and a part, which has only its memory."""
    absent = {("gpu_busy_ratio",), ("gpu_memory_busy_ratio",)}
    whole = gpu(0, values={key: value for key, value in WHOLE.items() if key not in absent})._replace(mig="1")
    part = whole._replace(gpu=f"MIG{uuid(0)[3:]}", values={("gpu_memory_total_bytes",): 10 * GIB})
    return used(whole, NORMAL, None, None), used(part, None, 8.5 * GIB)


def unread(number):
    """Return a GPU about which nothing can be read."""
    return ServerGpu(uuid(number), "pid", False, None, None)


def as_json(*gpus):
    """Return GPUs as the snapshot has them."""
    return msgspec.to_builtins(list(map(gpu_document, gpus)))


def source(reason="ok"):
    """Return the source of GPUs as the snapshot has it."""
    known = {"source": "gpu", "up": reason == "ok", "reason": reason}
    return {**known, "explanation": explain("gpu", reason), "standing": standing("gpu", reason, is_up=known["up"])}
