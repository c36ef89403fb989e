# SPDX-License-Identifier: Apache-2.0
"""
What the driver said last of one server's GPUs, for as long as that is current: also how much of the time since the
reading before their clocks were lowered, and which of them were lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.catalog.reasons import GpuReason
from vllm_watch.daemon.state.gpu_report import GpuReading, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.recent_events import RecentEvents
from vllm_watch.daemon.state.snapshot import ServerEvent


MAX_INTERVALS = 3.0
"""A reading is current for so many intervals."""

_THROTTLED = "gpu_throttled_seconds_total"


class GpuSource:
    """The GPUs of one server."""

    def __init__(self) -> None:
        self._use: GpuUse | None = None
        self._expires_at = 0.0
        self._states: dict[str, tuple[GpuState, str]] = {}
        """The last state of each GPU, and where it is."""
        self.events = RecentEvents()
        """The GPUs that were lost or came back."""
        self.read_at: float | None = None
        """When any of them was read last."""

    def apply(self, use: GpuUse, interval: float) -> None:
        """Take in what a reading says; the next one is due after the interval, in seconds."""
        self._use, self._expires_at = _with_throttling(use, self._use), use.at + MAX_INTERVALS * interval
        if use.reason == "ok":
            self.read_at = use.at
        if use.reason in {"ok", "no_gpus"}:
            self._note_states(use)

    def reason(self, now: float) -> GpuReason | None:
        """Return ``ok`` or why they are not read; `None` without such a source."""
        if self._use is None:
            return None
        return "call_hangs" if self._is_stale(now) else self._use.reason

    def gpus(self, now: float) -> tuple[ServerGpu, ...]:
        """Return the GPUs with what is current."""
        if self._use is None:
            return ()
        if not self._is_stale(now):
            return self._use.gpus
        return tuple(ServerGpu(each.gpu, each.how, each.is_shared, None, None) for each in self._use.gpus)

    def _note_states(self, use: GpuUse) -> None:
        """Note the GPUs whose state has changed; one that the driver does not show any more is lost."""
        before, self._states = self._states, {}
        for each in use.gpus:
            was = before.get(each.gpu)
            if each.reading is not None:
                state, place = each.reading.state, each.reading.pci_bus_id
            elif was is not None:
                state, place = "lost", was[1]
            else:
                continue
            self._states[each.gpu] = state, place
            if was is not None and was[0] != state:
                self.events.add(ServerEvent(use.at, "gpu", state, gpu=place))

    def _is_stale(self, now: float) -> bool:
        return self._use is not None and self._use.reason == "ok" and now > self._expires_at


def _with_throttling(use: GpuUse, before: GpuUse | None) -> GpuUse:
    """Return what a reading says together with how much of the time since the one before clocks were lowered."""
    if before is None:
        return use
    if use.at <= before.at:  # The same reading again.
        known = {each.gpu: each.throttled for each in before.gpus}
        return use._replace(gpus=tuple(each._replace(throttled=known.get(each.gpu)) for each in use.gpus))
    readings = {each.gpu: each.reading for each in before.gpus}
    seconds = use.at - before.at
    gpus = (each._replace(throttled=_throttling(each.reading, readings.get(each.gpu), seconds)) for each in use.gpus)
    return use._replace(gpus=tuple(gpus))


def _throttling(now: GpuReading | None, before: GpuReading | None, seconds: float) -> Mapping[str, float] | None:
    """Return each reason's part of the time; nothing if no counter is known twice, or one has begun again."""
    if now is None or before is None:
        return None
    both = [key for key in now.values if key[0] == _THROTTLED and key in before.values]
    grown = {reason: now.values[name, reason] - before.values[name, reason] for name, reason in both}
    if not grown or min(grown.values()) < 0:
        return None
    return {reason: min(more / seconds, 1.0) for reason, more in grown.items()}
