# SPDX-License-Identifier: Apache-2.0
"""Recordings in virtual time, for tests."""

from __future__ import annotations

import functools

from collections.abc import Iterator, Mapping
from pathlib import Path

from vllm_watch.analysis.replay.open_recording import open_recording
from vllm_watch.analysis.replay.recording import BUNDLED, Recording
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot


ROOT = Path(__file__).parents[1]
RECORDINGS = {"day": BUNDLED, **{name: ROOT / "recordings" / name for name in ("stall", "dp1", "vl")}}
"""The recordings that everything is tried on; `recording` knows the others, too."""

SOURCES = {"both": (True, True), "log": (True, False), "metrics": (False, True)}
"""Whether the log and whether /metrics is watched."""


def recording(name: str) -> Recording:
    """Return any recording: a folder, or one file."""
    folder = RECORDINGS.get(name, ROOT / "recordings" / name)
    return open_recording(folder if folder.exists() else folder.with_name(f"{name}.jsonl.xz"))


@functools.lru_cache(maxsize=8)
def snapshots(name: str, sources: str = "both", step: float = 1.0) -> tuple[tuple[float, ServerSnapshot], ...]:
    """Return the seconds of a recording and what is known then; nobody may change it, for it is replayed once."""
    return tuple(_replay(name, sources, step))


@functools.cache
def states(name: str, sources: str = "both", step: float = 1.0) -> Mapping[int, str]:
    """Return the state of the first engine every `step` seconds of a recording, which is replayed once for it."""
    return {round(second): snapshot.engines[0].state for second, snapshot in _replay(name, sources, step)}


def _replay(name: str, sources: str, step: float) -> Iterator[tuple[float, ServerSnapshot]]:
    has_log, has_metrics = SOURCES[sources]
    state = ServerState(ServerSettings(name, has_log, 5.0 if has_metrics else None))
    played = recording(name)
    for snapshot in run_recording(played, state, step):
        yield snapshot.at - played.started, snapshot
