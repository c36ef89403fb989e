# SPDX-License-Identifier: Apache-2.0
"""The samples of GPUs. A GPU that several servers use is there once; only the series of the join have servers."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial

from vllm_watch.daemon.catalog.gpu_codes import GPU_ACTIONS, GPU_STATES
from vllm_watch.daemon.exposition.sample_values import PlainSample, SamplePart
from vllm_watch.daemon.state.gpu_report import ACTION, GpuReading, ServerGpu, recommended_action
from vllm_watch.daemon.state.snapshot import ServerSnapshot


def gpu_use_part(server: ServerSnapshot) -> SamplePart:
    """Return which GPUs a server uses, and what of their memory it has."""
    return SamplePart(("gpu use", server.name), server.gpus, partial(_use_samples, server))


def gpu_parts(server: ServerSnapshot, shown: Container[str] = frozenset()) -> Iterator[SamplePart]:
    """Yield a part for each GPU that a server uses and that can be read, but for those of `shown`."""
    for used in server.gpus:
        if used.reading is not None and used.gpu not in shown:
            depends_on = (used.reading, used.other_memory)
            yield SamplePart(("gpu", used.gpu), depends_on, partial(_gpu_samples, used, server.at))


def _use_samples(server: ServerSnapshot) -> Iterator[PlainSample]:
    name, at = server.name, server.at
    for each in server.gpus:
        is_shared = "true" if each.is_shared else "false"
        yield PlainSample("server_gpu_info", (name, each.gpu, each.how, is_shared), 1, at)
        if each.memory is not None:
            yield PlainSample("gpu_process_memory_bytes", (name, each.gpu), each.memory, at)


def _gpu_samples(used: ServerGpu, at: float) -> Iterator[PlainSample]:
    reading = used.reading
    if reading is None:
        return
    gpu = reading.gpu
    about = (reading.name, reading.pci_bus_id, reading.driver_version, reading.vendor, reading.mig)
    yield PlainSample("gpu_info", (gpu, str(reading.number), *about), 1, at)
    for state in GPU_STATES:
        yield PlainSample("gpu_state", (gpu, state), float(state == reading.state), at)
    yield from _action_samples(reading, at)
    if used.other_memory is not None:
        yield PlainSample("gpu_other_memory_bytes", (gpu,), used.other_memory, at)
    for (name, *labels), value in reading.values.items():
        if name != ACTION:
            yield PlainSample(name, (gpu, *labels), value, at)


def _action_samples(reading: GpuReading, at: float) -> Iterator[PlainSample]:
    """Yield each action, recommended or not, where the driver recommends any."""
    recommended = recommended_action(reading)
    if recommended is not None:
        for action in GPU_ACTIONS:
            yield PlainSample(ACTION, (reading.gpu, action), float(action == recommended), at)
