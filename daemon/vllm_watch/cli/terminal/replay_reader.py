# SPDX-License-Identifier: Apache-2.0
"""Recorded servers in virtual time: what was recorded goes straight into the daemon's state."""

from __future__ import annotations

import datetime as dt

from collections.abc import Collection, Iterator, Sequence

import msgspec

from vllm_watch.analysis.replay.recording import RecordedEvent, Recording
from vllm_watch.analysis.replay.replay import ReplayedServer
from vllm_watch.cli.terminal.reading_thread import DocumentReader
from vllm_watch.daemon.service.snapshot_document import HISTORY_STEP, ChartHistory, document, server_document
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.support.clock import Clock


_LOOK_SECONDS = 1.0
"""How often the state is looked at, so that no change of it is missed."""


class _ServerReplay:
    """A recorded server from its start on; time only goes forward."""

    def __init__(self, recording: Recording, server: str) -> None:
        self._started = recording.started
        sources = recording.sources[server]
        self._cost_per_hour = sources.cost_per_hour
        self._state = ServerState(sources.settings(server))
        self._replayed = ReplayedServer(self._state, recording.started)
        self._hour = ChartHistory()
        self._events: Iterator[RecordedEvent] = recording.events(server)
        self._next: RecordedEvent | None = next(self._events, None)
        self._looked = self._charted = 0.0

    def advance(self, seconds: float) -> None:
        """Let happen what happened until so many seconds after the recording's start."""
        while self._looked + _LOOK_SECONDS <= seconds:
            self._looked += _LOOK_SECONDS
            self._apply_until(self._looked)
            self._state.engine_states(self._started + self._looked)
            if self._looked >= self._charted + HISTORY_STEP:
                self._charted = self._looked
                at = self._started + self._looked
                self._hour.add(at, self._state.snapshot(at))
        self._apply_until(seconds)

    def document(self, seconds: float, hours: Collection[str] | None) -> msgspec.Raw:
        """Return what is known so many seconds after the start, to which `advance` has gone."""
        snapshot = self._state.snapshot(self._started + seconds)._replace(cost_per_hour=self._cost_per_hour)
        return server_document(snapshot, self._hour if hours is None or snapshot.name in hours else None)

    def _apply_until(self, seconds: float) -> None:
        while self._next is not None and self._next.at <= seconds:
            self._replayed.apply(self._next)
            self._next = next(self._events, None)


class Replay:
    """Recorded servers from their start on; time only goes forward."""

    def __init__(self, recording: Recording, servers: Sequence[str]) -> None:
        self._started = recording.started
        self._servers = [_ServerReplay(recording, server) for server in servers]

    def advance(self, seconds: float) -> None:
        """Let happen what happened until so many seconds after the recording's start."""
        for server in self._servers:
            server.advance(seconds)

    def document(self, seconds: float, hours: Collection[str] | None) -> bytes:
        """Return what is known so many seconds after the start, to which `advance` has gone."""
        return document(self._started + seconds, [server.document(seconds, hours) for server in self._servers])


class ReplayReader(DocumentReader):
    """
    Replays recorded servers, again and again from their start.

    Args:
        recording: The recording.
        servers: Which of its servers.
        clock: The time, which may run faster than the machine's.
        name: What is replayed, and how fast.
        is_end_only: Whether only its end is shown.
    """

    def __init__(
        self, recording: Recording, servers: Sequence[str], clock: Clock, name: str, *, is_end_only: bool = False
    ) -> None:
        self._name = name
        self._recording = recording
        self._servers = servers
        self._clock = clock
        self._start = clock.now()
        self._seconds = 0.0  # Where the recording was read last.
        self._is_end_only = is_end_only
        self._replay = Replay(recording, servers)

    @property
    def title(self) -> str:  # type: ignore[override]  # It changes with the time.
        """What is replayed, and which part of it is shown."""
        now, whole = (dt.timedelta(seconds=round(each)) for each in (self._seconds, self._recording.seconds))
        return f"{self._name}, {'its end' if self._is_end_only else f'{now} of {whole}'}"

    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return what was known at this moment of the recording.

        Raises:
            FileError: The recording cannot be read any more.
        """
        before, seconds = self._seconds, self._position()
        if seconds < before:
            self._replay = Replay(self._recording, self._servers)
        self._replay.advance(seconds)
        return self._replay.document(seconds, hours)

    def _position(self) -> float:
        """Return how many seconds after its start the recording is; after its end it begins again."""
        self._seconds = self._recording.seconds if self._is_end_only else self._clock.now() - self._start
        if self._seconds > self._recording.seconds:
            self._start, self._seconds = self._clock.now(), 0.0
        return self._seconds
