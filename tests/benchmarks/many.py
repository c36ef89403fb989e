# SPDX-License-Identifier: Apache-2.0
"""
What one daemon costs that watches 200 servers: each is scraped every 5 s and writes ten lines a second, one by one.

The daemon runs as under systemd, which is told its status. Then its pages are read, and what else waits for them.
"""

from __future__ import annotations

import http.client
import socket
import statistics
import tempfile
import threading
import time

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.fleet import Fleet
from tests.benchmarks.programs import PROMETHEUS, Server, Writer, daemon


SERVERS = 200
LINES = 10
"""Lines a second of each server."""

LEAST_READ = 0.9
"""Which share of the lines has to be read."""

WARM_UP = 12.0
SECONDS = 30.0
OWN_SCRAPE = 15.0
PAGES = {
    "/metrics": PROMETHEUS,
    "/metrics, not compressed": {},
    "/api/v1/snapshot": {"Accept-Encoding": "gzip"},
    "status page": {"Accept-Encoding": "gzip"},
}
PATHS = {
    "/metrics": "/metrics",
    "/metrics, not compressed": "/metrics",
    "/api/v1/snapshot": "/api/v1/snapshot",
    "status page": "/api/v1/snapshot?history=",
}
"""What is asked for; the status page itself is a file, and asks for its values every few seconds."""

RUNS = 7
PAUSE = 1.1
"""Between two pages, in seconds: none is taken from a moment ago."""

WAIT_EVERY = 0.01


def measure() -> Iterator[Figure]:
    """Yield what the daemon costs, how long its pages take, and how long another request waits meanwhile."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        fleet = Fleet(folder, SERVERS, writes=False)
        fleet.start()
        stack.callback(fleet.stop)
        environment = {"NOTIFY_SOCKET": stack.enter_context(_systemd(folder))}
        server = stack.enter_context(daemon("--config", str(fleet.configure(folder)), environment=environment))
        stack.enter_context(Writer(fleet.logs, SERVERS * LINES))
        server.until_ready()
        yield from _cost(server)
        yield from _pages(server)


def _cost(server: Server) -> Iterator[Figure]:
    _pass(server, WARM_UP)
    read, used, start = server.lines_read(), server.processor_seconds, time.monotonic()
    _pass(server, SECONDS)
    elapsed = time.monotonic() - start
    share = (server.processor_seconds - used) / elapsed * 100
    lines = (server.lines_read() - read) / elapsed
    if lines < LEAST_READ * SERVERS * LINES:
        raise RuntimeError(f"of {SERVERS * LINES:,} lines/s only {lines:,.0f} were read")
    yield Figure("200 servers", share, "% of a core", "lower", 20.0, is_processor=True)
    yield Figure("memory", server.resident_mebibytes, "MiB", "lower", 120.0)


def _pages(server: Server) -> Iterator[Figure]:
    with _waiting(server) as (waits, failures):
        for name, headers in PAGES.items():
            answers = []
            for _ in range(RUNS):
                time.sleep(PAUSE)
                answers.append(server.get(PATHS[name], headers))
            if {answer.status for answer in answers} != {http.HTTPStatus.OK}:
                raise RuntimeError(f"{name}: {answers[-1].status}")
            median = statistics.median(answer.seconds for answer in answers) * 1000
            note = f"worst {max(answer.seconds for answer in answers) * 1000:.0f} ms, {len(answers[-1].body):,} bytes"
            yield Figure(name, median, "ms", "lower", 250.0, is_processor=True, noise=20.0, note=note)
    yield Figure("requests without an answer meanwhile", len(failures), "", "lower", 0, note=" ".join(set(failures)))
    ordered = sorted(waits)
    note = f"{len(waits)} requests; p99 {ordered[int(len(ordered) * 0.99)] * 1000:.0f} ms"
    yield Figure("longest wait meanwhile", ordered[-1] * 1000, "ms", "lower", 50.0, noise=20.0, note=note)


def _pass(server: Server, seconds: float) -> None:
    """Let time pass, and scrape the daemon in it."""
    start = time.monotonic()
    while (left := start + seconds - time.monotonic()) > 0:
        server.get(headers=PROMETHEUS)
        time.sleep(max(min(OWN_SCRAPE, left), 0))


@contextmanager
def _waiting(server: Server) -> Iterator[tuple[list[float], list[str]]]:
    """Ask for /-/healthy again and again meanwhile; yield how long each answer took, and why one did not come."""
    waits: list[float] = []
    failures: list[str] = []
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.wait(WAIT_EVERY):
            start = time.monotonic()
            try:
                server.get("/-/healthy")
            except (OSError, http.client.HTTPException) as error:
                failures.append(type(error).__name__)
            waits.append(time.monotonic() - start)

    thread = threading.Thread(target=ask, name="waiting")
    thread.start()
    try:
        yield waits, failures
    finally:
        stopping.set()
        thread.join()


@contextmanager
def _systemd(folder: Path) -> Iterator[str]:
    """Hear what the daemon says to systemd; yield the socket's path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        path = str(folder / "notify")
        heard.bind(path)
        thread = threading.Thread(target=_hear, args=(heard,), name="systemd")
        thread.start()
        try:
            yield path
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", path)
            thread.join()


def _hear(heard: socket.socket) -> None:
    while heard.recv(4096):
        pass
