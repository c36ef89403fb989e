# SPDX-License-Identifier: Apache-2.0
"""
What each source reports about sleep: an operator puts a server to sleep (``/sleep``) or pauses it (``/pause``).

The server then accepts requests and holds them; nobody is paged for that. A report can be wrong: it may be forged, the
line that ends the sleep may be lost, and some releases do not reset ``engine_sleep_state``. So new tokens end a
reported sleep: a sleeping engine computes no tokens, except for requests that it started before the sleep.
"""

from __future__ import annotations

import math

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from vllm_watch_parsers.events import MEMORY_TAGS, AccessRequest, SleepKind, SleepOrPause
from vllm_watch_parsers.metric_names import IN_FLIGHT, ServerSeries
from vllm_watch_parsers.readings import HttpRequests


DRAIN_SECONDS = 120.0
"""A paused engine starts no request: if a prompt is computed this long after the pause, the engine was resumed."""

MOVING_SECONDS = 30.0
"""An engine that finishes its running requests is serving until this long after its last token."""

PAUSING: Mapping[str, SleepKind] = {"/pause": "paused", "/resume": "resumed"}
"""Handlers by which an operator pauses and resumes an engine."""

WAKE_UP = "/wake_up"
"""The handler by which an operator wakes an engine up; that also ends a pause."""

_OK = 200
_HANDLERS = frozenset({*PAUSING, WAKE_UP})


class SleepReports:
    """What one source reports about a server's sleep. All its engines are put to sleep and paused together."""

    def __init__(self) -> None:
        self._is_paused = False
        self._asleep: frozenset[str] = frozenset()
        self.since: float | None = None
        """When the present sleep or pause started; `None` if there is none."""
        self.woke_at = -math.inf

    def apply(self, at: float, event: SleepOrPause) -> None:
        """Take in what the engine reports."""
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

    def apply_calls(self, at: float, called: Collection[SleepKind]) -> None:
        """
        Take in which calls to pause and to resume were answered since the last time, in whatever order.

        Their order is lost: if there were both, the server is taken to be awake.
        """
        if called:
            self.apply(at, SleepOrPause("resumed" if "resumed" in called else "paused"))

    @property
    def is_asleep(self) -> bool:
        """Whether memory is given up, as far as was reported."""
        return bool(self._asleep)

    def forget(self) -> None:
        """Take in that the server was started again, or that reports were missed."""
        self._is_paused, self._asleep = False, frozenset()
        self.since, self.woke_at = None, -math.inf


class LoggedSleep(SleepReports):
    """What a log reports: since 0.32 lines about each pause, before that only access lines of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.prints_pauses = False
        """Whether it has had lines about pauses."""

    def apply_line(self, at: float, event: SleepOrPause) -> None:
        """Take in a line."""
        self.prints_pauses |= event.kind in PAUSING.values()
        self.apply(at, event)

    def apply_calls_before(self, at: float, called: Collection[str]) -> None:
        """Take in the calls to pause and resume, of those in a batch, before its other lines."""
        if not self.prints_pauses:
            self.apply_calls(at, [PAUSING[path] for path in called if path in PAUSING])

    def apply_calls_after(self, at: float, called: Collection[str]) -> None:
        """Take in a call to wake up, after the other lines: the engine prints which memory it has back before it."""
        if not self.prints_pauses and WAKE_UP in called and not self.is_asleep:
            self.apply(at, SleepOrPause("resumed"))

    def forget(self) -> None:
        """Take in that the server was started again, or that reports were missed."""
        super().forget()
        self.prints_pauses = False


MAX_OPERATION_SECONDS = 600.0
"""An operation that is in flight for longer hangs, and excuses nothing."""


class ScrapedSleep(SleepReports):
    """What /metrics reports: the server's counts of calls, and operations in flight that stop its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._operates_since: float | None = None
        self.operated_at = -math.inf
        """When such an operation was last in flight: weights that a trainer updates, a sleep, a waking up."""

    def note_operations(self, at: float, values: Mapping[ServerSeries, float]) -> None:
        """Take in what a scrape has about the whole server."""
        if any(value for series, value in values.items() if series.name in IN_FLIGHT):
            self._operates_since = at if self._operates_since is None else self._operates_since
            if at - self._operates_since <= MAX_OPERATION_SECONDS:
                self.operated_at = at
        else:
            self._operates_since = None

    def note_calls(
        self,
        at: float,
        before: Mapping[HttpRequests, float] | None,
        counts: Mapping[HttpRequests, float],
        *,
        is_awake: bool,
    ) -> None:
        """
        Take in how many calls a scrape and the one before it have counted; only increases count.

        Totals prove nothing: a server that is paused twice is paused, and one that is resumed twice is not.
        """
        if before is None:
            return
        moved = {handler for handler in (*PAUSING, WAKE_UP) if _calls(counts, handler) > _calls(before, handler)}
        self.apply_calls(at, [kind for handler, kind in PAUSING.items() if handler in moved])
        if WAKE_UP in moved and is_awake:
            self.apply(at, SleepOrPause("resumed"))

    def forget(self) -> None:
        """Take in that the server was started again, or that reports were missed."""
        super().forget()
        self._operates_since, self.operated_at = None, -math.inf


class TokenSpan(NamedTuple):
    """When the last tokens in a source were computed: between `start` and `at`, prompts' after `prompted`."""

    start: float
    at: float
    prompted: float | None


def later(one: TokenSpan | None, other: TokenSpan | None) -> TokenSpan | None:
    """Return the later of the last tokens in two sources."""
    if one is None or other is None:
        return one or other
    last = max(one, other, key=lambda span: span.at)
    prompted = [span.prompted for span in (one, other) if span.prompted is not None]
    return last._replace(prompted=max(prompted, default=None))


def is_still_asleep(since: float, tokens: TokenSpan | None, now: float) -> bool:
    """Return whether an engine that was reported to sleep since a moment still does, by its tokens."""
    if tokens is None:
        return True
    if tokens.prompted is not None and tokens.prompted >= since + DRAIN_SECONDS:
        return False
    return tokens.start < since or now - tokens.at > MOVING_SECONDS


def sleep_calls(requests: Iterable[AccessRequest]) -> set[str]:
    """Return which handlers that pause, resume or wake an engine up were called, and answered that it is done."""
    return {
        request.path
        for request in requests
        if request.path in _HANDLERS and request.method == "POST" and request.status == _OK
    }


def _calls(counts: Mapping[HttpRequests, float], handler: str) -> float:
    done = ("POST", handler, "2xx")
    return sum(count for request, count in counts.items() if request == done)
