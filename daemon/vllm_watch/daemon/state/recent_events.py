# SPDX-License-Identifier: Apache-2.0
"""The last events of a server, a bounded number, for an hour."""

from __future__ import annotations

from vllm_watch.daemon.state.snapshot import ServerEvent


EVENT_SECONDS = 3600.0
"""How long an event is shown."""

MAX_EVENTS = 50
"""So many events of a server are kept, the last ones."""

_COUNTED = frozenset({"failure", "xid"})
"""Events of these kinds that repeat without another in between are one, which is counted."""


class RecentEvents:
    """Takes in events, about in order of time."""

    def __init__(self) -> None:
        self._events: list[ServerEvent] = []  # Mostly empty, and there are three of each server: a deque has 700 bytes.

    def add(self, event: ServerEvent) -> None:
        """Take in an event; a failure like the one before it is counted with that."""
        last = self._events[-1] if self._events else None
        if last is not None and event.kind in _COUNTED and _is_same(last, event):
            self._events[-1] = event._replace(at=max(last.at, event.at), times=last.times + event.times)
        else:
            self._events.append(event)
            del self._events[:-MAX_EVENTS]

    def of_hour(self, now: float) -> list[ServerEvent]:
        """Return those of the hour before `now`."""
        return [event for event in self._events if event.at >= now - EVENT_SECONDS]


def _is_same(one: ServerEvent, other: ServerEvent) -> bool:
    return (one.kind, one.what, one.engine, one.gpu) == (other.kind, other.what, other.engine, other.gpu)
