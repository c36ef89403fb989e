# SPDX-License-Identifier: Apache-2.0
"""`vllm-watch once` and `backfill` against `mtail --one_shot`, whole processes in turn, on the same million lines."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import MTAIL_PROGRAMS, VLLM_WATCH, has_mtail
from tests.support.recordings import RECORDINGS


LINES = 1_000_000
RUNS = 3
TIMEOUT = 300
MTAIL_ONCE = ["mtail", "--one_shot", "--logtostderr"]
PROGRAMS = {"lean": ("lean.mtail", 6.0), "rich": ("vllm.mtail", 15.0)}
"""mtail's programs, and how many times as fast we have to be: one for what the current release writes, one for all."""


def measure() -> Iterator[Figure]:
    """Yield the medians and their ratios to mtail with each program; without mtail only our own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = _write(log)
        ours = {
            "once": [*VLLM_WATCH, "once", "--log", str(log)],
            "backfill": [*VLLM_WATCH, "backfill", "--log", str(log), "-o", os.devnull],
        }
        theirs = {
            f"mtail, {name}": [*MTAIL_ONCE, "--progs", str(MTAIL_PROGRAMS / file), "--logs", str(log)]
            for name, (file, _) in PROGRAMS.items()
            if has_mtail()
        }
        rounds = [{name: _seconds(command) for name, command in (ours | theirs).items()} for _ in range(RUNS)]
    for name in ours:
        own = statistics.median(each[name] for each in rounds)
        yield Figure(name, own, "s", "lower", is_processor=True, note=f"{lines / own / 1e6:.2f} million lines/s")
    for name in theirs:
        yield Figure(name, statistics.median(each[name] for each in rounds), "s", note="the peer")
    for name in ours:
        yield from (_ratio(name, program, goal, rounds) for program, (_, goal) in PROGRAMS.items())


def _ratio(name: str, program: str, goal: float, rounds: Sequence[Mapping[str, float]]) -> Figure:
    """Return how many times as fast a command is as mtail with a program, round by round."""
    told, peer = f"{name}, against {program} mtail", f"mtail, {program}"
    ratios = [each[peer] / each[name] for each in rounds if peer in each]
    if not ratios:
        return Figure(told, None, "x as fast", "higher", goal, note="mtail is not installed")
    note = f"least {min(ratios):.1f}, most {max(ratios):.1f}"
    return Figure(told, statistics.median(ratios), "x as fast", "higher", goal, note=note)


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
