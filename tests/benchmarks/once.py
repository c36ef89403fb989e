# SPDX-License-Identifier: Apache-2.0
"""
`vllm-watch once` and `backfill` against `mtail --one_shot`, whole processes in turn, on the same million lines.

mtail runs with two programs: `lean.mtail` counts what comes all the time in a log of the current release, and
`vllm.mtail` what `once` takes from the logs of any release. Wall time is what a user waits. Processor time is given as
well: mtail uses several cores, and so may `once`.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.old_logs import write_busy_day, write_day, write_logged_requests


RUNS = 3
TIMEOUT = 600
PROGRAMS = {name: Path(__file__).parent / f"{name}.mtail" for name in ("lean", "vllm")}
LOGS = {
    "the recorded day": write_day,
    "nearly only access lines": write_busy_day,
    "with a record of each request": write_logged_requests,
}
COMMANDS = ("once", "backfill")


class Cost(NamedTuple):
    """What a process took, in seconds; processor time is that of all its processes."""

    wall: float
    processor: float


def measure() -> Iterator[tuple[str, str]]:
    """Yield the medians and their ratios; without mtail only our own."""
    has_mtail = shutil.which("mtail") is not None
    yield "cores", str(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        for name, write in LOGS.items():
            log = Path(folder) / "vllm.log"
            yield f"{name}: lines, bytes", f"{write(log):,}, {log.stat().st_size:,}"
            commands = {command: _ours(command, log) for command in COMMANDS}
            if has_mtail:
                commands |= {program: _mtail(path, log) for program, path in PROGRAMS.items()}
            runs = [{each: _cost(command) for each, command in commands.items()} for _ in range(RUNS)]
            yield from _results(runs)
    if not has_mtail:
        yield "mtail", "not installed: no ratio"


def _results(runs: list[dict[str, Cost]]) -> Iterator[tuple[str, str]]:
    for name in runs[0]:
        wall, processor = (statistics.median(values) for values in zip(*(run[name] for run in runs), strict=True))
        label = f"vllm-watch {name}" if name in COMMANDS else f"mtail --one_shot, {name}.mtail"
        yield f"  {label}: wall, processor", f"{wall:.2f} s, {processor:.2f} s"
    for program in PROGRAMS.keys() & runs[0].keys():
        for command in COMMANDS:
            for field in Cost._fields:
                ratios = [getattr(run[program], field) / getattr(run[command], field) for run in runs]
                yield (
                    f"  {program}.mtail to {command}, {field}: least, median, most",
                    f"{min(ratios):.1f} {statistics.median(ratios):.1f} {max(ratios):.1f}",
                )


def _ours(command: str, log: Path) -> list[str]:
    return [sys.executable, "-m", "vllm_watch.cli", command, "--log", str(log)]


def _mtail(program: Path, log: Path) -> list[str]:
    return ["mtail", "--one_shot", "--logtostderr", "--progs", str(program), "--logs", str(log)]


def _cost(command: list[str]) -> Cost:
    before, start = _processor_seconds(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT)
    return Cost(time.perf_counter() - start, _processor_seconds() - before)


def _processor_seconds() -> float:
    """Return the processor time of all processes that have ended, with those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
