# SPDX-License-Identifier: Apache-2.0
"""What one scrape costs: reading a recorded page, taking it into the state, and showing everything."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.benchmarks.figures import Figure
from tests.fuzz.runs import read_corpus
from tests.support.exposition import exported
from tests.support.pages import label_sets
from tests.support.recordings import bodies_of

from vllm_watch.daemon.config.server_config import MetricsConfig
from vllm_watch.daemon.sources.scraper import Scraper
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


RUNS = 200
REPEATS = 7
PEER_EVERY = 10
"""Of how many bodies one is parsed by the peer, too, which takes longer."""

CUTS = 97
LABEL_SETS = (10_000, 12_000, 20_000, 40_000, 100_000)


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
    yield from _wild(bodies[len(bodies) // 2])


def _wild(ordinary: bytes) -> Iterator[Figure]:
    """Yield what bodies cost that are not ordinary, read off a socket, by what an ordinary one costs."""
    grown = {f"with {sets:,} LoRA label sets": ordinary + label_sets(sets) for sets in LABEL_SETS}
    corpus = {f"corpus/{name}": body for name, body in read_corpus("exposition").items()}
    cut = {f"torn at {at}": ordinary[at:] + ordinary[:at] for at in range(0, len(ordinary), len(ordinary) // CUTS)}
    with _served({"ordinary": ordinary, **grown, **corpus, **cut}) as urls:
        costs = {name: _fetch_cost(url) for name, url in urls.items()}
        receiving = {name: _receiving_cost(urls[name]) for name in ("ordinary", *grown)}
    base = costs.pop("ordinary")
    yield Figure("off a socket: ordinary", base * 1000, "ms", "lower", is_processor=True)
    for name, body in grown.items():
        cost = costs[name]
        more = 1 + (receiving[name] - receiving["ordinary"]) / base
        note = f"{cost * 1000:.2f} ms, {len(body):,} bytes; {more:.2f} x if only received"
        yield Figure(f"off a socket: {name}", cost / base, "x", "lower", 10.0, note=note)
    worst = max(costs, key=lambda name: costs[name])
    yield Figure(f"off a socket: worst of {len(costs)}", costs[worst] / base, "x", "lower", 10.0, note=worst)


@contextmanager
def _served(bodies: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Serve bodies from a process of its own, so that only the reading is measured; yield their URLs."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        for number, body in enumerate(bodies.values()):
            Path(folder, f"{number}.txt").write_bytes(body)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", folder, str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _await(port)
            yield {name: f"http://127.0.0.1:{port}/{number}.txt" for number, name in enumerate(bodies)}
        finally:
            server.kill()
            server.wait()


def _await(port: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError("the server of the benchmark does not answer")


def _fetch_cost(url: str) -> float:
    """Return the least of some scrapes: what else the machine does makes none of them cheaper."""
    state = ServerState(ServerSettings("bench", has_log=False, metrics_interval=5.0))
    scraper = Scraper(MetricsConfig(url=url, timeout=20.0), SystemClock())
    try:
        return min(_cost(lambda: state.apply_scrape(scraper.scrape())) for _ in range(REPEATS))
    finally:
        scraper.close()


def _receiving_cost(url: str) -> float:
    """Return what it costs to receive a body and do nothing with it."""
    scraper = Scraper(MetricsConfig(url=url, timeout=20.0), SystemClock())
    try:
        return min(_cost(lambda: scraper.fetch(len)) for _ in range(REPEATS))
    finally:
        scraper.close()


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
