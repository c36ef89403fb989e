# SPDX-License-Identifier: Apache-2.0
"""How long after a line is written its gauge shows it: the running daemon's threads, a file on disk."""

from __future__ import annotations

import logging
import statistics
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

import structlog

from vllm_watch.config.options import config_from_options
from vllm_watch.service.supervisor import Supervisor
from vllm_watch.support.clock import SystemClock


LINES = 400
GIVE_UP = 5.0
PAUSE = 0.05


def measure() -> Iterator[tuple[str, str]]:
    """Yield the median and the 99th percentile in milliseconds."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.touch()
        service = Supervisor(config_from_options([str(log)], [], "127.0.0.1:0"), SystemClock())
        service.start()
        try:
            time.sleep(1)
            delays = [_delay(service, log, number) for number in range(1, LINES + 1)]
        finally:
            service.stop()
    ordered = sorted(delays)
    yield "lines", f"{len(delays)}"
    yield (
        "median, p99, worst",
        (
            f"{statistics.median(delays) * 1000:.1f} ms, {ordered[int(len(ordered) * 0.99)] * 1000:.1f} ms, "
            f"{ordered[-1] * 1000:.1f} ms"
        ),
    )


def _delay(service: Supervisor, log: Path, running: int) -> float:
    time.sleep(PAUSE)
    line = (
        f"INFO 11-21 02:35:10 [loggers.py:118] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        f"throughput: 1.0 tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache "
        f"hit rate: 0.0%\n"
    )
    with log.open("a") as file:
        file.write(line)
    start = time.perf_counter()
    while time.perf_counter() - start < GIVE_UP:
        engine = service.fleet.snapshots()[0].engines[0]
        if "requests_running" in engine.gauges and engine.gauges["requests_running"].value == running:
            return time.perf_counter() - start
        time.sleep(0.0005)
    raise RuntimeError(f"line {running} was not seen within {GIVE_UP} s")
