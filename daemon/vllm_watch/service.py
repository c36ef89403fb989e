# SPDX-License-Identifier: Apache-2.0
"""The daemon: servers, threads and HTTP wired together, and the signals that end it."""

from __future__ import annotations

import platform
import signal
import threading
import time

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec
import structlog

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from vllm_watch import __version__
from vllm_watch.clock import Clock
from vllm_watch.config import Config
from vllm_watch.exposition.families import SnapshotCollector
from vllm_watch.exposition.json_view import server_view
from vllm_watch.exposition.samples import PlainSample
from vllm_watch.loops import Heartbeat, ScrapeLoop, TailLoop
from vllm_watch.state.snapshot import ServerSnapshot
from vllm_watch.watched import HISTORY_STEP, WatchedServer
from vllm_watch.web.pages import PLAIN_TEXT, Answer, accepts_gzip, compressed
from vllm_watch.web.server import WebServer


log = structlog.get_logger("vllm_watch")

STALE_HEARTBEAT = 30.0
"""A thread without a sign of life for so long hangs."""


class Service:
    """
    Watches the configured servers until it is stopped.

    Raises:
        UsageError: On `start`, if the address to listen on cannot be had.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = clock
        self._servers = [WatchedServer(server, clock) for server in config.servers]
        self._tail = TailLoop(self._servers, clock)
        self._scrapes = ScrapeLoop(self._servers, clock)
        self._web = WebServer(config.host, config.port, DaemonPages(self))
        self._stop = threading.Event()
        self._main = Heartbeat()
        self._text = self._new_registry(for_openmetrics=False)
        self._openmetrics = self._new_registry(for_openmetrics=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._web.port

    def start(self) -> None:
        """Bind the address, then begin to watch."""
        self._web.start()
        self._tail.start()
        self._scrapes.start()
        log.info("service.started", version=__version__, servers=[server.name for server in self._servers])

    def run(self) -> None:
        """Keep the status page's history until told to stop."""
        while not self._stop.is_set():
            self._main.beat()
            for server in self._servers:
                server.remember()
            self._clock.wait(self._stop, HISTORY_STEP)

    def request_stop(self) -> None:
        """Make `run` return."""
        self._stop.set()

    def stop(self) -> None:
        """End all threads and let go of everything."""
        self._stop.set()
        self._scrapes.stop()
        self._tail.stop()
        self._web.stop()
        for server in self._servers:
            server.close()
        log.info("service.stopped")

    def snapshots(self) -> list[ServerSnapshot]:
        """Return what is known of every server now."""
        return [server.snapshot() for server in self._servers]

    def heartbeats(self) -> dict[str, float]:
        """Return how long ago each running thread gave a sign of life, in seconds."""
        ages = {"main": self._main.age(), "web": time.monotonic() - self._web.heartbeat}
        for name, loop in (("tail", self._tail), ("scrapes", self._scrapes)):
            if loop.thread.ident is not None:
                ages[name] = loop.heartbeat.age()
        return ages

    def own_samples(self) -> list[PlainSample]:
        """Return what the daemon says of itself."""
        now = self._clock.now()
        samples = [
            PlainSample("build_info", (__version__, platform.python_version()), 1, now),
            PlainSample("config_last_reload_successful", (), 1, now),
        ]
        ages = self.heartbeats().items()
        return samples + [PlainSample("heartbeat_age_seconds", (thread,), age, now) for thread, age in ages]

    def is_ready(self) -> bool:
        """Whether every source was looked at once."""
        return all(server.has_looked for server in self._servers)

    def registry(self, content_type: str) -> CollectorRegistry:
        """Return the registry for a format: in OpenMetrics one family is typed otherwise."""
        return self._openmetrics if "openmetrics" in content_type else self._text

    def _new_registry(self, *, for_openmetrics: bool) -> CollectorRegistry:
        registry = CollectorRegistry()
        collector = SnapshotCollector(self.snapshots, self.own_samples, for_openmetrics=for_openmetrics)
        registry.register(collector)
        ProcessCollector(registry=registry)
        return registry

    def view(self) -> dict[str, object]:
        """Return everything that is known, as plain data."""
        servers = [{**server_view(server.snapshot()), "history": server.history()} for server in self._servers]
        return {"version": __version__, "at": self._clock.wall(self._clock.now()), "servers": servers}


class DaemonPages:
    """What the web server serves of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def metrics(self, accept: str, accept_encoding: str) -> Answer:
        """Return all series, in the format that the client asks for."""
        encode, content_type = choose_encoder(accept)
        answer = Answer(encode(self._service.registry(content_type)), content_type)
        return compressed(answer) if accepts_gzip(accept_encoding) else answer

    def snapshot(self) -> Answer:
        """Return everything that is known, as JSON."""
        return Answer(msgspec.json.encode(self._service.view()), "application/json")

    def healthy(self) -> Answer:
        """Say whether every thread gives signs of life."""
        hanging = [name for name, age in self._service.heartbeats().items() if age > STALE_HEARTBEAT]
        if hanging:
            return Answer(f"no sign of life: {', '.join(hanging)}\n".encode(), PLAIN_TEXT, 503)
        return Answer(b"healthy\n", PLAIN_TEXT)

    def ready(self) -> Answer:
        """Say whether every source was looked at once."""
        if self._service.is_ready():
            return Answer(b"ready\n", PLAIN_TEXT)
        return Answer(b"not every source was looked at yet\n", PLAIN_TEXT, 503)


@contextmanager
def stopped_by_signals(service: Service) -> Iterator[None]:
    """Make SIGTERM and SIGINT end a service's `run`; a second one ends the process at once."""

    def stop(number: int, _frame: FrameType | None) -> None:
        service.request_stop()
        signal.signal(number, signal.SIG_DFL)

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def run_service(config: Config, clock: Clock) -> None:
    """Run the daemon until a signal ends it."""
    service = Service(config, clock)
    service.start()
    try:
        with stopped_by_signals(service):
            service.run()
    finally:
        service.stop()
