# SPDX-License-Identifier: Apache-2.0
"""What a driver's library said about the GPUs of the machine at one moment, and which of them a server uses."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GpuAction, GpuState
from vllm_watch.daemon.catalog.reasons import GpuReason


HowKnown = Literal["pid", "config"]
"""How it is known that a server uses a GPU: by a process of its own on it, or because the configuration says so."""

GpuKey = tuple[str, ...]
"""The name of a series without its prefix, and the values of its labels beside `gpu`, in their order."""

ACTION = "gpu_recovery_action"


class GpuProcess(NamedTuple):
    """
    A process that has memory on a GPU.

    Args:
        pid: Its number, as the driver says it.
        memory: Bytes on this GPU; `None` where the driver does not say.
    """

    pid: int
    memory: float | None


class GpuReading(NamedTuple):
    """
    One GPU.

    Args:
        gpu: Its UUID (``GPU-…``, ``MIG-…``): the label `gpu`.
        number: Its index, by the driver; it may change when the machine boots.
        name: Its model.
        pci_bus_id: Its place as the kernel writes it, in lower case: ``0000:9b:00``.
        driver_version: The driver's version.
        vendor: ``nvidia``.
        mig: ``1`` if it is divided into instances or is one, else ``0``.
        state: What the driver says of it as a whole.
        values: What it reports, in base units, by series and labels; what it does not report is left out. Of the
            actions that the driver may recommend only the one that it does recommend need be there.
        processes: The processes on it; `None` if they cannot be known.
    """

    gpu: str
    number: int
    name: str
    pci_bus_id: str
    driver_version: str
    vendor: str
    mig: str
    state: GpuState
    values: Mapping[GpuKey, float]
    processes: tuple[GpuProcess, ...] | None


class GpuReport(NamedTuple):
    """
    All GPUs that the driver shows.

    Args:
        at: When the reading was complete, by the daemon's clock.
        reason: ``ok``, or why there is none.
        duration: How long it took, in seconds; 0 if there was none.
        gpus: The GPUs by number; empty unless the reason is ``ok``.
        unopened: The GPUs of which nothing is known but their numbers, with their states: the driver does not open
            them. The state is `None` of one that it does not open for this user or in this container.
        listed_at: When the driver was asked for the processes, which is seldom; `None` if that is when it was read.
    """

    at: float
    reason: GpuReason
    duration: float = 0.0
    gpus: tuple[GpuReading, ...] = ()
    unopened: Mapping[int, GpuState | None] = MappingProxyType({})
    listed_at: float | None = None


class ServerGpu(NamedTuple):
    """
    A GPU that a server uses.

    Args:
        gpu: Its UUID.
        how: How this is known.
        is_shared: Whether another watched server uses it too; then nothing of it is this server's alone.
        memory: Bytes that the server's processes have on it; `None` if that is not known.
        reading: What the driver said of it; `None` if nothing is known now.
        other_memory: Bytes that processes of no watched server have on it; `None` if that is not known.
        throttled: For which part of the time between the last two readings its clocks were lowered, by reason; `None`
            if that is not known.
    """

    gpu: str
    how: HowKnown
    is_shared: bool
    memory: float | None
    reading: GpuReading | None
    other_memory: float | None = None
    throttled: Mapping[str, float] | None = None


def is_instance(uuid: str) -> bool:
    """Tell whether a UUID is that of a MIG instance, a part of a GPU."""
    return uuid.startswith("MIG-")


def recommended_action(reading: GpuReading) -> GpuAction | None:
    """Return what the driver recommends to do with a GPU, `None` of one that recommends nothing, not even that."""
    return next((action for action in GPU_ACTIONS if reading.values.get((ACTION, action))), None)
