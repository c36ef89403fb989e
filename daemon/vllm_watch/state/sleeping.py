# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine rests: its operator has put it to sleep (``/sleep``) or paused it (``/pause``).

It takes requests and holds them, and nobody may be paged for that. Who says so can be wrong: a stranger may have
written the line, the word of its waking may be lost, and some releases leave ``engine_sleep_state`` behind. So tokens
end it: an engine at rest computes none, but for what it had begun before.
"""

from __future__ import annotations

import math

from collections.abc import Collection
from typing import NamedTuple

from vllm_watch_parsers.events import MEMORY_TAGS, Pause, PauseKind


DRAIN_SECONDS = 120.0
"""A paused engine takes up no request: a prompt that is computed so long after is of one that was resumed."""

MOVING_SECONDS = 30.0
"""So long after its last token an engine that finishes what it had begun is serving."""


class Sleep:
    """What one source says of a server's rest. All its engines are put to sleep and paused together."""

    def __init__(self) -> None:
        self._is_paused = False
        self._asleep: frozenset[str] = frozenset()
        self.since: float | None = None
        """When the rest began that is there; `None` if there is none."""
        self.woke_at = -math.inf
        self._is_call_open = False
        self._resumed_early_at = -math.inf

    def apply(self, at: float, event: Pause) -> None:
        """Take in what the engine says."""
        if event.kind == "paused":
            self._is_paused = True
        elif event.kind == "asleep":
            self._asleep = MEMORY_TAGS
        elif event.kind == "awake":
            self._asleep -= frozenset(event.memory) or MEMORY_TAGS
        else:  # What is resumed has all its memory back.
            self._is_paused, self._asleep = False, frozenset()
        if not (self._is_paused or self._asleep):
            self.since, self.woke_at = None, at
        elif self.since is None:
            self.since = at

    def apply_calls(self, at: float, called: Collection[PauseKind]) -> None:
        """
        Take in which calls to pause and to resume were answered since the last look, in whatever order.

        Of both the order is lost: a rest that nobody can vouch for is none. A call to pause that waits for what runs
        may be answered after the call to resume that ended its pause.
        """
        if "resumed" in called:
            is_early = not self._is_call_open and "paused" not in called
            self._resumed_early_at = at if is_early else -math.inf
            self._is_call_open = False
            self.apply(at, Pause("resumed"))
        elif "paused" in called:
            is_late = at - self._resumed_early_at <= DRAIN_SECONDS
            self._resumed_early_at = -math.inf
            if not is_late:
                self._is_call_open = True
                self.apply(at, Pause("paused"))

    def begin_paused(self) -> None:
        """Take in that there may be a pause from before anyone watched: the next call to resume may end it."""
        self._is_call_open = True

    @property
    def is_asleep(self) -> bool:
        """Whether memory is given up, as far as was said."""
        return bool(self._asleep)

    def forget(self) -> None:
        """Take in that the server was started again, or that what it said of its rest was missed."""
        self._is_paused, self._asleep = False, frozenset()
        self.since, self.woke_at = None, -math.inf
        self._is_call_open, self._resumed_early_at = False, -math.inf


class Served(NamedTuple):
    """The last tokens that a source tells of: they came between `began` and `at`, prompts' after `prompted`."""

    began: float
    at: float
    prompted: float | None


def later(one: Served | None, other: Served | None) -> Served | None:
    """Return the later of the last tokens that two sources tell of."""
    if one is None or other is None:
        return one or other
    last = max(one, other, key=lambda served: served.at)
    prompted = [served.prompted for served in (one, other) if served.prompted is not None]
    return last._replace(prompted=max(prompted, default=None))


def is_at_rest(since: float, served: Served | None, now: float) -> bool:
    """Tell whether an engine that was said to rest since a moment still does, by its tokens."""
    if served is None:
        return True
    if served.prompted is not None and served.prompted >= since + DRAIN_SECONDS:
        return False
    return served.began < since or now - served.at > MOVING_SECONDS
