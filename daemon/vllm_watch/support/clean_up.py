# SPDX-License-Identifier: Apache-2.0
"""Clean-up that also happens if a signal ends the process."""

from __future__ import annotations

import os
import signal
import threading

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


_ENDING = (signal.SIGTERM, signal.SIGHUP)


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
