# SPDX-License-Identifier: Apache-2.0
"""The life of a server by its log: its starts, phases, failures and its end."""

from __future__ import annotations

import math

from collections import Counter

from vllm_watch.daemon.reading.log_reader import TimedEvent
from vllm_watch.daemon.state.sleep_reports import DRAIN_SECONDS
from vllm_watch.daemon.state.snapshot import FailureTimes
from vllm_watch_parsers.events import DEFAULT_INTERVAL, Failure, FailureKind, Lifecycle


FIRST_TOKEN_SECONDS = 300.0
"""The first requests after a start may take this long: kernels are compiled for them."""

END_SECONDS = 120.0
"""
The end must follow a failure within this time, and for this long after the end its processes may still complain.
systemd kills after 90 s what does not end by itself.
"""

SHUTDOWN_SECONDS = 600.0
"""A server that has neither ended nor computed a token for this long after its shutdown started still runs."""

_MAX_HELD = 256
"""How many failures may wait for the end; others are counted at once."""


class Shutdown:
    """
    The shutdown of one server, if one is under way or just over, and the failures in it.

    A server that is stopped while requests run reports that its engine died, although it stopped the engine itself.
    This report belongs to the shutdown if the log then shows the server's end or its next start. The end may be
    missing: a server that waits for its clients' connections is killed, and with several API servers none prints the
    last line. If neither the end nor a start follows, the server crashed.
    """

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

    def end(self, at: float, *, is_restart: bool = False) -> list[TimedEvent]:
        """Take in that the server has ended, or starts again; return the failures that were not part of its end."""
        crashed = self.settle(at)
        if is_restart:
            self._ended_at = None
        elif self._began_at is not None:
            self._ended_at = at
        self._began_at = None
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


_ENDED = frozenset({"dead", "stopped", "shutting_down"})


LifeCounts = tuple[int, Counter[str], dict[str, FailureTimes]]
"""What is counted of a server's life: its starts, and its failures by kind, with their times."""


class ServerLife:
    """Takes in the lines of one log about the server's start and end and its failures, in order."""

    def __init__(self) -> None:
        self.phase: str | None = None
        """``starting``, ``ready``, ``shutting_down``, ``stopped`` or ``dead``; `None` while nothing is known."""
        self.phase_at = 0.0
        self.started_at: float | None = None
        """When it was started last, if that is known."""
        self.starts = 0
        self.failures: Counter[str] = Counter()
        self.failure_times: dict[str, FailureTimes] = {}
        self._failed_at: dict[FailureKind, float] = {}
        """When this life of the server had a failure last, by kind."""
        self._shutdown = Shutdown()
        self._news: list[TimedEvent] = []
        """The starts and failures since the last `take_news`."""

    @property
    def has_ended(self) -> bool:
        """Whether the last thing that the log reports is a fatal error or the end."""
        return self.phase in _ENDED

    def apply_phase(self, at: float, event: Lifecycle, *, is_dated: bool) -> None:
        """Take in that the server starts, is ready, shuts down or has stopped; `is_dated` is whether `at` is known."""
        if event.phase == "shutting_down":
            if self.phase == "dead":
                return  # It shuts down because its engine died: it finishes no request.
            self._shutdown.start(at)
        elif event.phase == "stopped":
            self._count_crashes(self._shutdown.end(at))
        self.phase, self.phase_at = event.phase, at
        if event.phase == "starting":
            self._count_crashes(self._shutdown.end(at, is_restart=True))
            self._failed_at.clear()
            self.starts += 1
            self._news.append(TimedEvent(at, event))
            self.started_at = at if is_dated else None

    def apply_failure(self, at: float, failure: Failure, *, has_moved: bool) -> None:
        """
        Take in a failure.

        Args:
            at: When it was written.
            failure: The failure.
            has_moved: Whether any engine has computed tokens since the server's start.
        """
        if self._shutdown.take(at, failure):
            return
        if failure.kind == "shm_timeout" and self._may_compile(at, has_moved=has_moved):
            return
        self._count(at, failure)

    def note_statistics(self, at: float, *, moves: bool, has_prompt: bool) -> None:
        """
        Take in a line of statistics: a server that prints one is ready, even if the log lacks the line about that.

        Args:
            at: When it was written.
            moves: Whether it reports tokens.
            has_prompt: Whether it reports prompt tokens.
        """
        if moves:
            self._shutdown.note_tokens(at)
        if has_prompt:
            self._shutdown.note_prompt(at)
        if self.phase in {None, "starting"} or (self.has_ended and moves and at - self.phase_at > DEFAULT_INTERVAL):
            self.phase, self.phase_at = "ready", at

    def failures_near(self, end: float) -> frozenset[FailureKind]:
        """Return the failures of this life that belong to its end: the kinds reported shortly before or after it."""
        return frozenset(kind for kind, at in self._failed_at.items() if abs(at - end) <= END_SECONDS)

    def settle(self, now: float) -> None:
        """Count the failures that no shutdown has explained in time."""
        self._count_crashes(self._shutdown.settle(now))

    def take_news(self) -> list[TimedEvent]:
        """Return the starts, and the failures that were counted, since the last call, history included."""
        news, self._news = self._news, []
        return news

    def counts(self) -> LifeCounts:
        """Return a copy of what was counted."""
        return self.starts, self.failures.copy(), self.failure_times.copy()

    def restore_counts(self, counts: LifeCounts) -> None:
        """Take back what was counted since, and forget failures that wait for the end of a shutdown."""
        self.starts, self.failures, self.failure_times = counts
        self._shutdown.forget_failures()

    def _count(self, at: float, failure: Failure) -> None:
        self._note(at, failure)
        if failure.kind == "engine_dead":
            self.phase, self.phase_at = "dead", at

    def _count_crashes(self, crashes: list[TimedEvent]) -> None:
        """Count failures that a shutdown does not explain: its line may be forged, and the engine dead."""
        for at, failure in crashes:
            if isinstance(failure, Failure):
                self._note(at, failure)
                if failure.kind == "engine_dead" and self.phase == "shutting_down":
                    self.phase, self.phase_at = "dead", at

    def _note(self, at: float, failure: Failure) -> None:
        self.failures[failure.kind] += 1
        self._failed_at[failure.kind] = at
        first, _ = self.failure_times.get(failure.kind, (at, at))
        self.failure_times[failure.kind] = FailureTimes(first, at)
        self._news.append(TimedEvent(at, failure))

    def _may_compile(self, at: float, *, has_moved: bool) -> bool:
        """Return whether a server is starting, or so new that it may be compiling for its first requests."""
        is_new = self.started_at is not None and at - self.phase_at <= FIRST_TOKEN_SECONDS and not has_moved
        return self.phase == "starting" or (self.phase == "ready" and is_new)
