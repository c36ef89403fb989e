# SPDX-License-Identifier: Apache-2.0
"""How long after a line is written its gauge shows it: the running daemon's threads, a file on disk."""

from __future__ import annotations

import logging
import random
import statistics
import tempfile
import time

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import structlog

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import writer

from vllm_watch.daemon.config.from_options import config_from_options
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


LINES = 100
LOAD = 500
"""Further lines a second, for what lines wait under load."""

GIVE_UP = 10.0
PAUSES = (0.05, 0.3)
"""Between which times a line is written after the last one was seen: never in step with anything."""

GOALS = {"rare lines": 50.0, "under load": 200.0}
"""Milliseconds for 99 of 100 lines."""

NOISE = 10.0


def measure() -> Iterator[Figure]:
    """Yield the median and the 99th percentile of lines that are rare, and of lines among many."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for name, goal in GOALS.items():
        delays = sorted(_delays(is_loaded=name == "under load"))
        yield Figure(f"{name}: median", statistics.median(delays) * 1000, "ms", "lower", noise=NOISE)
        p99 = delays[int(len(delays) * 0.99)] * 1000
        yield Figure(f"{name}: p99", p99, "ms", "lower", goal, noise=NOISE, note=f"of {len(delays)} lines")


def _delays(*, is_loaded: bool) -> list[float]:
    """Return for each line the seconds until its gauge shows it."""
    chosen = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.touch()
        service = Supervisor(config_from_options([str(log)], [], "127.0.0.1:0"), SystemClock())
        service.start()
        try:
            with writer([log], LOAD) if is_loaded else nullcontext():
                time.sleep(2)
                return [_delay(service, log, number, chosen.uniform(*PAUSES)) for number in range(1, LINES + 1)]
        finally:
            service.stop()


def _delay(service: Supervisor, log: Path, running: int, pause: float) -> float:
    time.sleep(pause)
    line = (
        f"INFO 11-21 02:35:10 [loggers.py:118] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        f"throughput: 1.0 tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache "
        f"hit rate: 0.0%\n"
    )
    with log.open("a") as file:
        file.write(line)
    start = time.perf_counter()
    while time.perf_counter() - start < GIVE_UP:
        engines = service.fleet.snapshots()[0].engines
        gauges = engines[0].gauges if engines else {}
        if "requests_running" in gauges and gauges["requests_running"].value == running:
            return time.perf_counter() - start
        time.sleep(0.001)
    raise RuntimeError(f"line {running} was not seen within {GIVE_UP} s")
