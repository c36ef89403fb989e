# SPDX-License-Identifier: Apache-2.0
"""`vllm-watch report` on logs of growing size: how fast it reads, and that its memory does not grow with them."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.old_logs import write_busy_day
from tests.benchmarks.programs import VLLM_WATCH, wait_for


LINES = (300_000, 3_000_000, 30_000_000)


def measure() -> Iterator[Figure]:
    """Yield seconds, speed and the most memory for each size."""
    with tempfile.TemporaryDirectory() as folder:
        for number in LINES:
            log = Path(folder) / "vllm.log"
            write_busy_day(log, number)
            size = log.stat().st_size
            began = time.perf_counter()
            used = wait_for(subprocess.Popen([*VLLM_WATCH, "report", str(log), "-o", os.devnull, "--format", "json"]))
            seconds, processor = time.perf_counter() - began, used.ru_utime + used.ru_stime
            name = f"{number:,} lines"
            yield Figure(f"{name}: by the clock", seconds, "s", note=f"{size / 1e6:,.0f} MB")
            yield Figure(f"{name}: processor", processor, "s of a core", "lower", is_processor=True)
            yield Figure(f"{name}: speed", size / processor / 1e6, "MB/s")
            yield Figure(f"{name}: memory", used.ru_maxrss / 1024, "MiB", "lower")
