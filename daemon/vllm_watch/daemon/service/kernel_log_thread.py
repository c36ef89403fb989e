# SPDX-License-Identifier: Apache-2.0
"""
The thread that follows the kernel's log for errors of GPUs, one for the whole machine.

It runs only where it makes sense: a machine without GPUs starts no journalctl for it. Nothing else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import structlog

from vllm_watch.daemon.catalog.reasons import KERNEL_LOG, KernelLogReason
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.exposition.samples import PlainSample, kernel_log_samples
from vllm_watch.daemon.gpu.places import GpuPlaces
from vllm_watch.daemon.service.fleet import Fleet
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.sources.kernel_log import NEVER, KernelJournal, has_gpu_driver
from vllm_watch.daemon.state.gpu_report import GpuReading
from vllm_watch.daemon.state.xid_events import KernelLogStatus, XidEvent, XidEvents
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch_parsers.kernel_messages import BY_CODE


log = structlog.get_logger("vllm_watch.service")

POLL_SECONDS = 1.0


def place_of(config: Config) -> str:
    """Return where the kernel's log is read; `NEVER` without GPUs, or if it is not wanted."""
    makes_sense = any(server.gpus for server in config.servers) or has_gpu_driver()
    return config.gpu.kernel_log if makes_sense else NEVER


class KernelLogThread(ServiceThread):
    """
    Reads the kernel's log once a second, counts the errors of GPUs, and tells the servers whose GPUs they are.

    Args:
        fleet: The servers.
        readings: Returns the GPUs that the driver shows.
        cursor: Where an earlier run of the daemon has stopped.
    """

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        fleet: Fleet,
        *,
        readings: Callable[[], tuple[GpuReading, ...]],
        cursor: str | None = None,
    ) -> None:
        super().__init__("kernel log", clock, errors)
        self._fleet = fleet
        self._readings = readings
        self._known: tuple[GpuReading, ...] = ()
        self._places = GpuPlaces()
        self.cursor = cursor
        """Where a later run of the daemon resumes."""
        self._place = self._opened = NEVER
        """Where the log is to be read, and where it is."""
        self._source: KernelJournal | None = None
        self._xids = XidEvents()
        self._status: KernelLogStatus | None = None

    def follow(self, config: Config) -> None:
        """Read the kernel's log from now on where a configuration says, or not; the first place starts the thread."""
        place = place_of(config)
        if place == self._place:
            return
        self._place = place
        self._wake.set()
        if place != NEVER:
            self.start()

    def samples(self, at: float) -> Iterator[PlainSample]:
        """Yield how reading goes, and what was found; nothing while it is not read. Any thread may call it."""
        status = self._status
        return iter(()) if status is None else kernel_log_samples(status, at)

    def _turn(self) -> float:
        if self._opened != self._place:
            self._close()
            self._opened = self._place
            if self._opened != NEVER:
                self._source = KernelJournal(cursor=self.cursor, wall=self._clock.wall)
        if self._source is None:
            self._status = None
            return POLL_SECONDS
        self._poll(self._opened, self._source)
        return 0.0 if self._source.has_more else POLL_SECONDS

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _poll(self, place: str, source: KernelJournal) -> None:
        """Read what is new; whatever it is, the next poll is made."""
        try:
            self._learn_names()
            events = [event for line in source.poll(self._clock.now()) if (event := self._xids.apply(line))]
            self.cursor = source.cursor
            if source.reason == "ok":
                self._tell_servers(events)
            for event in events:
                self._log_event(event)
            self._note_status(place, source.reason)
        except Exception:
            log.exception("kernel_log.failed")
            self._errors.count("kernel_log")
            self._note_status(place, "internal_error")

    def _learn_names(self) -> None:
        """Learn which GPU is where while the driver shows it: of one that is lost it may tell nothing."""
        readings = self._readings()
        if readings is not self._known:
            self._known = readings
            self._xids.note_gpus(readings)
        self._xids.note_places(self._places.take())

    def _tell_servers(self, events: Sequence[XidEvent]) -> None:
        for server in self._fleet.servers:
            gpus = server.gpus()
            are_all = self._xids.know(gpus)
            if gpus and not are_all:
                self._places.ask()
            server.note_xids([event for event in events if self._xids.concern(event, gpus)], are_all=are_all)

    def _log_event(self, event: XidEvent) -> None:
        known = BY_CODE[event.code]
        log.warning(
            "gpu.xid",
            pci=event.pci,
            gpu=self._xids.uuid(event.pci),
            code=event.code,
            number=event.number,
            group=known.group,
            meaning=known.meaning,
        )

    def _note_status(self, place: str, reason: KernelLogReason) -> None:
        """Keep how reading goes, and log when that changes."""
        before = self._status.reason if self._status is not None and self._status.place == place else "starting"
        self._status = KernelLogStatus(place, reason == "ok", reason, self._xids.totals())
        if reason != before:
            write = log.info if reason == "ok" else log.warning
            write("kernel_log.changed", place=place, reason=reason, meaning=KERNEL_LOG[reason].text)
