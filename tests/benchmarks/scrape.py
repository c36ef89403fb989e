# SPDX-License-Identifier: Apache-2.0
"""What one scrape costs: reading a recorded page, taking it into the state, and showing everything."""

from __future__ import annotations

import gzip
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.exposition import exported
from tests.support.pages import label_sets
from tests.support.recordings import RECORDINGS

from vllm_watch.sources.http_client import TlsOptions
from vllm_watch.sources.metrics_fetch import Fetcher
from vllm_watch.sources.scraper import Scraper, ScrapeTarget
from vllm_watch.state.scrape_source import ScrapeResult
from vllm_watch.state.server import ServerSettings, ServerState
from vllm_watch.support.clock import SystemClock
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


RUNS = 200
REPEATS = 20
CUTS = 257
LABEL_SETS = (10_000, 20_000, 40_000, 100_000)
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "exposition"


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
    shown = [_cost(lambda: exported(state.snapshot(RUNS * 5.0))) for _ in range(RUNS)]
    yield "own /metrics: bytes", f"{len(exported(state.snapshot(RUNS * 5.0))):,}"
    yield "own /metrics: median, worst", f"{statistics.median(shown) * 1000:.2f} ms, {max(shown) * 1000:.2f} ms"
    yield from _wild(bodies[len(bodies) // 2])


def _wild(ordinary: bytes) -> Iterator[tuple[str, str]]:
    """Yield what bodies cost that are not ordinary, read off a socket, by what an ordinary one costs."""
    grown = {f"with {sets:,} LoRA label sets": ordinary + label_sets(sets) for sets in LABEL_SETS}
    corpus = {f"corpus/{path.name}": path.read_bytes() for path in sorted(CORPUS.iterdir())}
    cut = {f"torn at {at}": ordinary[at:] + ordinary[:at] for at in range(0, len(ordinary), len(ordinary) // CUTS)}
    with _served({"ordinary": ordinary, **grown, **corpus, **cut}) as urls:
        costs = {name: _fetch_cost(url) for name, url in urls.items()}
        receiving = {name: _receiving_cost(urls[name]) for name in ("ordinary", *grown)}
    base = costs.pop("ordinary")
    yield "scrape off a socket: ordinary", f"{base * 1000:.2f} ms"
    for name, body in grown.items():
        cost = costs.pop(name)
        more = receiving[name] - receiving["ordinary"]
        took = f"{cost / base:.2f} x, {cost * 1000:.2f} ms, {len(body):,} bytes"
        yield f"scrape off a socket: {name}", f"{took}; {1 + more / base:.2f} x if only received"
    worst = max(costs, key=lambda name: costs[name])
    yield f"scrape off a socket: the worst of {len(costs)} wild bodies", f"{costs[worst] / base:.2f} x ({worst})"


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
    scraper = Scraper(ScrapeTarget(url, timeout=20.0), SystemClock())
    try:
        return min(_cost(lambda: state.apply_scrape(scraper.scrape())) for _ in range(REPEATS))
    finally:
        scraper.close()


def _receiving_cost(url: str) -> float:
    """Return what it costs to receive a body and do nothing with it."""
    fetcher = Fetcher(url, 20.0, TlsOptions())
    try:
        return min(_cost(lambda: fetcher.fetch({}, len)) for _ in range(REPEATS))
    finally:
        fetcher.close()


def _scrape(state: ServerState, body: bytes, number: int) -> None:
    reading = read_metrics(body)
    assert isinstance(reading, MetricsReading)
    state.apply_scrape(ScrapeResult(number * 5.0, 0.0, reading, "ok"))


def _cost(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
