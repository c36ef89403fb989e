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
For this long after the end of a server its processes may still complain, and failures at most this long before or after
it explain it. systemd kills after 90 s what does not end by itself.
"""

SHUTDOWN_SECONDS = 600.0
"""A server that has not computed a token for this long after its shutdown started still runs."""

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
        self._stops_since = self._excused_until = -math.inf
        """
        Since when a shutdown is under way, and until when failures belong to it and are not counted: a server that is
        stopped while requests run reports that its engine died, although it stopped the engine itself.
        """
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
            self._stops_since, self._excused_until = at, at + SHUTDOWN_SECONDS
        elif event.phase == "stopped" and at <= self._excused_until:
            self._excused_until = at + END_SECONDS
        self.phase, self.phase_at = event.phase, at
        if event.phase == "starting":
            self._excused_until = -math.inf
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
        if at <= self._excused_until:
            return
        if failure.kind == "shm_timeout" and self._may_compile(at, has_moved=has_moved):
            return
        self.failures[failure.kind] += 1
        self._failed_at[failure.kind] = at
        first, _ = self.failure_times.get(failure.kind, (at, at))
        self.failure_times[failure.kind] = FailureTimes(first, at)
        self._news.append(TimedEvent(at, failure))
        if failure.kind == "engine_dead":
            self.phase, self.phase_at = "dead", at

    def note_statistics(self, at: float, *, moves: bool, has_prompt: bool) -> None:
        """
        Take in a line of statistics: a server that prints one is ready, even if the log lacks the line about that.

        Args:
            at: When it was written.
            moves: Whether it reports tokens.
            has_prompt: Whether it reports prompt tokens.
        """
        if has_prompt and at - self._stops_since > DRAIN_SECONDS:
            self._excused_until = -math.inf  # Long after its shutdown started no server computes a prompt.
        elif moves and at <= self._excused_until:
            self._excused_until = at + SHUTDOWN_SECONDS  # It finishes its requests, however long that takes.
        if self.phase in {None, "starting"} or (self.has_ended and moves and at - self.phase_at > DEFAULT_INTERVAL):
            self.phase, self.phase_at = "ready", at

    def failures_near(self, end: float) -> frozenset[FailureKind]:
        """Return the failures of this life that belong to its end: the kinds reported shortly before or after it."""
        return frozenset(kind for kind, at in self._failed_at.items() if abs(at - end) <= END_SECONDS)

    def take_news(self) -> list[TimedEvent]:
        """Return the starts, and the failures that were counted, since the last call, history included."""
        news, self._news = self._news, []
        return news

    def counts(self) -> LifeCounts:
        """Return a copy of what was counted."""
        return self.starts, self.failures.copy(), self.failure_times.copy()

    def restore_counts(self, counts: LifeCounts) -> None:
        """Take back what was counted since."""
        self.starts, self.failures, self.failure_times = counts

    def _may_compile(self, at: float, *, has_moved: bool) -> bool:
        """Return whether a server is starting, or so new that it may be compiling for its first requests."""
        is_new = self.started_at is not None and at - self.phase_at <= FIRST_TOKEN_SECONDS and not has_moved
        return self.phase == "starting" or (self.phase == "ready" and is_new)
