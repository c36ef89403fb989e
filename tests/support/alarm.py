# SPDX-License-Identifier: Apache-2.0
"""An end for what would otherwise take forever: a pattern that goes wrong, a loop that does not end."""

from __future__ import annotations

import signal

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """Fail with a `TimeoutError` what takes longer; for the main thread."""

    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
