# SPDX-License-Identifier: Apache-2.0
"""`vllm-watch once` against `mtail --one_shot`, whole processes in turn, on the same million lines."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path

from tests.support.recordings import RECORDINGS


LINES = 1_000_000
RUNS = 5
TIMEOUT = 300
PROGRAM = Path(__file__).parent / "vllm.mtail"


def measure() -> Iterator[tuple[str, str]]:
    """Yield the medians and their ratio; without mtail only our own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = _write(log)
        yield "lines, bytes", f"{lines:,}, {log.stat().st_size:,}"
        ours = [sys.executable, "-m", "vllm_watch.cli", "once", "--log", str(log)]
        theirs = ["mtail", "--one_shot", "--logtostderr", "--progs", str(PROGRAM), "--logs", str(log)]
        has_mtail = shutil.which("mtail") is not None
        pairs = [(_seconds(ours), _seconds(theirs) if has_mtail else None) for _ in range(RUNS)]
    own = statistics.median(own for own, _ in pairs)
    yield "vllm-watch once, median", f"{own:.2f} s, {lines / own / 1e6:.2f} million lines/s"
    ratios = [other / own for own, other in pairs if other is not None]
    if ratios:
        yield "mtail --one_shot, median", f"{statistics.median(other for _, other in pairs if other is not None):.2f} s"
        yield (
            "ratio, pair by pair: least, median, most",
            f"{min(ratios):.1f} {statistics.median(ratios):.1f} {max(ratios):.1f}",
        )
    else:
        yield "mtail", "not installed: no ratio"


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
