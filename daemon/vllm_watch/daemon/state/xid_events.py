# SPDX-License-Identifier: Apache-2.0
"""
What the kernel has reported of the machine's GPUs: each error counted once, by GPU and code, and for each server.

One error prints up to hundreds of lines of the same code: those of one GPU within a second are one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vllm_watch.daemon.catalog.reasons import KernelLogReason
from vllm_watch.daemon.state.gpu_report import GpuReading, ServerGpu
from vllm_watch_parsers.kernel_messages import SWITCH_CODES, GpuError, GpuUuid, KernelMessages, pci_address


BURST_SECONDS = 1.0
"""Lines of one GPU and code within this time are one event."""

MAX_TOTALS = 512
"""Pairs of a GPU and a code that are kept; a machine has 16 GPUs and meets a handful of codes."""


class KernelLine(NamedTuple):
    """
    A message of the kernel itself.

    Args:
        at: When, by the wall clock, in seconds since the epoch.
        text: The message.
        is_history: Whether it was counted before, or written before the daemon first read the log.
    """

    at: float
    text: str
    is_history: bool


class XidEvent(NamedTuple):
    """
    An error that counts.

    Args:
        at: When, by the wall clock.
        pci: The place of the GPU or switch; empty if the message has none.
        code: What it is: a code of `XID_CODES`.
        number: The number in the message, if it has one.
    """

    at: float
    pci: str
    code: str
    number: int | None


class XidTotal(NamedTuple):
    """
    What is known of one code of one GPU.

    Args:
        gpu: The GPU's UUID; empty while it is not known.
        pci: Its place.
        code: Xid's number, or a code of its own for NVSwitch.
        events: How many since the daemon started.
        last_at: When the last one was, since the machine booted, by the wall clock.
    """

    gpu: str
    pci: str
    code: str
    events: int
    last_at: float


class KernelLogStatus(NamedTuple):
    """
    How reading the kernel's log goes, and what was found.

    Args:
        place: ``journal`` or a path.
        is_up: Whether it can be read.
        reason: ``ok``, or why not.
        totals: The errors that it has reported since the machine booted.
    """

    place: str
    is_up: bool
    reason: KernelLogReason
    totals: tuple[XidTotal, ...]


@dataclass(slots=True)
class _Code:
    """One code of one GPU: `since` is when its present event began."""

    since: float
    last_at: float
    events: int = 0


class XidEvents:
    """Takes in the kernel's messages, in order."""

    def __init__(self) -> None:
        self._messages = KernelMessages()
        self._uuids: dict[str, str] = {}
        self._codes: dict[tuple[str, str], _Code] = {}

    def apply(self, line: KernelLine) -> XidEvent | None:
        """Take in a message; return the error that it reports, if it counts."""
        found = self._messages.parse(line.text)
        if isinstance(found, GpuUuid):
            self._note_uuid(found.pci, found.uuid)
        if not isinstance(found, GpuError) or not self._is_news(found, line):
            return None
        return XidEvent(line.at, found.pci, found.code, found.number)

    def note_gpus(self, readings: Iterable[GpuReading]) -> None:
        """Take in where the GPUs are that the driver shows; a GPU that is divided (MIG) keeps its own name."""
        for reading in readings:
            pci = pci_address(reading.pci_bus_id)
            if pci and (reading.gpu.startswith("GPU-") or pci not in self._uuids):
                self._note_uuid(pci, reading.gpu)

    def note_places(self, uuids: Mapping[str, str]) -> None:
        """Take in UUIDs of whole GPUs by their places."""
        for pci, uuid in uuids.items():
            self._note_uuid(pci, uuid)

    def concern(self, event: XidEvent, gpus: Sequence[ServerGpu]) -> bool:
        """
        Tell whether an error is of one of a server's GPUs; that of a switch is of all GPUs of this machine.

        Args:
            event: The error.
            gpus: The server's GPUs: an instance of a GPU (MIG) suffers with it.
        """
        if event.code in SWITCH_CODES:
            return any(self._has_place(gpu) for gpu in gpus)
        uuid = self.uuid(event.pci)
        return any((uuid != "" and gpu.gpu == uuid) or (event.pci and event.pci == _place(gpu)) for gpu in gpus)

    def know(self, gpus: Sequence[ServerGpu]) -> bool:
        """Tell whether no error of a server's GPUs would be missed: the kernel names them by their places."""
        return bool(gpus) and all(self._has_place(gpu) for gpu in gpus)

    def uuid(self, pci: str) -> str:
        """Return the UUID of the GPU at a place; empty if it is not known."""
        return self._uuids.get(pci, "")

    def totals(self) -> tuple[XidTotal, ...]:
        """Return what is known of each code of each GPU; one that only occurs in history has no event."""
        return tuple(
            XidTotal(self.uuid(pci), pci, code, total.events, total.last_at)
            for (pci, code), total in self._codes.items()
        )

    def _has_place(self, gpu: ServerGpu) -> bool:
        return bool(_place(gpu)) or gpu.gpu in self._uuids.values()

    def _note_uuid(self, pci: str, uuid: str) -> None:
        if pci in self._uuids or len(self._uuids) < MAX_TOTALS:
            self._uuids[pci] = uuid

    def _is_news(self, error: GpuError, line: KernelLine) -> bool:
        """Take in an error; return whether it is an event that counts."""
        total = self._codes.get((error.pci, error.code))
        if total is not None and _is_in_burst(total, line.at):
            total.last_at = max(total.last_at, line.at)
            return False
        of_code = [total for (_, code), total in self._codes.items() if code == error.code]
        if not error.pci and any(_is_in_burst(total, line.at) for total in of_code):
            return False  # A line without a place repeats one that has just named the GPU.
        if total is None and len(self._codes) >= MAX_TOTALS:
            return False
        total = self._codes.setdefault((error.pci, error.code), _Code(line.at, line.at))
        total.since, total.last_at = line.at, max(total.last_at, line.at)
        total.events += not line.is_history
        return not line.is_history


def _place(gpu: ServerGpu) -> str:
    return "" if gpu.reading is None else pci_address(gpu.reading.pci_bus_id)


def _is_in_burst(total: _Code, at: float) -> bool:
    return 0.0 <= at - total.since < BURST_SECONDS
