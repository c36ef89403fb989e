# SPDX-License-Identifier: Apache-2.0
"""
What reading eight GPUs every 5 s costs: in the child process, which has the driver's library, and in the daemon.

The library is a stand-in (tests/support/fake_nvml.py), so what the driver itself takes for its calls is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import processor_seconds, resident_mebibytes
from tests.support.fake_nvml import FakeNvml, two_servers


GPUS = 8
INTERVAL = 5.0
SHARE = f"{GPUS} GPUs at {INTERVAL:.0f} s"
MEMORY = "the child's memory"
READINGS = 12
"""They begin with one of all values, and have two more such."""

READER = f"""
import sys, time
from vllm_watch.daemon.gpu.reader import GpuReader
from vllm_watch.daemon.support.clock import SystemClock
reader = GpuReader(SystemClock())
for _ in range({READINGS + 2}):
    report = reader.report()
    print('report', report.reason, len(report.gpus), reader._child._process.pid, flush=True)
    time.sleep({INTERVAL})
"""


def measure() -> Iterator[Figure]:
    """Yield processor time and memory, of a minute after the first reading."""
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeNvml(Path(folder), first=two_servers([11] * 4, [22] * 4))
        wanted = {name: value for name, value in fake.environment.items() if name != "FAKE_NVML_CALLS"}
        command = [sys.executable, "-c", READER]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **wanted}) as parent:
            try:
                yield from _measure(parent)
            finally:
                parent.terminate()


def _measure(parent: subprocess.Popen[str]) -> Iterator[Figure]:
    child = _next(parent)
    start, used = time.monotonic(), (processor_seconds(parent.pid), processor_seconds(child))
    for _ in range(READINGS):
        _next(parent)
    elapsed = time.monotonic() - start
    daemon, reader = (
        (processor_seconds(pid) - before) / elapsed * 100 for pid, before in zip((parent.pid, child), used, strict=True)
    )
    note = f"{reader:.3f} of the child, {daemon:.3f} of the daemon; without the driver"
    yield Figure(SHARE, reader + daemon, "% of a core", "lower", 0.2, is_processor=True, noise=0.02, note=note)
    yield Figure(MEMORY, resident_mebibytes(child), "MiB", "lower", 20.0)


def _next(parent: subprocess.Popen[str]) -> int:
    """Wait for a reading; return the child's process."""
    for line in parent.stdout or ():
        word, *rest = line.split()
        if word == "report":  # Others are the daemon's own log.
            reason, gpus, pid = rest
            if (reason, int(gpus)) != ("ok", GPUS):
                raise RuntimeError(f"{reason}, {gpus} GPUs")
            return int(pid)
    raise RuntimeError("the reader ended")
