# SPDX-License-Identifier: Apache-2.0
"""What happened to a server in the last hour, a bounded number of events; its engines' states and their stalls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from vllm_watch.daemon.catalog.event_texts import FileChange
from vllm_watch.daemon.catalog.states import USUAL, EngineState
from vllm_watch.daemon.reading.log_reader import TailCounts, TimedEvent
from vllm_watch.daemon.state.snapshot import ConfigChange, ServerEvent, StallCount, StateSince
from vllm_watch.daemon.state.xid_events import XidEvent
from vllm_watch_parsers.events import Failure, Lifecycle
from vllm_watch_parsers.exposition import EngineKey


EVENT_SECONDS = 3600.0
"""How long an event is shown."""

MAX_EVENTS = 50
"""The most events of a kind that are kept, the last ones: many of one kind hide no other."""

_COUNTED = frozenset({"failure", "xid"})
"""Events of these kinds that repeat without another in between are one, which is counted."""


_FILE_COUNTS: Mapping[FileChange, str] = {
    "rotation": "rotations",
    "truncation": "truncations",
    "lost": "files_lost",
}
"""The fields of `TailCounts` whose increase is an event."""


class EventHistory:
    """Takes in what happens to one server, about in order of time."""

    def __init__(self) -> None:
        self._events: list[ServerEvent] = []  # Mostly empty: a deque has 700 bytes.
        self._states: dict[str, StateSince] = {}
        """The last state of each engine, by the engine."""
        self._stalls: dict[str, StallCount] = {}
        self._stalled: set[str] = set()
        self._noted_at = 0.0
        self._tail: TailCounts | None = None
        self.xids: int | None = None
        """How many errors of its GPUs the kernel has reported; `None` until its log is read and the GPUs are known."""

    def add(self, event: ServerEvent) -> None:
        """Take in an event; a failure like the one before it is counted with that."""
        last = self._events[-1] if self._events else None
        if last is not None and event.kind in _COUNTED and event == last._replace(at=event.at, times=1):
            self._events[-1] = event._replace(at=max(last.at, event.at), times=last.times + 1)
        else:
            self._events.append(event)
            alike = [each for each in self._events if each.kind == event.kind]
            if len(alike) > MAX_EVENTS:
                self._events.remove(alike[0])

    def note_log(self, news: Iterable[TimedEvent]) -> None:
        """Take in the starts and failures that the log has reported."""
        for at, event in news:
            if isinstance(event, Failure):
                self.add(ServerEvent(at, "failure", event.kind, engine=event.engine, path=event.path))
            elif isinstance(event, Lifecycle) and event.phase == "starting":
                self.add(ServerEvent(at, "start"))

    def note_xids(self, events: Sequence[XidEvent], *, are_all: bool, ahead: float) -> None:
        """
        Take in new errors of the server's GPUs.

        Args:
            events: The errors, at the wall clock's times.
            are_all: Whether none of its GPUs' errors can be missed.
            ahead: How many seconds the wall clock is ahead of the clock of the other events.
        """
        if events or are_all:
            self.xids = (self.xids or 0) + len(events)
        for event in events:
            self.add(ServerEvent(event.at - ahead, "xid", event.code, gpu=event.pci))

    def note_states(self, now: float, states: Mapping[EngineKey, EngineState]) -> None:
        """Take in the state of each engine; the first that is known of an engine is no change."""
        for key, state in states.items():
            before = self._states.get(key.engine)
            self._count_stall(key.engine, state, before, now - self._noted_at)
            if before is not None and state == before.state:
                continue
            was_known = before is not None and before.state != "unknown"
            self._states[key.engine] = StateSince(state, now, is_exact=was_known)
            # An exact start of `unknown` is the end of a known state; any other `unknown` has nothing before it.
            if before is None or not (was_known or before.is_exact) or USUAL.issuperset({before.state, state}):
                continue
            self.add(ServerEvent(now, "state", state, before.state, key.engine))
        self._noted_at = now
        if len(self._states) > len(states):
            self._states = {key.engine: self._states[key.engine] for key in states if key.engine in self._states}

    def _count_stall(self, engine: str, state: EngineState, before: StateSince | None, seconds: float) -> None:
        count = self.stalls(engine)
        if before is not None and before.state == "stalled":
            count = count._replace(seconds=count.seconds + max(seconds, 0.0))
        if state == "stalled" and engine not in self._stalled:
            count = count._replace(stalls=count.stalls + 1)
            self._stalled.add(engine)
        elif state not in {"stalled", "unknown"}:  # What is unknown for a while is no end of a stall.
            self._stalled.discard(engine)
        self._stalls[engine] = count

    def stalls(self, engine: str) -> StallCount:
        """Return how often and for how long an engine was stalled."""
        return self._stalls.get(engine, StallCount())

    def since(self, engine: str, ahead: float) -> StateSince | None:
        """Return since when an engine's last state lasts, as so much later; `None` of one without a state."""
        since = self._states.get(engine)
        return None if since is None else since._replace(at=since.at + ahead)

    def until(self, now: float, change: ConfigChange | None, ahead: float) -> tuple[ServerEvent, ...]:
        """
        Return what happened in the hour before `now`, oldest first.

        Args:
            now: The moment.
            change: The last change of flags.
            ahead: How many seconds the wall clock, which times are shown by, is ahead of the clock of the events.
        """
        events = [event for event in self._events if event.at >= now - EVENT_SECONDS]
        if change is not None and change.at is not None and change.at >= now - EVENT_SECONDS:
            events.append(ServerEvent(change.at, "flags", change.text))
        events.sort(key=attrgetter("at"))
        return tuple(event._replace(at=event.at + ahead) for event in events)

    def note_files(self, now: float, tail: TailCounts) -> None:
        """Take in what has become of the log's files; what came before the first call is no change."""
        before, self._tail = self._tail, tail
        if before is None or before == tail:
            return
        for what, field in _FILE_COUNTS.items():
            more = getattr(tail, field) - getattr(before, field)
            if more > 0:
                self.add(ServerEvent(now, "file", what, times=more))
