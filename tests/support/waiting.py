# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread does."""

from __future__ import annotations

import time

from collections.abc import Callable


SECONDS = 30.0
"""So long it is waited: on a machine that has much else to do."""


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
