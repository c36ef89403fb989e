# SPDX-License-Identifier: Apache-2.0
"""
What one daemon costs that watches 1, 10, 50 and 200 servers, and what 20 and 100 of 200 that hang do to the others.

Each server's page is read every 5 s and its log grows, in a folder of its own; the daemon is scraped every 15 s as
Prometheus does it. Then its page is read again and again, alone and with one client beside it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.figures import Figure
from tests.benchmarks.fleet import Fleet
from tests.benchmarks.process import descriptors, threads
from tests.benchmarks.programs import PROMETHEUS, Server, daemon


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


class Measured(NamedTuple):
    """One case's figures; times in seconds, sizes in bytes, memory in MiB."""

    share: float
    resident: float
    threads: int
    descriptors: int
    page_times: list[float]
    page_size: int
    page_sent: int
    distances: list[float]
    missed: int


def measure() -> Iterator[Figure]:
    """Yield each case's figures, and what a server of the largest one costs against a server alone."""
    found = {}
    for case in CASES:
        found[case] = _measure(case)
        yield from (figure._replace(name=f"{case}: {figure.name}") for figure in _report(found[case]))
    one, many = found[CASES[0]], found[Case(200)]
    yield Figure("processor per server, 200 against 1", many.share / 200 / one.share, "x", "lower")
    yield Figure("memory for each further server", (many.resident - one.resident) / 199, "MiB", "lower")


def _report(measured: Measured) -> Iterator[Figure]:
    times, distances = sorted(measured.page_times), sorted(measured.distances)
    yield Figure("share", measured.share * 100, "% of a core", "lower", is_processor=True)
    yield Figure("memory", measured.resident, "MiB", "lower")
    yield Figure("threads", measured.threads, "")
    yield Figure("descriptors", measured.descriptors, "")
    yield Figure("own page", measured.page_size / 1e6, "MB", note=f"{measured.page_sent / 1e6:.2f} MB are sent")
    yield Figure("own page: median", statistics.median(times) * 1000, "ms", "lower", is_processor=True)
    yield Figure("own page: p99", _quantile(times, 0.99) * 1000, "ms", note=f"worst {times[-1] * 1000:.0f} ms")
    yield Figure("from scrape to scrape: median", statistics.median(distances), "s")
    yield Figure("from scrape to scrape: p99", _quantile(distances, 0.99), "s", note=f"worst {distances[-1]:.2f} s")
    yield Figure("scrapes that were missed", measured.missed, "", "lower")


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _measure(case: Case) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step = case.servers // case.hanging if case.hanging else 1
        fleet = Fleet(folder, case.servers, range(0, case.servers, step) if case.hanging else ())
        fleet.start()
        try:
            with daemon("--config", str(fleet.configure(folder))) as server:
                server.until_ready("/-/healthy")
                return _look(server, fleet)
        finally:
            fleet.stop()


def _look(server: Server, fleet: Fleet) -> Measured:
    _pass(server, WARM_UP)
    used, start = server.processor_seconds, time.monotonic()
    _pass(server, SECONDS)
    end = time.monotonic()
    share = (server.processor_seconds - used) / (end - start)
    distances, missed = _distances(fleet, start, end)
    pid, resident = server.pid, server.resident_mebibytes
    counts = threads(pid), descriptors(pid)
    times = [_seconds_of_a_page(server) for _ in range(PAGES)]
    size, sent = len(server.get().body), len(server.get(headers=PROMETHEUS).body)
    return Measured(share, resident, *counts, times, size, sent, distances, missed)


def _pass(server: Server, seconds: float) -> None:
    """Let time pass, and scrape the daemon in it."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        server.get(headers=PROMETHEUS)
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


def _seconds_of_a_page(server: Server) -> float:
    time.sleep(PAGE_PAUSE)
    return server.get(headers=PROMETHEUS).seconds
