# SPDX-License-Identifier: Apache-2.0
"""What one scrape costs: reading a recorded page, taking it into the state, and showing everything."""

from __future__ import annotations

import gzip
import statistics
import time

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from tests.support.recordings import RECORDINGS

from vllm_watch.exposition.families import SnapshotCollector
from vllm_watch.state.metrics_side import ScrapeResult
from vllm_watch.state.server import ServerSettings, ServerState
from vllm_watch_parsers.metrics import MetricsReading, read_metrics


RUNS = 200


def measure() -> Iterator[tuple[str, str]]:
    """Yield the medians and worst cases in milliseconds of processor time."""
    bodies = [gzip.decompress(path.read_bytes()) for path in sorted((RECORDINGS["day"] / "metrics").glob("*.gz"))]
    state = ServerState(ServerSettings("bench", has_log=False, metrics_interval=5.0))
    costs = [
        _cost(lambda number=number: _scrape(state, bodies[number % len(bodies)], number)) for number in range(RUNS)
    ]
    yield "bytes of a page", f"{statistics.median(len(body) for body in bodies):,.0f}"
    yield "first scrape of a process", f"{costs[0] * 1000:.2f} ms"
    yield (
        "scrape: median, worst after the first",
        f"{statistics.median(costs) * 1000:.2f} ms, {max(costs[1:]) * 1000:.2f} ms",
    )
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: [state.snapshot(RUNS * 5.0)], list))
    shown = [_cost(lambda: generate_latest(registry)) for _ in range(RUNS)]
    yield "own page: bytes", f"{len(generate_latest(registry)):,}"
    yield "own page: median, worst", f"{statistics.median(shown) * 1000:.2f} ms, {max(shown) * 1000:.2f} ms"


def _scrape(state: ServerState, body: bytes, number: int) -> None:
    reading = read_metrics(body)
    assert isinstance(reading, MetricsReading)
    state.apply_scrape(ScrapeResult(number * 5.0, 0.0, reading, "ok"))


def _cost(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
