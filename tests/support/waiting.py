# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread or process does, an end for what takes forever, and clocks that a test moves."""

from __future__ import annotations

import signal
import threading
import time

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar


SECONDS = 120.0
"""After so long what a test waits for is taken to hang. No test depends on how soon it comes."""

STEPS = (0.001, 0.05)
"""Seconds between two looks, at first and at last: what comes soon is seen soon, and what takes long is no burden."""

T = TypeVar("T")


def until(
    condition: Callable[[], T], seconds: float = SECONDS, what: Callable[[], object] = lambda: "it did not happen"
) -> T:
    """
    Wait until a condition is true, and return what it gave.

    Args:
        condition: Asked again and again.
        seconds: How long at most.
        what: Says what was there instead, if it never becomes true.
    """
    end = time.monotonic() + seconds
    step, longest = STEPS
    while not (found := condition()):
        assert time.monotonic() < end, what()
        time.sleep(step)
        step = min(2 * step, longest)
    return found


@contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """Fail with a `TimeoutError` what takes longer by the clock; for the main thread."""
    return _ends_within(seconds, signal.ITIMER_REAL, signal.SIGALRM)


@contextmanager
def computes_at_most(seconds: int) -> Iterator[None]:
    """The same in seconds of processor time: what else runs on the machine does not matter."""
    return _ends_within(seconds, signal.ITIMER_PROF, signal.SIGPROF)


def _ends_within(seconds: int, timer: int, number: signal.Signals) -> Iterator[None]:
    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    previous = signal.signal(number, fail)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, previous)


class HandClock:
    """A clock that stands until the test sets `time`, in seconds since the epoch; its wall clock is right."""

    replay_speed = None

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time

    def now(self) -> float:
        """Return the time."""
        return self.time

    def wall(self, moment: float) -> float:
        """Return the same moment."""
        return moment

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let the seconds pass at once."""
        self.time += max(seconds, 0)
        return event.is_set()
