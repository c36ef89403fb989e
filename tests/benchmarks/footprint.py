# SPDX-License-Identifier: Apache-2.0
"""Memory and processor time of the daemon: one server, its log growing, /metrics read every 5 s, itself scraped too."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.process import processor_seconds, resident_mebibytes, threads
from tests.support.recordings import recording

from vllm_watch.commands.demo import StandIn
from vllm_watch.replay.recording import LogWritten, MetricsRead


WARM_UP = 15.0
SECONDS = 90.0
OWN_SCRAPE = 15.0
FIRST_SECOND = 180.0
"""Where in the recorded day to begin: the overload, with the most lines."""


def measure() -> Iterator[tuple[str, str]]:
    """Yield resident memory and the share of one core, over the measured time."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.touch()
        stand_in = StandIn()
        stand_in.answer(b"")
        port = 19468
        command = [
            sys.executable, "-m", "vllm_watch.cli", "run", "--log", str(log),
            "--metrics", f"http://127.0.0.1:{stand_in.port}/metrics", "--listen", f"127.0.0.1:{port}",
        ]  # fmt: skip
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _play(stand_in, log, port, WARM_UP, FIRST_SECOND)
            before, start = processor_seconds(daemon.pid), time.monotonic()
            _play(stand_in, log, port, SECONDS, FIRST_SECOND + WARM_UP)
            used = processor_seconds(daemon.pid) - before
            share = used / (time.monotonic() - start)
            resident, thread_count = resident_mebibytes(daemon.pid), threads(daemon.pid)
        finally:
            daemon.terminate()
            daemon.wait(10)
            stand_in.refuse()
    yield "resident memory", f"{resident:.1f} MiB"
    yield "share of one core", f"{share:.2%} over {SECONDS:.0f} s"
    yield "threads", str(thread_count)


def _play(stand_in: StandIn, log: Path, port: int, seconds: float, first: float) -> None:
    """Play a part of the recorded day in real time, and scrape the daemon as Prometheus would."""
    start = time.monotonic()
    scraped = 0.0
    for event in recording("day").events():
        at = event.at - first
        if at < 0:
            continue
        if at > seconds:
            break
        time.sleep(max(at - (time.monotonic() - start), 0))
        if isinstance(event, LogWritten):
            with log.open("ab") as file:
                file.write(event.data)
        elif isinstance(event, MetricsRead) and event.body:
            stand_in.answer(event.body)
        if at - scraped >= OWN_SCRAPE:
            scraped = at
            request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request, timeout=5) as reply:
                reply.read()
