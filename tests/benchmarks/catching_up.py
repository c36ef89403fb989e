# SPDX-License-Identifier: Apache-2.0
"""How long the daemon takes for 1 GiB of log that was written while it was away, and how it answers meanwhile."""

from __future__ import annotations

import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import Server, daemon
from tests.support.recordings import log_of


SIZE = 1 << 30
GIVE_UP = 300.0
ASK_EVERY = 0.05
METRICS_EVERY = 1.0
ANSWER_GOAL = 100.0
GOAL = 30.0


def measure() -> Iterator[Figure]:
    """Yield the seconds until every line is counted, and the longest time until an answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "vllm.log"
        recorded = log_of("day")
        ready = recorded.index(b"INFO:     Application startup complete.")
        crash = recorded.index(b"(APIServer pid=20778) WARNING 11-21 02:26:16 [core_client.py:817]")
        log.write_bytes(recorded[:crash])
        config = folder / "vllm-watch.yml"
        config.write_text(f"checkpoint: checkpoint.json\nservers:\n  - {{name: a, log: {log}}}\n")
        with daemon("--config", str(config)) as server:
            server.until_ready()
            before = server.lines_read()
        lines = before + _append(log, recorded[ready:crash])
        with daemon("--config", str(config)) as server:
            start = time.monotonic()
            server.until_ready("/-/healthy")
            waits = list(_until(server, lines))
            elapsed, used = time.monotonic() - start, server.processor_seconds
            memory = server.resident_mebibytes
    yield Figure("1 GiB: by the clock", elapsed, "s", "lower", GOAL, is_processor=True, note=f"{lines:,.0f} lines")
    yield Figure("1 GiB: processor", used, "s of a core", "lower", is_processor=True)
    yield Figure("memory", memory, "MiB", "lower")
    note = f"of {len(waits)}; p99 {sorted(waits)[int(len(waits) * 0.99)] * 1000:.0f} ms"
    yield Figure("longest answer", max(waits) * 1000, "ms", "lower", ANSWER_GOAL, noise=20.0, note=note)


def _append(log: Path, service: bytes) -> int:
    """Append the recorded service again and again; return how many lines that are."""
    lines = 0
    with log.open("ab") as file:
        while file.tell() < SIZE:
            file.write(service)
            lines += service.count(b"\n")
    return lines


def _until(server: Server, lines: float) -> Iterator[float]:
    """Ask the daemon again and again until it has counted all lines; yield how long each answer took."""
    start = time.monotonic()
    for number in range(round(GIVE_UP / ASK_EVERY)):
        time.sleep(max(start + number * ASK_EVERY - time.monotonic(), 0))
        if number % round(METRICS_EVERY / ASK_EVERY):
            yield server.get("/-/healthy").seconds
        else:
            yield server.get().seconds
            if server.lines_read() >= lines:
                return
    raise TimeoutError(f"not all lines were read within {GIVE_UP:.0f} s")
