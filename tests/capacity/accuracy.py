# SPDX-License-Identifier: Apache-2.0
"""
How well the curve predicts: estimates from the time before an engine was saturated, beside what was measured then.

The estimate is the one that the daemon had when saturation began: it has seen nothing of what it is judged by.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.loadtest.load_tests import FOLDER
from tests.support.recordings import NAMES, recording_path

from vllm_watch.analysis.replay.recording import BUNDLED, Recording
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.capacity.curve import Curve, NoCurve
from vllm_watch.daemon.capacity.tracker import curve_range
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


STEP = 5.0


class Judged(NamedTuple):
    """
    One saturation: who was saturated, the curve of the time before it, and what was measured.

    `measured` is in generated tokens per second, over `seconds`.
    """

    name: str
    before: Curve | NoCurve
    measured: float
    seconds: float

    @property
    def error(self) -> float | None:
        """By which part of what was measured the estimate is too high; `None` if there was none."""
        return (
            None if isinstance(self.before, NoCurve) else curve_range(self.before).tokens_per_second / self.measured - 1
        )


def recordings() -> list[Path]:
    """Return all recordings of this repository."""
    return [BUNDLED, *map(recording_path, NAMES), *sorted(FOLDER.glob("*.jsonl.xz"))]


def name_of(path: Path) -> str:
    """Return a recording's name."""
    return path.name.partition(".")[0]


def judge_recording(path: Path) -> Iterator[Judged]:
    """Yield each saturation in a recording that is long enough to measure."""
    recording = Recording(path)
    for server in recording.servers:
        sources = recording.sources[server]
        if sources.scrape_interval is None:
            continue
        state = ServerState(ServerSettings(server, sources.log, sources.scrape_interval))
        judging = _Judging(name_of(path))
        for snapshot in run_recording(recording, state, STEP, server=server):
            for engine in snapshot.engines:
                tracker = state._sources.scrape.capacity.get(engine.key)
                if tracker is not None:
                    judging.look(engine.key, tracker, engine.facts, snapshot.at)
        yield from judging.judged()


class _Judging:
    """Keeps what was said of each engine until it was saturated, and what was measured then."""

    def __init__(self, name):
        self._name = name
        self._said, self._measured = {}, {}

    def look(self, key, tracker, facts, at):
        said = self._said.setdefault((key, id(tracker)), [])
        curve = tracker.learnt(facts).curve
        if not said or said[-1][1] is not curve:
            said.append((at, curve))
        for stretch in tracker.meter.stretches:
            if stretch.shows_capacity(facts):
                self._measured[key, id(tracker), stretch.start] = stretch

    def judged(self):
        ended = None
        for (key, tracker, start), stretch in self._measured.items():
            # A long saturation is measured in parts: the second goes on where the first ended.
            if start != ended:
                before = [curve for at, curve in self._said[key, tracker] if at <= start]
                yield Judged(self._name, before[-1], stretch.generated, stretch.seconds)
            ended = start + stretch.seconds
