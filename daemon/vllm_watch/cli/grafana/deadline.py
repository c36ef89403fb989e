# SPDX-License-Identifier: Apache-2.0
"""A time limit for a whole request: the HTTP library limits each wait only, and a slow server never exceeds that."""

from __future__ import annotations

import threading

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar


T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """
    Return what a call returns, or raise what it raises.

    Raises:
        TimeoutError: It takes longer than these seconds. It continues in a thread that does not keep the process alive.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001  # The caller of `within` gets it.
            future.set_exception(error)

    threading.Thread(target=run, name="request", daemon=True).start()
    try:
        return future.result(seconds)
    except FutureTimeoutError as error:
        raise TimeoutError(f"no answer within {seconds:g} s") from error  # On 3.10 the two are not one.
