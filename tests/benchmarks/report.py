# SPDX-License-Identifier: Apache-2.0
"""`vllm-watch report` on logs of growing size: how fast it reads, and that its memory does not grow with them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import wait_for
from tests.support.recordings import log_of


SIZES = (20_000_000, 200_000_000, 2_000_000_000)
REQUESTS = 300
"""Access lines between two lines of statistics."""

INTERVAL = 10
START = 1_795_300_000


def measure() -> Iterator[Figure]:
    """Yield seconds, speed and the most memory for each size."""
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            log = Path(folder) / "vllm.log"
            lines = _write(log, size)
            seconds, processor, memory = _read(log)
            name = f"{size / 1e6:,.0f} MB"
            yield Figure(f"{name}: by the clock", seconds, "s", note=f"{lines:,} lines")
            yield Figure(f"{name}: processor", processor, "s of a core", "lower", is_processor=True)
            yield Figure(f"{name}: speed", size / processor / 1e6, "MB/s")
            yield Figure(f"{name}: memory", memory, "MiB", "lower")


def _write(path: Path, size: int) -> int:
    """Write a log of a busy server: its recorded start, then the same traffic at ever later times."""
    recorded = log_of("day")
    start = recorded[: recorded.index(b"INFO:     Application startup complete.")]
    chosen = random.Random(size)
    at, lines, written = START, start.count(b"\n"), len(start)
    with path.open("wb") as file:
        file.write(start)
        while written < size:
            at += INTERVAL
            piece = _interval(at, chosen)
            written += file.write(piece)
            lines += REQUESTS + 2
    return lines


def _interval(at: int, chosen: random.Random) -> bytes:
    access = b"".join(
        b'INFO:     127.0.0.1:%d - "POST /v1/completions HTTP/1.1" 200 OK\n' % chosen.randrange(30_000, 60_000)
        for _ in range(REQUESTS)
    )
    printed = time.strftime("%m-%d %H:%M:%S", time.localtime(at)).encode()
    return access + (
        b"(APIServer pid=7) INFO %s [loggers.py:335] Engine 000: Avg prompt throughput: %d.3 tokens/s, Avg generation "
        b"throughput: %d.1 tokens/s, Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: 34.2%%, Prefix cache hit "
        b"rate: 12.0%%\n"
        b"(APIServer pid=7) INFO %s [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.43, Accepted "
        b"throughput: 421.28 tokens/s, Drafted throughput: 621.28 tokens/s, Accepted: 4216 tokens, Drafted: 6216 "
        b"tokens, Per-position acceptance rate: 0.800, 0.630, Avg Draft acceptance rate: 70.0%%\n"
    ) % (
        printed,
        chosen.randrange(3000, 3500),
        chosen.randrange(1500, 1800),
        chosen.randrange(20, 25),
        chosen.randrange(9),
        printed,
    )


def _read(log: Path) -> tuple[float, float, float]:
    """Return the seconds that reading took, those of a core, and the most memory in MiB."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "vllm_watch", "report", str(log), "-o", os.devnull, "--format", "json"]
    process = subprocess.Popen(command)
    used = wait_for(process)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
