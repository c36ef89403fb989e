# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread or process does."""

from __future__ import annotations

import time

from collections.abc import Callable
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
