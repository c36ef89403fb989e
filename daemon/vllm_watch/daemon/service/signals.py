# SPDX-License-Identifier: Apache-2.0
"""
The signals that end the daemon (SIGTERM, SIGINT) or make it reload (SIGHUP, which ends what has nothing to reload).

What a reload does is in `reloader`, and a stop in `supervisor`.
"""

from __future__ import annotations

import signal
import time

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


TOGETHER_SECONDS = 0.1
"""Signals that come within this time are one: ``timeout`` sends its signal to the process, and again to its group."""


class Controlled(Protocol):
    """What signals control; both methods may interrupt any other."""

    def request_stop(self) -> None:
        """Stop soon."""

    def request_reload(self) -> None:
        """Reload soon."""


@contextmanager
def handle_signals(controlled: Controlled, *, reloads: bool) -> Iterator[None]:
    """
    Make SIGTERM and SIGINT request a stop, a later one of them end the process at once, and SIGHUP a reload.

    Where there is nothing to reload, SIGHUP is what a closed terminal sends, and requests a stop too, unless it is
    ignored (``nohup``).
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        controlled.request_stop()
        time.sleep(TOGETHER_SECONDS)  # What comes meanwhile runs this once more, inside this call.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def reload(_number: int, _frame: FrameType | None) -> None:
        controlled.request_reload()

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop}
    if reloads or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = reload if reloads else stop
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # It may have come already, and waited.
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
