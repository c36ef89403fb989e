# SPDX-License-Identifier: Apache-2.0
"""What happened to a server in the last hour, a bounded number of events, and since when its engines' states last."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from vllm_watch.daemon.catalog.event_texts import FileChange
from vllm_watch.daemon.catalog.states import USUAL, EngineState
from vllm_watch.daemon.state.recent_events import EVENT_SECONDS, RecentEvents
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import ServerEvent, StateSince, TailCounts
from vllm_watch_parsers.events import Failure, Lifecycle
from vllm_watch_parsers.scrape import EngineKey


_FILE_COUNTS: Mapping[FileChange, str] = {
    "rotation": "rotations",
    "truncation": "truncations",
    "lost": "files_lost",
}
"""The fields of `TailCounts` whose increase is an event."""


class EventHistory:
    """
    Takes in what happens to one server, about in order of time.

    Args:
        sources: What reports it.
    """

    def __init__(self, sources: ServerSources) -> None:
        self._sources = sources
        self._events = RecentEvents()
        self._states: dict[str, StateSince] = {}
        """The last state of each engine, by the engine."""
        self._tail: TailCounts | None = None

    def note_restart(self, at: float) -> None:
        """Take in a start that /metrics shows, unless the log shows starts."""
        if self._sources.readable_log is None:
            self._events.add(ServerEvent(at, "start"))

    def note_log(self, *, is_dated: bool = True) -> None:
        """Take in the starts and failures that the log has reported, if their times are known."""
        reported = self._sources.log.life.take_news() if self._sources.log else []
        for at, event in reported if is_dated else ():
            if isinstance(event, Failure):
                self._events.add(ServerEvent(at, "failure", event.kind, engine=event.engine))
            elif isinstance(event, Lifecycle) and event.phase == "starting":
                self._events.add(ServerEvent(at, "start"))

    def note_states(self, now: float, states: Mapping[EngineKey, EngineState]) -> None:
        """Take in the state of each engine; the first that is known of an engine is no change."""
        for key, state in states.items():
            before = self._states.get(key.engine)
            if before is not None and state == before.state:
                continue
            was_known = before is not None and before.state != "unknown"
            self._states[key.engine] = StateSince(state, now, is_exact=was_known)
            # An exact start of `unknown` is the end of a known state; any other `unknown` has nothing before it.
            if before is None or not (was_known or before.is_exact) or USUAL.issuperset({before.state, state}):
                continue
            self._events.add(ServerEvent(now, "state", state, before.state, key.engine))
        if len(self._states) > len(states):
            self._states = {key.engine: self._states[key.engine] for key in states if key.engine in self._states}

    def since(self, engine: str) -> StateSince | None:
        """Return since when an engine's last state lasts, at the wall clock's time; `None` of one without a state."""
        known = self._states.get(engine)
        return None if known is None else known._replace(at=known.at + self._sources.ahead)

    def until(self, now: float) -> tuple[ServerEvent, ...]:
        """Return what happened in the hour before `now`, oldest first, at the wall clock's times."""
        self.note_log()  # The failures that no shutdown has explained in time.
        self._note_files(now)
        change, ahead = self._sources.flags.whole_change, self._sources.ahead
        found = [*self._events.of_hour(now), *self._sources.gpu.events.of_hour(now)]
        if change is not None and change.at is not None and change.at >= now - EVENT_SECONDS:
            found.append(ServerEvent(change.at, "flags", change.text))
        found.sort(key=attrgetter("at"))
        return tuple([event._replace(at=event.at + ahead) for event in found] if ahead else found)

    def _note_files(self, now: float) -> None:
        """Take in what has become of the log's files; what came before the first call is no change."""
        before, self._tail = self._tail, self._sources.log_status.tail
        tail = self._tail
        if before is None or before == tail:
            return
        for what, field in _FILE_COUNTS.items():
            more = getattr(tail, field) - getattr(before, field)
            if more > 0:
                self._events.add(ServerEvent(now, "file", what, times=more))
