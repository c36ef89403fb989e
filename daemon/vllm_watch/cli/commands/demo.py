# SPDX-License-Identifier: Apache-2.0
"""
``vllm-watch demo``: a recorded server, replayed into a log that grows and a /metrics that changes.

The daemon watches it as it watches a real server; only its clock runs faster.
"""

from __future__ import annotations

import tempfile
import threading

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import click
import msgspec

from vllm_watch.analysis.replay.recording import (
    BUNDLED,
    LogWritten,
    MetricsRead,
    RecordedEvent,
    Recording,
    server_name,
    with_start_moved,
)
from vllm_watch.cli.commands.options import (
    PLAYBACK_SPEED,
    file_option,
    listen_option,
    log_format_option,
    log_level_option,
    opened,
)
from vllm_watch.daemon.catalog.codes import LogFormat, LogLevel
from vllm_watch.daemon.config.from_options import config_from_options, with_prometheus
from vllm_watch.daemon.config.model import Config, GpuConfig
from vllm_watch.daemon.service.supervisor import run_service
from vllm_watch.daemon.support.clock import Clock, ScaledClock
from vllm_watch.daemon.support.logging_setup import configure_log, hold_standard_streams


@click.command("demo")
@file_option("--recording", help="A recorded server [default: the one in the package].")
@click.option("--server", metavar="NAME", help="Which server, if the recording has several.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 100),
    default=PLAYBACK_SPEED,
    show_default=True,
    help="1 is real time.",
)
@listen_option
@click.option("--prometheus", metavar="URL", help="The Prometheus whose alerts are shown.")
@log_level_option
@log_format_option
def command(
    recording: str | None,
    server: str | None,
    speed: float,
    listen: str | None,
    prometheus: str | None,
    log_level: LogLevel,
    log_format: LogFormat | None,
) -> None:
    """Run the daemon on a recording of a real server, in a loop."""
    hold_standard_streams()
    configure_log(log_level, log_format)
    run_demo(recording, server, speed, listen, prometheus)


class StandIn:
    """A recorded server's /metrics: it answers, refuses connections, and answers again on the same port."""

    def __init__(self) -> None:
        self.body = b""
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self._listen()
        self.refuse()

    def answer(self, body: bytes) -> None:
        """Answer with this body from now on."""
        self.body = body
        if self._server is None:
            self._listen()

    def refuse(self) -> None:
        """Refuse connections from now on."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)
        self._server = None

    def _listen(self) -> None:
        """Start a server on the same port as before; the first time on any free one."""
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = stand_in.body
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base class names it so.
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="stand-in", daemon=True)
        self._thread.start()


class Player:
    """Replays a recorded server in a thread, again and again until it is stopped."""

    def __init__(
        self, recording: Recording, log: IO[bytes], stand_in: StandIn, clock: Clock, server: str | None = None
    ) -> None:
        self._recording = recording
        self._server = server
        self._log = log
        self._stand_in = stand_in
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)

    def start(self) -> None:
        """Start the replay."""
        self._thread.start()

    def stop(self) -> None:
        """End the replay."""
        self._stop.set()
        self._thread.join(2)
        self._stand_in.refuse()

    def _run(self) -> None:
        while not self._stop.is_set():
            start = self._clock.now()
            for event in self._recording.events(self._server):
                if self._clock.wait(self._stop, start + event.at - self._clock.now()):
                    return
                self._play(event, start - self._recording.started)

    def _play(self, event: RecordedEvent, later: float) -> None:
        """Let the stand-in do what the server did, `later` seconds ago: each replay is a new start."""
        if isinstance(event, LogWritten):
            self._log.write(event.data)
            self._log.flush()
        elif isinstance(event, MetricsRead) and event.body:
            self._stand_in.answer(with_start_moved(event.body, later))
        elif isinstance(event, MetricsRead):
            self._stand_in.refuse()


_NO_GPUS = GpuConfig(read="never", kernel_log="never")
"""This machine's GPUs are not those of the recorded server."""


@contextmanager
def played(recording: Recording, server: str, clock: Clock, listen: str | None) -> Iterator[Config]:
    """Replay a recorded server within this context; yield the configuration that watches it."""
    sources = recording.sources[server]
    with tempfile.TemporaryDirectory(prefix="vllm-watch-demo-") as folder:
        path = Path(folder) / "vllm.log"
        with path.open("ab") as log:
            stand_in = StandIn()
            player = Player(recording, log, stand_in, clock, server)
            logs = [str(path)] if sources.log else []
            urls = [f"http://127.0.0.1:{stand_in.port}/metrics"] if sources.scrape_interval is not None else []
            player.start()
            try:
                config = config_from_options(logs, urls, listen)
                watched = msgspec.structs.replace(config.servers[0], command=sources.command)
                yield msgspec.structs.replace(config, servers=(watched,), gpu=_NO_GPUS)
            finally:
                player.stop()


def run_demo(
    path: str | None, server: str | None, speed: float, listen: str | None, prometheus: str | None = None
) -> None:
    """Run the daemon on a recording until a signal ends it; the values are those of the options."""
    recording = opened(path or str(BUNDLED))
    name = server_name(recording, server)
    clock = ScaledClock(speed)
    with played(recording, name, clock, listen) as watched:
        config = with_prometheus(watched, prometheus) if prometheus is not None else watched

        def announce(port: int) -> None:
            click.echo(
                f"A recorded server of {recording.seconds:.0f} s at {speed:g} times its speed. "
                f"Open http://{_host_of_url(config.host)}:{port}/ and /metrics; Ctrl+C ends it.",
                err=True,
            )

        run_service(config, clock, listening=announce)


def _host_of_url(host: str) -> str:
    if not host:  # All interfaces.
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
