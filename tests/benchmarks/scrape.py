# SPDX-License-Identifier: Apache-2.0
"""What one scrape costs: reading a recorded page, taking it into the state, and showing everything."""

from __future__ import annotations

import statistics
import time

from collections.abc import Callable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from tests.benchmarks.figures import Figure
from tests.support.exposition import exported
from tests.support.pages import label_sets
from tests.support.recordings import bodies_of

from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


RUNS = 200
REPEATS = 7
PEER_EVERY = 10
"""Of how many bodies one is parsed by the peer, too, which takes longer."""

LABEL_SETS = (10_000, 100_000)


def measure() -> Iterator[Figure]:
    """Yield what an ordinary body costs, what prometheus_client's parser takes for it, and what others cost."""
    bodies = bodies_of("day")
    state = ServerState(ServerSettings("bench", has_log=False, metrics_interval=5.0))
    costs, theirs = [], []
    for number in range(RUNS):
        body = bodies[number % len(bodies)]
        costs.append(_cost(lambda body=body, number=number: _scrape(state, body, number)))
        if number % PEER_EVERY == 0:
            theirs.append(_cost(lambda body=body: _parse(body)))
    own, other = statistics.median(costs), statistics.median(theirs)
    size = statistics.median(len(body) for body in bodies)
    yield Figure("body", own * 1000, "ms", "lower", 1.0, is_processor=True, note=f"{size:,.0f} bytes, into the state")
    yield Figure("body: prometheus_client's parser", other * 1000, "ms", note="the peer; it keeps nothing")
    yield Figure("body: against prometheus_client", other / own, "x as fast", "higher")
    yield Figure("first body of a process", costs[0] * 1000, "ms")
    shown = [_cost(lambda: exported(state.snapshot(RUNS * 5.0))) for _ in range(RUNS)]
    page = len(exported(state.snapshot(RUNS * 5.0)))
    yield Figure(
        "own /metrics", statistics.median(shown) * 1000, "ms", "lower", is_processor=True, note=f"{page:,} bytes"
    )
    yield from _grown(bodies[len(bodies) // 2])


def _grown(ordinary: bytes) -> Iterator[Figure]:
    """Yield what bodies cost that have grown, by what an ordinary one costs."""
    base = _least(ordinary)
    for sets in LABEL_SETS:
        body = ordinary + label_sets(sets)
        cost = _least(body)
        note = f"{cost * 1000:.2f} ms, {len(body):,} bytes"
        yield Figure(f"with {sets:,} LoRA label sets", cost / base, "x", "lower", note=note)


def _least(body: bytes) -> float:
    """Return the least of some readings: what else the machine does makes none of them cheaper."""
    state = ServerState(ServerSettings("bench", has_log=False, metrics_interval=5.0))
    return min(_cost(lambda number=number: _scrape(state, body, number)) for number in range(REPEATS))


def _scrape(state: ServerState, body: bytes, number: int) -> None:
    reading = read_metrics(body)
    assert isinstance(reading, MetricsReading)
    state.apply_scrape(ScrapeResult(number * 5.0, 0.0, reading, "ok"))


def _parse(body: bytes) -> None:
    for _ in text_string_to_metric_families(body.decode()):
        pass


def _cost(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
