# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine rests: its operator has put it to sleep (``/sleep``) or paused it (``/pause``).

It takes requests and holds them, and nobody may be paged for that. Who says so can be wrong: a stranger may have
written the line, the word of its waking may be lost, and some releases leave ``engine_sleep_state`` behind. So tokens
end it: an engine at rest computes none, but for what it had begun before.
"""

from __future__ import annotations

import math

from typing import NamedTuple

from vllm_watch_parsers.events import MEMORY_TAGS, Pause


DRAIN_SECONDS = 120.0
"""A paused engine takes up no request: a prompt that is computed so long after is of one that was resumed."""

MOVING_SECONDS = 30.0
"""So long after its last token an engine that finishes what it had begun is serving."""


class Repose:
    """What one source says of a server's rest. All its engines are put to sleep and paused together."""

    def __init__(self) -> None:
        self._is_paused = False
        self._asleep: frozenset[str] = frozenset()
        self.since: float | None = None
        """When the rest began that is there; `None` if there is none."""
        self.woke_at = -math.inf

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

    def forget(self) -> None:
        """Take in that the server was started again."""
        self._is_paused, self._asleep = False, frozenset()
        self.since, self.woke_at = None, -math.inf


class Served(NamedTuple):
    """The last tokens that a source tells of: they came between `began` and `at`, prompts' after `prompted`."""

    began: float
    at: float
    prompted: float | None


def is_at_rest(since: float, served: Served | None, now: float) -> bool:
    """Tell whether an engine that was said to rest since a moment still does, by its tokens."""
    if served is None:
        return True
    if served.prompted is not None and served.prompted >= since + DRAIN_SECONDS:
        return False
    return served.began < since or now - served.at > MOVING_SECONDS
