# SPDX-License-Identifier: Apache-2.0
"""
The same call for each of many items, of which some may never return.

Reading about a process may have to wait for that process: for its memory, held by a driver that hangs, or for the file
system of its log. Nothing ends such a wait from outside. `service.log_thread` does the same for logs, which
are polled.
"""

from __future__ import annotations

import threading

from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from vllm_watch.daemon.catalog.codes import MAX_HANGING_PROCESSES


HANG_SECONDS = 1.0
"""A call that takes this long is left behind, and the next one is made."""

Result = TypeVar("Result")
Call = Callable[[], Result]


class _Worker(threading.Thread, Generic[Result]):
    """Makes the waiting calls, one after the other, until it `is_left` at the call that hangs, `at`."""

    def __init__(self, waiting: deque[tuple[int, Call[Result]]]) -> None:
        super().__init__(name="hang-guard", daemon=True)
        self._waiting = waiting
        self.results: dict[int, Result] = {}
        self.at = 0
        self.done = 0
        self.is_over = threading.Event()
        self.is_left = False
        self.error: Exception | None = None

    def run(self) -> None:
        """Make all calls."""
        try:
            while self._waiting and not self.is_left:
                self.at, call = self._waiting.popleft()
                result = call()
                if not self.is_left:
                    self.results[self.at] = result
                    self.done += 1
        except Exception as error:  # noqa: BLE001 - It is raised where it is waited for.
            self.error = error
        self.is_over.set()


class HangGuard:
    """Makes a call for each of many items, and skips those at which it hangs for as long as it does."""

    def __init__(self) -> None:
        self._left: dict[int, threading.Thread] = {}

    @property
    def hanging(self) -> frozenset[int]:
        """The numbers of the items that are skipped."""
        return frozenset(number for number, thread in self._left.items() if thread.is_alive())

    def run_each(self, calls: Mapping[int, Call[Result]]) -> dict[int, Result]:
        """Make all calls that do not hang, in order; return their results by number. An exception of one is raised."""
        self._left = {number: thread for number, thread in self._left.items() if thread.is_alive()}
        waiting = deque((number, call) for number, call in calls.items() if number not in self._left)
        results: dict[int, Result] = {}
        while waiting and len(self._left) < MAX_HANGING_PROCESSES:
            worker = _Worker(waiting)
            worker.start()
            self._wait(worker)
            results.update(worker.results)
            if worker.error is not None:
                raise worker.error
        return results

    def _wait(self, worker: _Worker[Result]) -> None:
        """Wait until a worker has made all calls, or hangs at one."""
        done = worker.done
        while not worker.is_over.wait(HANG_SECONDS):
            if worker.done == done:
                worker.is_left = True
                self._left[worker.at] = worker
                return
            done = worker.done
