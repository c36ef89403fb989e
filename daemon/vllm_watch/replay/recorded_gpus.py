# SPDX-License-Identifier: Apache-2.0
"""
The GPUs of a server as a line of a recording has them, and as the state takes them in.

They are those that the server was found to use while it was recorded: a replay knows no processes. Processes of others
are not recorded.
"""

from __future__ import annotations

from vllm_watch.replay.recording_lines import RecordedGpu, RecordedGpuReading, RecordedGpus
from vllm_watch.state.gpu_report import GpuReading, ServerGpu
from vllm_watch.state.gpu_use import GpuUse


def recorded_gpus(use: GpuUse, started: float) -> RecordedGpus:
    """
    Return what is recorded of a reading.

    Args:
        use: What it says of the server.
        started: When the recording was started, by the same clock.
    """
    return RecordedGpus(at=round(use.at - started, 3), reason=use.reason, gpus=tuple(map(_recorded, use.gpus)))


def gpu_use(line: RecordedGpus, started: float) -> GpuUse:
    """
    Return what was recorded as the state takes it in.

    Args:
        line: What was recorded.
        started: When the recording was started, in seconds since the epoch.
    """
    return GpuUse(started + line.at, line.reason, tuple(map(_server_gpu, line.gpus)))


def _recorded(gpu: ServerGpu) -> RecordedGpu:
    known = gpu.reading
    return RecordedGpu(
        gpu=gpu.gpu,
        how=gpu.how,
        is_shared=gpu.is_shared,
        memory=gpu.memory,
        other_memory=gpu.other_memory,
        reading=None
        if known is None
        else RecordedGpuReading(
            number=known.number,
            name=known.name,
            pci_bus_id=known.pci_bus_id,
            driver_version=known.driver_version,
            vendor=known.vendor,
            mig=known.mig,
            state=known.state,
            values={" ".join(key): value for key, value in known.values.items()},
        ),
    )


def _server_gpu(gpu: RecordedGpu) -> ServerGpu:
    known = gpu.reading
    reading = None if known is None else _reading(gpu.gpu, known)
    return ServerGpu(gpu.gpu, gpu.how, gpu.is_shared, gpu.memory, reading, gpu.other_memory)


def _reading(gpu: str, known: RecordedGpuReading) -> GpuReading:
    return GpuReading(
        gpu=gpu,
        number=known.number,
        name=known.name,
        pci_bus_id=known.pci_bus_id,
        driver_version=known.driver_version,
        vendor=known.vendor,
        mig=known.mig,
        state=known.state,
        values={tuple(key.split(" ")): value for key, value in known.values.items()},
        processes=None,
    )
