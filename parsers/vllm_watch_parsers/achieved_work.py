# SPDX-License-Identifier: Apache-2.0
"""
The periodic line on achieved work, ``MFU: 122.7 TF/s/GPU 296.9 GB/s/GPU`` (``--enable-mfu-metrics``, 0.14 and later).

In spite of its name it is no share of anything: it has operations and bytes per second of each device, as a model of
the model estimates them.
"""

from __future__ import annotations

import re

from vllm_watch_parsers.events import AchievedWork, Event, Notice


MAX_FLOPS_PER_SECOND = 1e18
"""No device does more in a second, nor moves more bytes."""

WORK_START = "MFU: "
_LINE = re.compile(
    r"(?:Engine (\d{1,5}): )?MFU: (\d{1,15}\.\d) TF/s/(?:GPU|device) (\d{1,15}\.\d) GB/s/(?:GPU|device)\Z", re.ASCII
)


def parse_work(message: str) -> tuple[Event, ...]:
    """Parse the message of a record printed by `perf.py`, or by the Rust front end, which names no engine."""
    found = _LINE.match(message)
    if found is None:
        return ()
    engine = None if found[1] is None else str(int(found[1]))
    work = AchievedWork(engine, float(found[2] + "e12"), float(found[3] + "e9"))
    for name in ("flops_per_second", "memory_bytes_per_second"):
        if getattr(work, name) > MAX_FLOPS_PER_SECOND:
            return (Notice("value_out_of_range", name),)
    return (work,)
