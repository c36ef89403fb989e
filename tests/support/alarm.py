# SPDX-License-Identifier: Apache-2.0
"""An end for what would otherwise take forever: a pattern that goes wrong, a loop that does not end."""

from __future__ import annotations

import signal

from collections.abc import Iterator
from contextlib import contextmanager


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
