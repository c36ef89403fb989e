# SPDX-License-Identifier: Apache-2.0
"""
What ``vllm-watch top`` costs while it shows one server and two hundred, and how soon it shows them.

It runs on a pseudoterminal, and reads a stand-in for a daemon that has other numbers at each reading.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import struct
import subprocess
import termios
import threading
import time

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import VLLM_WATCH, processor_seconds, resident_mebibytes
from tests.support.http_servers import HandlerServer
from tests.terminal.documents import MOMENTS, fleet


SECONDS = 40.0
"""How long the processor time is measured, at the usual delay of 2 s; the first readings are left out."""

SETTLED_SECONDS = 6.0
START_SECONDS = 60.0
VARIANTS = 7
STARTS = 5
ROWS, COLUMNS = 24, 80
ONE, MANY = "one server", "200 servers"
NUMBERS = {ONE: 1, MANY: 200}
GOALS = {ONE: 5.0, MANY: 15.0}
"""Per cent of a core."""

MEMORY_GOAL = 80.0
"""In MiB, with one server."""

FIRST_SCREEN_GOAL = 1.5
"""In seconds by the clock, from the start of the process to a screen with a server."""


class Started(NamedTuple):
    """A running `top`: its process, and how long it took until a server was on the screen."""

    pid: int
    seconds: float


def measure() -> Iterator[Figure]:
    """Yield the cost with one server and with many, and the median of several first screens."""
    for name, goal in GOALS.items():
        with _daemon(NUMBERS[name]) as url, _top(url) as started:
            time.sleep(SETTLED_SECONDS)
            before, began = processor_seconds(started.pid), time.monotonic()
            time.sleep(SECONDS)
            used = (processor_seconds(started.pid) - before) / (time.monotonic() - began) * 100
            memory = resident_mebibytes(started.pid)
        yield Figure(name, used, "% of a core", "lower", goal, is_processor=True, noise=goal / 20)
        yield Figure(f"{name}: memory", memory, "MiB", "lower", MEMORY_GOAL if name == ONE else None, noise=2.0)
    with _daemon(1) as url:
        took = sorted(_first_screen(url) for _ in range(STARTS + 1))
    median = took[len(took) // 2]
    yield Figure(
        "first screen", median, "s", "lower", FIRST_SCREEN_GOAL, is_processor=True, noise=0.1, note=f"of {len(took)}"
    )


def _first_screen(url: str) -> float:
    with _top(url) as started:
        return started.seconds


@contextmanager
def _daemon(servers: int) -> Iterator[str]:
    """Serve snapshots of so many servers, each with other numbers than the one before; yield the URL."""
    bodies = [json.dumps(_document(servers, variant)).encode() for variant in range(VARIANTS)]

    class Snapshots(BaseHTTPRequestHandler):
        asked = 0

        def do_GET(self) -> None:
            body = bodies[Snapshots.asked % VARIANTS]
            Snapshots.asked += 1
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HandlerServer(Snapshots) as server:
        yield server.origin


def _document(servers: int, variant: int) -> dict[str, object]:
    """Return a snapshot of recorded servers in all states, with numbers of its own."""
    states = ["serving"] if servers == 1 else sorted(MOMENTS)
    document = fleet(*(states[number % len(states)] for number in range(servers)))
    rate = random.Random(variant)
    for number, server in enumerate(document["servers"]):
        server["name"] = f"server-{number}"
        for engine in server["engines"]:
            engine["gauges"] = {
                name: {**gauge, "value": gauge["value"] * rate.uniform(0.5, 1.0)}
                for name, gauge in engine["gauges"].items()
            }
    document["at"] += 2.0 * variant
    return document


@contextmanager
def _top(url: str) -> Iterator[Started]:
    """Run `top` on a pseudoterminal until the block ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        [*VLLM_WATCH, "top", "--url", url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = threading.Event()
    reading = threading.Thread(target=_drain, args=(ours, shown), daemon=True)
    reading.start()
    try:
        if not shown.wait(START_SECONDS):
            raise TimeoutError(f"{process.args} shows no server")
        yield Started(process.pid, time.monotonic() - began)
    finally:
        process.terminate()
        process.wait(START_SECONDS)
        reading.join(START_SECONDS)
        os.close(ours)


def _drain(terminal: int, shown: threading.Event) -> None:
    """Read what is drawn, so that the program never waits for its terminal; note when a server is there."""
    seen = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # The program has ended.
            return
        if not shown.is_set():
            seen += data
            if b"server-0" in seen:
                shown.set()
