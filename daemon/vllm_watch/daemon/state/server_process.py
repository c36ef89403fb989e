# SPDX-License-Identifier: Apache-2.0
"""Which process answers at a server's address: when it started, and whether several servers answer there in turn."""

from __future__ import annotations

from typing import NamedTuple


SAME_START_SECONDS = 1.0
"""Start times no further apart are those of one process."""

ALTERNATION_SECONDS = 600.0
"""For this long after an earlier start time came back, several servers are assumed to answer at one address."""

REMEMBERED_STARTS = 16

ProcessName = tuple[tuple[str, str], ...]
"""The labels that tell one server's series from another's; empty where there are none."""


class ServerStart(NamedTuple):
    """
    When a server was started.

    Args:
        reported: By its own clock.
        at: By the clock that scrapes are timed with.
        is_possible: Whether that was not after the scrape that reported it first.
    """

    reported: float
    at: float
    is_possible: bool


class ServerProcess:
    """Takes in the start times that one address reports, scrape by scrape."""

    def __init__(self) -> None:
        self.start: ServerStart | None = None
        """The start of the process that answers now, if it reports one."""
        self._starts: tuple[float, ...] = ()
        """Start times that were reported, each once, the present one last."""
        self.name: ProcessName = ()
        """What tells the process that answers now from others on the same page, if there are labels that do."""
        self._names: tuple[ProcessName, ...] = ()
        self._alternated_at: float | None = None

    def alternates(self, at: float, reported: float | None, name: ProcessName = ()) -> bool:
        """
        Take in a scrape's start time and its process's name; return whether several servers answer at one address.

        A start time that comes back is no restart, neither is a name that does. The address is taken to be shared until
        they have not taken turns for minutes.
        """
        if name and name != self.name:
            others = tuple(known for known in self._names if known != name)
            if len(others) < len(self._names):
                self._alternated_at = at
            self._names = (*others, name)[-REMEMBERED_STARTS:]
            self.name = name
        if reported is not None and not (self._starts and is_same_start(self._starts[-1], reported)):
            earlier = [start for start in self._starts if not is_same_start(start, reported)]
            if len(earlier) < len(self._starts):
                self._alternated_at = at
            self._starts = (*earlier, reported)[-REMEMBERED_STARTS:]
        return self._alternated_at is not None and at - self._alternated_at < ALTERNATION_SECONDS

    def note_start(self, at: float, reported: float | None, ahead: float) -> None:
        """
        Keep the start, with the clocks as they were when it was first reported: they are corrected later.

        Args:
            at: When the scrape was complete.
            reported: The start time in it.
            ahead: Seconds by which the wall clock was ahead of the clock that `at` is from.
        """
        if not reported:
            self.start = None
        elif self.start is None or not is_same_start(reported, self.start.reported):
            start = reported - ahead
            self.start = ServerStart(reported, start, is_possible=start <= at)

    def started_by(self, moment: float) -> float:
        """Return when the server was started, by the clock of scrapes: at the latest at a moment."""
        return self.start.at if self.start is not None and self.start.is_possible else moment

    def was_started_after(self, moment: float) -> bool:
        """Return whether the server reports a start after a moment, by a clock that can be right."""
        return self.start is not None and self.start.is_possible and moment < self.start.at


def is_same_start(one: float, other: float) -> bool:
    """Return whether two start times are of one process."""
    return abs(one - other) <= SAME_START_SECONDS
