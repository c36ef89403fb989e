# SPDX-License-Identifier: Apache-2.0
"""
What one daemon costs that watches 1, 10, 50 and 200 servers, and what 20 and 100 of 200 that hang do to the others.

Each server's page is read every 5 s and its log grows, in a folder of its own; the daemon is scraped every 15 s as
Prometheus does it. Then its page is read again and again, alone and with one client beside it.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.fleet import Fleet
from tests.benchmarks.process import descriptors, inotify_watches, processor_seconds, resident_mebibytes, threads


class Case(NamedTuple):
    """How many servers there are, and how many of them hang."""

    servers: int
    hanging: int = 0

    def __str__(self) -> str:
        """Return it for a line of the table."""
        return f"{self.servers} servers, {self.hanging} hang" if self.hanging else f"{self.servers} servers"


CASES = (Case(1), Case(10), Case(50), Case(200), Case(200, 20), Case(200, 100))
SECONDS = float(os.environ.get("VLLM_WATCH_SERVERS_SECONDS", "60"))
WARM_UP = 25.0
INTERVAL = 5.0
OWN_SCRAPE = 15.0
PAGES = 30
PAGE_PAUSE = 0.3
PORT = 19470

# As Prometheus 2.53 asks.
HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}


class Measured(NamedTuple):
    """One case's figures; times in seconds, sizes in bytes, memory in MiB."""

    share: float
    resident: float
    threads: int
    descriptors: int
    watches: int
    page_times: list[float]
    page_size: int
    page_sent: int
    distances: list[float]
    missed: int


def measure() -> Iterator[tuple[str, str]]:
    """Yield each case's figures, and what a server of the largest one costs against a server alone."""
    found = {}
    for case in CASES:
        found[case] = _measure(case)
        yield from ((f"{case}: {label}", value) for label, value in _report(found[case]))
    one, many = found[CASES[0]], found[Case(200)]
    yield "processor per server, 200 against 1", f"{many.share / 200 / one.share:.2f}"
    per_server = (many.resident - one.resident) / 199
    yield "memory for each further server", f"{per_server:.2f} MiB"


def _report(measured: Measured) -> Iterator[tuple[str, str]]:
    times, distances = sorted(measured.page_times), sorted(measured.distances)
    yield "share of one core", f"{measured.share:.2%}"
    yield "resident memory", f"{measured.resident:.1f} MiB"
    yield (
        "threads, descriptors, inotify watches",
        f"{measured.threads}, {measured.descriptors}, {measured.watches}",
    )
    yield "own page: bytes, bytes sent", f"{measured.page_size:,}, {measured.page_sent:,}"
    yield (
        "own page: median, p99, worst",
        f"{statistics.median(times) * 1000:.0f} ms, {_quantile(times, 0.99) * 1000:.0f} ms, {times[-1] * 1000:.0f} ms",
    )
    yield (
        "from scrape to scrape: median, p99, worst",
        f"{statistics.median(distances):.2f} s, {_quantile(distances, 0.99):.2f} s, {distances[-1]:.2f} s",
    )
    yield "scrapes that were missed", str(measured.missed)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _measure(case: Case) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step = case.servers // case.hanging if case.hanging else 1
        fleet = Fleet(folder, case.servers, range(0, case.servers, step) if case.hanging else ())
        fleet.start()
        daemon = subprocess.Popen(
            [sys.executable, "-m", "vllm_watch.cli", "run", "--config", str(_configure(folder, fleet))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await_page()
            return _look(daemon.pid, fleet)
        finally:
            daemon.terminate()
            daemon.wait(10)
            fleet.stop()


def _configure(folder: Path, fleet: Fleet) -> Path:
    servers = folder / "servers.d"
    servers.mkdir()
    for number, log in enumerate(fleet.logs):
        url = f"http://127.0.0.1:{fleet.port}/{number}/metrics"
        (servers / f"s{number}.yml").write_text(f"log: {log}\nmetrics: {url}\n")
    config = folder / "vllm-watch.yml"
    config.write_text(f"listen: 127.0.0.1:{PORT}\ncheckpoint: checkpoint.json\nservers_dir: servers.d\n")
    return config


def _look(pid: int, fleet: Fleet) -> Measured:
    _pass(WARM_UP)
    used, start = processor_seconds(pid), time.monotonic()
    _pass(SECONDS)
    end = time.monotonic()
    share = (processor_seconds(pid) - used) / (end - start)
    distances, missed = _distances(fleet, start, end)
    resident, thread_count = resident_mebibytes(pid), threads(pid)
    files, watches = descriptors(pid), inotify_watches(pid)
    times = [_seconds_of_a_page() for _ in range(PAGES)]
    size, sent = len(_own_page({})), len(_own_page(HEADERS))
    return Measured(share, resident, thread_count, files, watches, times, size, sent, distances, missed)


def _pass(seconds: float) -> None:
    """Let time pass, and scrape the daemon in it."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        _own_page(HEADERS)
        time.sleep(max(min(OWN_SCRAPE, start + seconds - time.monotonic()), 0))


def _distances(fleet: Fleet, start: float, end: float) -> tuple[list[float], int]:
    """Return the times from scrape to scrape of servers that answer, and how many turns passed without a scrape."""
    distances: list[float] = []
    missed = 0
    for number, asked in enumerate(fleet.asked):
        if number not in fleet.hanging:
            times = [at for at in asked if start <= at <= end]
            distances += [later - earlier for earlier, later in pairwise(times)]
            missed += sum(
                max(round((later - earlier) / INTERVAL) - 1, 0) for earlier, later in pairwise([start, *times, end])
            )
    return distances, missed


def _seconds_of_a_page() -> float:
    time.sleep(PAGE_PAUSE)
    start = time.monotonic()
    _own_page(HEADERS)
    return time.monotonic() - start


def _await_page() -> None:
    for _ in range(200):
        try:
            _own_page(HEADERS)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the daemon does not answer")


def _own_page(headers: dict[str, str]) -> bytes:
    """Return the daemon's page as it comes over the wire."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request("GET", "/metrics", headers=headers)
        return connection.getresponse().read()
    finally:
        connection.close()
