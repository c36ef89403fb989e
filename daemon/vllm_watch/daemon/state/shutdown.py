# SPDX-License-Identifier: Apache-2.0
"""
Failures while a server shuts down.

A server that is stopped while requests run reports that its engine died, although it stopped the engine itself. This
report belongs to the shutdown if the log then shows the server's end or its next start. The end may be missing: a
server that waits for its clients' connections is killed, and with several API servers none prints the last line. If
neither the end nor a start follows, the server crashed.
"""

from __future__ import annotations

import math

from vllm_watch.daemon.reading.log_reader import TimedEvent
from vllm_watch.daemon.state.sleep_reports import DRAIN_SECONDS
from vllm_watch_parsers.events import Failure


END_SECONDS = 120.0
"""
The end must follow a failure within this time, and for this long after the end its processes may still complain.
systemd kills after 90 s what does not end by itself.
"""

SHUTDOWN_SECONDS = 600.0
"""A server that has neither ended nor computed a token for this long after its shutdown started still runs."""

_MAX_HELD = 256
"""So many failures wait for the end; others are counted at once."""


class Shutdown:
    """The shutdown of one server, if one is under way or just over."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._ended_at: float | None = None
        self._busy_at = -math.inf
        self._held: list[TimedEvent] = []

    def start(self, at: float) -> None:
        """Take in that the server starts to shut down."""
        self._began_at, self._ended_at = at, None

    def take(self, at: float, failure: Failure) -> bool:
        """Take in a failure; return whether it belongs to a shutdown, as far as is known now."""
        if self._ended_at is not None:
            return at - self._ended_at <= END_SECONDS
        if self._began_at is None or len(self._held) >= _MAX_HELD:
            return False
        if not self._held and at - max(self._began_at, self._busy_at) > SHUTDOWN_SECONDS:
            self._began_at = None
            return False
        self._held.append(TimedEvent(at, failure))
        return True

    def end(self, at: float) -> list[TimedEvent]:
        """Take in that the server has ended; return the failures that were not part of that."""
        crashed = self.settle(at)
        if self._began_at is not None:
            self._ended_at = at
        self._began_at = None
        self._held.clear()
        return crashed

    def restart(self, at: float) -> list[TimedEvent]:
        """Take in that the server starts again; return the failures that were not part of its end."""
        crashed = self.settle(at)
        self._began_at = self._ended_at = None
        self._held.clear()
        return crashed

    def note_prompt(self, at: float) -> None:
        """Take in that a prompt was computed: long after its shutdown started no server does that."""
        if self._began_at is not None and at - self._began_at > DRAIN_SECONDS:
            self._began_at = None

    def note_tokens(self, at: float) -> None:
        """Take in that there were tokens: it may finish its requests during a shutdown, however long that takes."""
        self._busy_at = at

    def forget_failures(self) -> None:
        """Take in that the failures so far were before the daemon started."""
        self._held.clear()

    def settle(self, now: float) -> list[TimedEvent]:
        """
        Return the failures whose end should have followed by now, each once.

        They were crashes, whatever is read later: an end whose line was written in time may have been read too late.
        """
        overdue = [failed for failed in self._held if now - failed.at > END_SECONDS]
        self._held = [failed for failed in self._held if now - failed.at <= END_SECONDS]
        return overdue
