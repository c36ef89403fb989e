# SPDX-License-Identifier: Apache-2.0
"""The GPUs that were read before: one that the driver no longer shows is lost, and not unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_watch.daemon.state.gpu_report import GpuReading, is_instance


class KnownGpus:
    """Remembers each GPU that was read; not MIG instances, which are made and removed at will."""

    def __init__(self) -> None:
        self._last: dict[str, GpuReading] = {}

    def complete(self, readings: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
        """Return the readings, and one of each GPU that is missing among them, which is lost; in the driver's order."""
        shown = {each.gpu: each for each in readings}
        self._last.update({uuid: each for uuid, each in shown.items() if not is_instance(uuid)})
        missing = [_lost(each) for uuid, each in self._last.items() if uuid not in shown]
        return tuple(sorted([*shown.values(), *missing], key=lambda each: each.number))


def _lost(reading: GpuReading) -> GpuReading:
    state = "lost" if reading.state == "ok" else reading.state
    return reading._replace(state=state, values={}, processes=None)
