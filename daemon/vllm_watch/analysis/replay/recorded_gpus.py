# SPDX-License-Identifier: Apache-2.0
"""
The GPUs of a server as a line of a recording has them, and as the state takes them in.

They are those that the server was found to use while it was recorded: a replay knows no processes. Processes of others
are not recorded.
"""

from __future__ import annotations

from typing import Any

from vllm_watch.analysis.replay.recording_lines import RecordedGpu, RecordedGpuReading, RecordedGpus
from vllm_watch.daemon.state.gpu_report import GpuReading, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse


_OF_GPU = [name for name in RecordedGpu.__struct_fields__ if name != "reading"]
_OF_READING = [name for name in RecordedGpuReading.__struct_fields__ if name != "values"]
"""What has the same name and value in a recording and in the state."""


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
    reading = None if known is None else RecordedGpuReading(**_of(known, _OF_READING), values=_by_text(known))
    return RecordedGpu(**_of(gpu, _OF_GPU), reading=reading)


def _server_gpu(gpu: RecordedGpu) -> ServerGpu:
    known = gpu.reading
    reading = None if known is None else GpuReading(**_of(known, _OF_READING), **_beside(gpu.gpu, known))
    return ServerGpu(**_of(gpu, _OF_GPU), reading=reading)


def _of(whole: object, names: list[str]) -> dict[str, Any]:
    return {name: getattr(whole, name) for name in names}


def _by_text(reading: GpuReading) -> dict[str, float]:
    return {" ".join(key): value for key, value in reading.values.items()}


def _beside(gpu: str, known: RecordedGpuReading) -> dict[str, Any]:
    """Return what a reading has in another form, or not in a recording."""
    return {
        "gpu": gpu,
        "values": {tuple(key.split(" ")): value for key, value in known.values.items()},
        "processes": None,
    }
