# SPDX-License-Identifier: Apache-2.0
"""
`vllm-watch once` and `backfill` against `mtail --one_shot`, whole processes in turn, on the same million lines.

A million lines of the recorded day are four and a half days of a server with 2.5 lines a second. A busy server writes
as many in three hours. What `backfill` costs goes by the hours, for every five seconds have their samples; what mtail
costs goes by the lines.
"""

from __future__ import annotations

import os
import statistics
import tempfile

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.old_logs import write_busy_day, write_day
from tests.benchmarks.programs import MTAIL_PROGRAMS, VLLM_WATCH, Took, has_mtail, run_to_end


RUNS = 3
BUSY = "busy server"
MTAIL_ONCE = ["mtail", "--one_shot", "--logtostderr"]
PROGRAMS = {"lean": ("lean.mtail", 3.0), "rich": ("vllm.mtail", 7.5)}
"""mtail's programs, and how many times as fast we have to be: one for what the current release writes, one for all."""


def measure() -> Iterator[Figure]:
    """Yield what the recorded day and a busy server cost: medians, and ratios to mtail; without it only our own."""
    yield from _measure(write_day)
    yield from (figure._replace(name=f"{BUSY}: {figure.name}") for figure in _measure(write_busy_day))


def _measure(write: Callable[[Path], int]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        lines = write(log)
        ours = {
            "once": [*VLLM_WATCH, "once", "--log", str(log)],
            "backfill": [*VLLM_WATCH, "backfill", str(log), "-o", os.devnull],
        }
        theirs = {
            f"mtail, {name}": [*MTAIL_ONCE, "--progs", str(MTAIL_PROGRAMS / file), "--logs", str(log)]
            for name, (file, _) in PROGRAMS.items()
            if has_mtail()
        }
        rounds = [{name: run_to_end(command) for name, command in (ours | theirs).items()} for _ in range(RUNS)]
    for name in (*ours, *theirs):
        seconds = statistics.median(each[name].seconds for each in rounds)
        yield Figure(name, seconds, "s", note=f"{lines / seconds / 1e6:.2f} million lines/s")
    for name in ours:
        processor = statistics.median(each[name].processor for each in rounds)
        yield Figure(f"{name}: processor", processor, "s of a core", "lower", is_processor=True)
    for name in ours:
        for program, (_, goal) in PROGRAMS.items():
            yield from _ratios(name, program, goal, rounds)


def _ratios(name: str, program: str, goal: float, rounds: Sequence[Mapping[str, Took]]) -> Iterator[Figure]:
    """Yield how many times as fast a command is as mtail with a program, and as cheap, round by round."""
    told, peer = f"{name}, against {program} mtail", f"mtail, {program}"
    pairs = [(each[peer], each[name]) for each in rounds if peer in each]
    if not pairs:
        yield Figure(told, None, "x as fast", "higher", goal, note="mtail is not installed")
        yield Figure(f"{told}: processor", None, "x as cheap", "higher")
        return
    fast = [other.seconds / own.seconds for other, own in pairs]
    cheap = [other.processor / own.processor for other, own in pairs]
    note = f"least {min(fast):.1f}, most {max(fast):.1f}"
    yield Figure(told, statistics.median(fast), "x as fast", "higher", goal, note=note)
    yield Figure(f"{told}: processor", statistics.median(cheap), "x as cheap", "higher")
