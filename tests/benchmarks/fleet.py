# SPDX-License-Identifier: Apache-2.0
"""Many stand-in servers in one process: pages and logs of a recorded day in real time, each a little further on."""

from __future__ import annotations

import asyncio
import bisect
import threading
import time

from collections.abc import Iterable
from pathlib import Path

from tests.support.recordings import recording
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from vllm_watch.analysis.replay.recording import LogWritten, MetricsRead


FIRST_SECOND = 180.0
"""Where in the recorded day to begin: the overload, with the most lines."""

SPREAD = 5.0
"""By how many seconds at most a server is further on than another."""

HANG_SECONDS = 30.0
TICK = 0.1
_GOLDEN = 0.618034


class Fleet:
    """
    Serves each server's page at ``/<number>/metrics`` and writes to its log, until `stop`.

    Args:
        folder: Where the logs go, each in a folder of its own, as containers have it.
        count: How many servers there are.
        hanging: Which ones take requests and never answer.
        writes: Whether it writes to their logs; else something else does.
    """

    def __init__(self, folder: Path, count: int, hanging: Iterable[int] = (), *, writes: bool = True) -> None:
        events = [event for event in recording("day").events() if event.at >= FIRST_SECOND]
        pages = [event for event in events if isinstance(event, MetricsRead) and event.body]
        self._lines = [event for event in events if isinstance(event, LogWritten) and writes]
        self._bodies = [event.body for event in pages]
        self._body_times = [event.at for event in pages]
        self._written = [0] * count
        self.hanging = frozenset(hanging)
        self.logs = [folder / str(number) / "vllm.log" for number in range(count)]
        self.asked: list[list[float]] = [[] for _ in range(count)]
        """When each server's page was asked for, on the monotonic clock."""
        self.port = 0
        self._start = time.monotonic()
        self._is_listening = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fleet")

    def start(self) -> None:
        """Listen, and begin to write."""
        for log in self.logs:
            log.parent.mkdir()
            log.touch()
        self._thread.start()
        if not self._is_listening.wait(10):
            raise TimeoutError("the stand-in servers do not listen")

    def stop(self) -> None:
        """End all servers."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def configure(self, folder: Path) -> Path:
        """Write a configuration with a file for each server into a folder; return its path."""
        servers = folder / "servers.d"
        servers.mkdir()
        for number, log in enumerate(self.logs):
            url = f"http://127.0.0.1:{self.port}/{number}/metrics"
            (servers / f"s{number}.yml").write_text(f"log: {log}\nmetrics: {url}\n")
        config = folder / "vllm-watch.yml"
        config.write_text("checkpoint: checkpoint.json\nservers_dir: servers.d\n")
        return config

    def page(self, number: int) -> bytes:
        """Return what a server's page is now."""
        return self._bodies[bisect.bisect(self._body_times, self._second(number)) - 1]

    def _second(self, number: int) -> float:
        """Return the second of the recorded day at which a server is."""
        return FIRST_SECOND + SPREAD * (1 + number * _GOLDEN % 1) + time.monotonic() - self._start

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = HTTPServer(Application([(r"/(\d+)/metrics", _Page, {"fleet": self})]))
        server.listen(0, "127.0.0.1", backlog=1024)
        self.port = next(iter(server._sockets.values())).getsockname()[1]
        self._is_listening.set()
        while not self._stopping.is_set():
            self._write()
            await asyncio.sleep(TICK)
        server.stop()
        await server.close_all_connections()

    def _write(self) -> None:
        for number, path in enumerate(self.logs):
            first, second = self._written[number], self._second(number)
            last = first
            while last < len(self._lines) and self._lines[last].at <= second:
                last += 1
            if last > first:
                with path.open("ab") as file:
                    file.write(b"".join(line.data for line in self._lines[first:last]))
                self._written[number] = last


class _Page(RequestHandler):
    """One server's /metrics."""

    def initialize(self, fleet: Fleet) -> None:
        """Keep whose servers these are."""
        self._fleet = fleet

    async def get(self, text: str) -> None:
        """Answer, or hang."""
        number = int(text)
        self._fleet.asked[number].append(time.monotonic())
        if number in self._fleet.hanging:
            await asyncio.sleep(HANG_SECONDS)
            return
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.finish(self._fleet.page(number))

    def compute_etag(self) -> None:
        """Make none: vLLM does not either."""

    def log_exception(self, *_error: object) -> None:
        """Say nothing of clients that have gone away."""
