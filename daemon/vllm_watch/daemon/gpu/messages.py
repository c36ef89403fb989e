# SPDX-License-Identifier: Apache-2.0
"""What the child process says, as the daemon's values. Pure."""

from __future__ import annotations

import functools

from collections.abc import Mapping

import msgspec

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.state.gpu_report import GpuKey, GpuProcess, GpuReading


class GpuMessage(msgspec.Struct):
    """One GPU; `values` are by series and labels, with spaces between."""

    gpu: str
    number: int
    name: str
    pci_bus_id: str
    mig: bool
    state: GpuState
    values: dict[str, float]
    processes: list[tuple[int, float | None]] | None


class ReadingMessage(msgspec.Struct):
    """
    All GPUs; `unopened` has the codes of those that could not be opened, by index, and `listed_at` is when the
    processes on them were listed.
    """

    driver_version: str
    gpus: list[GpuMessage]
    unopened: dict[int, int]
    listed_at: float
    seconds: float

    def readings(self) -> tuple[GpuReading, ...]:
        """Return the readings of all GPUs."""
        return tuple(_reading(each, self.driver_version) for each in self.gpus)


class FailureMessage(msgspec.Struct):
    """Why the GPUs cannot be read: the code that a call returned, and a sentence."""

    code: int
    what: str


_READING = msgspec.json.Decoder(ReadingMessage)
_FAILURE = msgspec.json.Decoder(FailureMessage)


def decode(line: bytes) -> ReadingMessage | FailureMessage:
    """Return the message of a line. Raises `msgspec.MsgspecError` if it is none, e.g. a Python error."""
    return (_FAILURE if line.startswith(b'{"code"') else _READING).decode(line)


def _reading(message: GpuMessage, driver_version: str) -> GpuReading:
    processes = message.processes
    return GpuReading(
        gpu=message.gpu,
        number=message.number,
        name=message.name,
        pci_bus_id=message.pci_bus_id,
        driver_version=driver_version,
        vendor="nvidia",
        mig="1" if message.mig else "0",
        state=message.state,
        values=_by_key(message.values),
        processes=None if processes is None else tuple(GpuProcess(*each) for each in processes),
    )


def _by_key(values: Mapping[str, float]) -> Mapping[GpuKey, float]:
    return {_key(name): value for name, value in values.items()}


@functools.lru_cache(maxsize=512)
def _key(name: str) -> GpuKey:
    return tuple(name.split(" "))
