# SPDX-License-Identifier: Apache-2.0
"""How long short commands take, and the daemon until it is ready, beside the interpreter that does nothing."""

from __future__ import annotations

import statistics
import sys
import tempfile

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import VLLM_WATCH, Took, daemon, run_to_end
from tests.support.recordings import log_of


RUNS = 11
LINES = 300
GOALS = {"--version": 0.15, "once, 300 lines": 0.4, "run, ready": 1.0}
"""Seconds until it has ended, or is ready."""


def measure() -> Iterator[Figure]:
    """Yield the medians by the clock, and of processor time in times of what the interpreter takes to start."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = log_of("day").splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:LINES]))
        commands = {
            "python": lambda: run_to_end([sys.executable, "-c", "pass"]),
            "--version": lambda: run_to_end([*VLLM_WATCH, "--version"]),
            "once, 300 lines": lambda: run_to_end([*VLLM_WATCH, "once", "--log", str(log)]),
            "run, ready": lambda: _ready(log),
        }
        took: dict[str, list[Took]] = {name: [] for name in commands}
        for number in range(RUNS + 1):
            for name, command in commands.items():
                one = command()
                if number:  # The first may have had to compile.
                    took[name].append(one)
    python = statistics.median(each.processor for each in took["python"])
    yield Figure("python -c pass", python, "s of a core", note=f"the peer; median of {RUNS}")
    for name, goal in GOALS.items():
        seconds, processor = (statistics.median(column) for column in zip(*took[name], strict=True))
        yield Figure(f"{name}: by the clock", seconds, "s", "lower", goal, is_processor=True, noise=goal / 4)
        yield Figure(f"{name}: processor, against python", processor / python, "x", "lower")


def _ready(log: Path) -> Took:
    with daemon("--log", str(log)) as server:
        seconds = server.until_ready(pause=0.005)
        return Took(seconds, server.processor_seconds)
