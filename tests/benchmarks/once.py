# SPDX-License-Identifier: Apache-2.0
"""`vllm-watch once` against `mtail --one_shot`, whole processes in turn, on the same million lines."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import has_mtail
from tests.support.recordings import RECORDINGS


LINES = 1_000_000
RUNS = 5
TIMEOUT = 300
PROGRAM = Path(__file__).parent / "vllm.mtail"


def measure() -> Iterator[Figure]:
    """Yield the medians and their ratio; without mtail only our own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = _write(log)
        ours = [sys.executable, "-m", "vllm_watch.cli", "once", "--log", str(log)]
        theirs = ["mtail", "--one_shot", "--logtostderr", "--progs", str(PROGRAM), "--logs", str(log)]
        pairs = [(_seconds(ours), _seconds(theirs) if has_mtail() else None) for _ in range(RUNS)]
    own = statistics.median(own for own, _ in pairs)
    yield Figure("once", own, "s", "lower", is_processor=True, note=f"{lines / own / 1e6:.2f} million lines/s")
    ratios = [other / own for own, other in pairs if other is not None]
    if not ratios:
        yield Figure("once, against mtail", None, "x as fast", "higher", 15.0, note="mtail is not installed")
        return
    yield Figure("mtail", statistics.median(other for _, other in pairs if other is not None), "s", note="the peer")
    note = f"least {min(ratios):.1f}, most {max(ratios):.1f}"
    yield Figure("once, against mtail", statistics.median(ratios), "x as fast", "higher", 15.0, note=note)


def _write(path: Path) -> int:
    """Write the recorded day: its start once, its service again and again, its crash and its second start once."""
    recorded = (RECORDINGS["day"] / "vllm.log").read_bytes()
    ready = recorded.index(b"INFO:     Application startup complete.")
    crash = recorded.index(b"(APIServer pid=20778) WARNING 11-21 02:26:16 [core_client.py:817]")
    service = recorded[ready:crash]
    lines = recorded.count(b"\n")
    with path.open("wb") as file:
        file.write(recorded[:ready])
        file.write(service)
        while lines < LINES:
            file.write(service)
            lines += service.count(b"\n")
        file.write(recorded[crash:])
    return lines


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT)
    return time.perf_counter() - start
