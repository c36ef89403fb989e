# SPDX-License-Identifier: Apache-2.0
"""Recordings in virtual time, for tests."""

from __future__ import annotations

import functools
import tempfile

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vllm_watch.analysis.replay.recording import BUNDLED, LogWritten, MetricsRead, Recording
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot


ROOT = Path(__file__).parents[1]
NAMES = tuple(sorted(path.name.partition(".")[0] for path in (ROOT / "recordings").glob("*.jsonl.xz")))
"""All recordings in ``tests/recordings``."""

SOURCES = {"both": (True, True), "log": (True, False), "metrics": (False, True)}
"""Whether the log and whether /metrics is watched."""


def recording_path(name: str) -> Path:
    """Return where a recording is: that of the package, or one of ``tests/recordings``."""
    return BUNDLED if name == "day" else ROOT / "recordings" / f"{name}.jsonl.xz"


RECORDINGS: Mapping[str, Path] = {name: recording_path(name) for name in ("day", "stall", "dp1", "vl")}
"""The recordings that everything is tried on; the functions here know all others, too."""


def recording(name: str) -> Recording:
    """Return a recording."""
    return Recording(recording_path(name))


@functools.lru_cache(maxsize=8)
def log_of(name: str) -> bytes:
    """Return the whole log of a recording."""
    return b"".join(event.data for event in recording(name).events() if isinstance(event, LogWritten))


@functools.lru_cache(maxsize=4)
def bodies_of(name: str) -> tuple[bytes, ...]:
    """Return the bodies of /metrics in a recording, in order."""
    return tuple(event.body for event in recording(name).events() if isinstance(event, MetricsRead) and event.body)


def log_file(name: str) -> Path:
    """Return the path of a recording's log, in a file that nobody may change."""
    return _written(f"{name}/vllm.log", log_of(name))


def body_file(name: str, number: int) -> Path:
    """Return the path of a body of /metrics in a recording, by its place in `bodies_of`."""
    return _written(f"{name}/{number}.txt", bodies_of(name)[number])


def _written(name: str, content: bytes) -> Path:
    path = Path(_folder().name) / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vllm-watch-recordings-")


@functools.lru_cache(maxsize=8)
def snapshots(name: str, sources: str = "both", step: float = 1.0) -> tuple[tuple[float, ServerSnapshot], ...]:
    """Return the seconds of a recording and what is known then; nobody may change it, for it is replayed once."""
    return tuple(_replay(name, sources, step))


@functools.cache
def states(name: str, sources: str = "both", step: float = 1.0) -> Mapping[int, str]:
    """Return the state of the first engine every `step` seconds of a recording, which is replayed once for it."""
    return {round(second): seen.state for second, seen in _replay(name, sources, step, kind=_States)}


class _Seen(NamedTuple):
    at: float
    state: str
    cost_per_hour: float | None = None


class _States(ServerState):
    """A server's state that is asked for the states of its engines alone: that is a tenth of a snapshot's cost."""

    def snapshot(self, now, ahead=0.0):
        """Return the state of the first engine."""
        return _Seen(now + ahead, next(iter(self.engine_states(now).values())))


def _replay(name, sources, step, kind=ServerState):
    has_log, has_metrics = SOURCES[sources]
    played = recording(name)
    for snapshot in run_recording(played, kind(ServerSettings(name, has_log, 5.0 if has_metrics else None)), step):
        yield snapshot.at - played.started, snapshot
