# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-watch check`` says of the kernel's log: whether it can be read, and which errors of GPUs it has."""

from __future__ import annotations

import time

from collections.abc import Iterator
from typing import Any

from vllm_watch.daemon.catalog.gpu_texts import GRAVE_XIDS, xid_text
from vllm_watch.daemon.catalog.reasons import KERNEL_LOG, KernelLogReason
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.service.kernel_log_thread import place_of
from vllm_watch.daemon.sources.kernel_log import NEVER, KernelLog, kernel_log
from vllm_watch.daemon.state.event_history import EVENT_SECONDS
from vllm_watch.daemon.state.xid_events import KernelLogStatus, XidEvents
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.printable import ReportLine
from vllm_watch_parsers.kernel_messages import BY_CODE, XID_ACTIONS


ANSWER_SECONDS = 2.0
"""How long the log is read; a journal that has more is read as far."""

_PAUSE_SECONDS = 0.05
_SILENT_POLLS = 4
"""After so many polls without a line all has been read."""


def read_kernel_log(config: Config) -> KernelLogStatus | None:
    """Read the kernel's log once, from the machine's boot on; `None` where that makes no sense."""
    place = place_of(config)
    if place == NEVER:
        return None
    clock, xids = SystemClock(), XidEvents()
    log = kernel_log(place, None, clock.wall)
    try:
        _read(log, clock, xids)
        reason: KernelLogReason = "no_entries" if log.reason == "starting" else log.reason
        return KernelLogStatus(place, reason == "ok", reason, xids.totals())
    finally:
        log.close()


def _read(log: KernelLog, clock: SystemClock, xids: XidEvents) -> None:
    end = time.monotonic() + ANSWER_SECONDS
    silent = 0
    while silent < _SILENT_POLLS and time.monotonic() < end:
        lines = log.poll(clock.now())
        for line in lines:
            xids.apply(line)
        if log.reason not in {"ok", "starting"}:
            return
        silent = 0 if lines or log.reason == "starting" else silent + 1
        if not log.has_more:
            time.sleep(_PAUSE_SECONDS)


def kernel_log_lines(status: KernelLogStatus, at: float) -> Iterator[ReportLine]:
    """
    Yield the report.

    A log that may not be read is nothing wrong: servers are watched without it. An error of the last hour is, if a GPU
    needs somebody after it.

    Args:
        status: What was found.
        at: The wall clock's time.
    """
    word = "ok" if status.is_up else "not read"
    yield ReportLine(f"kernel's log ({status.place}): {word}. {KERNEL_LOG[status.reason].text}")
    for total in status.totals:
        age, group = max(at - total.last_at, 0.0), BY_CODE[total.code].group
        is_wrong = group in GRAVE_XIDS and age < EVENT_SECONDS
        yield ReportLine(f"  {xid_text(total.code, total.gpu or total.pci)}, {age / 60:,.0f} min ago", is_wrong)
        yield ReportLine(f"    {XID_ACTIONS[group]}")


def kernel_log_view(status: KernelLogStatus) -> dict[str, Any]:
    """Return the same as plain data."""
    errors = [
        {
            "gpu": total.gpu,
            "pci_bus_id": total.pci,
            "xid": total.code,
            "class": BY_CODE[total.code].group,
            "last": total.last_at,
        }
        for total in status.totals
    ]
    return {
        "place": status.place,
        "up": status.is_up,
        "reason": status.reason,
        "explanation": KERNEL_LOG[status.reason].text,
        "errors": errors,
    }
