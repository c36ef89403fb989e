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

from bisect import bisect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import PROMETHEUS, Server, daemon, passing, writer
from tests.support.http_servers import HandlerServer
from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import MetricsRead


SERVERS = 200
FIRST_SECOND = 180.0
"""Where in the recorded day the servers' pages begin: the overload."""

SPREAD = 5.0
"""By how many seconds at most a server is further on than another."""

LINES = 10
"""Lines a second of each server."""

LEAST_READ = 0.9
"""Which share of the lines has to be read."""

WARM_UP = 12.0
SECONDS = 30.0
OWN_SCRAPE = 15.0
PAGES = {
    "/metrics": ("/metrics", PROMETHEUS),
    "/metrics, not compressed": ("/metrics", {}),
    "/api/v1/snapshot": ("/api/v1/snapshot", {"Accept-Encoding": "gzip"}),
    "status page": ("/api/v1/snapshot?history=", {"Accept-Encoding": "gzip"}),
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
        origin = stack.enter_context(HandlerServer(_pages_of_servers())).origin
        logs = [folder / str(number) / "vllm.log" for number in range(SERVERS)]
        servers = folder / "servers.d"
        servers.mkdir()
        for number, log in enumerate(logs):
            log.parent.mkdir()
            log.touch()
            (servers / f"s{number}.yml").write_text(f"log: {log}\nmetrics: {origin}/{number}/metrics\n")
        config = folder / "vllm-watch.yml"
        config.write_text("checkpoint: checkpoint.json\nservers_dir: servers.d\n")
        environment = {"NOTIFY_SOCKET": stack.enter_context(_systemd(folder))}
        server = stack.enter_context(daemon("--config", str(config), environment=environment))
        stack.enter_context(writer(logs, SERVERS * LINES))
        server.until_ready()
        yield from _cost(server)
        yield from _pages(server)


def _pages_of_servers() -> type[BaseHTTPRequestHandler]:
    """Return what answers as all servers: each with the recorded day in real time, a little further on."""
    pages = [event for event in recording("day").events() if isinstance(event, MetricsRead) and event.body]
    times, start = [event.at for event in pages], time.monotonic()

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            number = int(self.path.split("/")[1])
            second = FIRST_SECOND + SPREAD * (1 + number * 0.618034 % 1) + time.monotonic() - start
            body = pages[bisect(times, second) - 1].body
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Page


def _cost(server: Server) -> Iterator[Figure]:
    passing([server], WARM_UP, OWN_SCRAPE)
    read, used, start = server.lines_read(), server.processor_seconds, time.monotonic()
    passing([server], SECONDS, OWN_SCRAPE)
    elapsed = time.monotonic() - start
    share = (server.processor_seconds - used) / elapsed * 100
    lines = (server.lines_read() - read) / elapsed
    if lines < LEAST_READ * SERVERS * LINES:
        raise RuntimeError(f"of {SERVERS * LINES:,} lines/s only {lines:,.0f} were read")
    yield Figure("200 servers", share, "% of a core", "lower", 20.0, is_processor=True)
    yield Figure("memory", server.resident_mebibytes, "MiB", "lower", 120.0)


def _pages(server: Server) -> Iterator[Figure]:
    with _waiting(server) as (waits, failures):
        for name, (path, headers) in PAGES.items():
            answers = []
            for _ in range(RUNS):
                time.sleep(PAUSE)
                answers.append(server.get(path, headers))
            if {answer.status for answer in answers} != {http.HTTPStatus.OK}:
                raise RuntimeError(f"{name}: {answers[-1].status}")
            median = statistics.median(answer.seconds for answer in answers) * 1000
            note = f"worst {max(answer.seconds for answer in answers) * 1000:.0f} ms, {len(answers[-1].body):,} bytes"
            yield Figure(name, median, "ms", "lower", 250.0, is_processor=True, noise=20.0, note=note)
    yield Figure("requests without an answer meanwhile", len(failures), "", "lower", 0, note=" ".join(set(failures)))
    ordered = sorted(waits)
    note = f"{len(waits)} requests; p99 {ordered[int(len(ordered) * 0.99)] * 1000:.0f} ms"
    yield Figure("longest wait meanwhile", ordered[-1] * 1000, "ms", "lower", 50.0, noise=20.0, note=note)


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
