# SPDX-License-Identifier: Apache-2.0
"""Clean-up that also happens if a signal ends the process."""

from __future__ import annotations

import os
import signal
import threading

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """
    Hold back signals that end the process until the block ends; yield what lets a child have them.

    So no signal comes between the start of a child and the note of it, by which a clean-up would find it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDING, signal.SIGINT))
    try:
        yield lambda: _set_mask(before)
    finally:
        _set_mask(before)


def _set_mask(signals: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)


@contextmanager
def cleaned_up(clean_up: Callable[[], None]) -> Iterator[None]:
    """Call a function when the block ends, or the process by a signal that would end it without any clean-up."""

    def end(number: int, _frame: FrameType | None) -> None:
        clean_up()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # Only the main thread may handle signals, and those that are handled or ignored already end nothing here.
    is_main = threading.current_thread() is threading.main_thread()
    ending = [each for each in _ENDING if is_main and signal.getsignal(each) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, end)
    try:
        yield
    finally:
        clean_up()
        for number in ending:
            signal.signal(number, signal.SIG_DFL)
