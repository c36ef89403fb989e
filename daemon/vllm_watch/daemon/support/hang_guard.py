# SPDX-License-Identifier: Apache-2.0
"""
Calls of which some may never return: a call that hangs is left behind, and the others are made.

A thread that waits in the kernel, for a file server that is gone or for the memory of a process that a driver holds,
cannot be ended from outside. It is left alone with its item, which is skipped until the call returns.
"""

from __future__ import annotations

import threading

from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from vllm_watch.daemon.catalog.codes import MAX_HANGING_PROCESSES
from vllm_watch.daemon.support.own_health import running_seconds


HANG_SECONDS = 1.0
"""A call that takes this long is left behind, and the next one is made."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Callable[[], Result]


class _Worker(threading.Thread, Generic[Item, Result]):
    """Makes the waiting calls, one after the other, until it `is_left` at the call that hangs, that for `item`."""

    def __init__(self, waiting: deque[tuple[Item, Call[Result]]]) -> None:
        super().__init__(name="hang-guard", daemon=True)
        self._waiting = waiting
        self._is_over = threading.Event()
        self.results: dict[Item, Result] = {}
        self.item: Item | None = None
        self.since = running_seconds()
        self.is_left = False
        self.error: Exception | None = None

    def run(self) -> None:
        """Make the calls."""
        try:
            while not self.is_left:
                try:
                    self.item, call = self._waiting.popleft()
                except IndexError:
                    break
                self.since = running_seconds()
                result = call()
                if not self.is_left:
                    self.results[self.item] = result
        except Exception as error:  # noqa: BLE001 - It is raised where it is waited for.
            self.error = error
        self._is_over.set()

    def wait(self) -> bool:
        """Wait until it has made its calls, or hangs at one; return whether it hangs."""
        while not self._is_over.wait(max(self.since + HANG_SECONDS - running_seconds(), 0.0)):
            if running_seconds() - self.since >= HANG_SECONDS:
                self.is_left = True
                return True
        return False


class HangGuard(Generic[Item]):
    """Makes a call for each of many items, and skips those that hang, of which there may be at most so many."""

    def __init__(self, most: int = MAX_HANGING_PROCESSES) -> None:
        self._most = most
        self._left: dict[Item, threading.Thread] = {}
        self.since: dict[Item, float] = {}
        """Since when each of them hangs, in seconds that the machine has run."""

    @property
    def hanging(self) -> frozenset[Item]:
        """The items that are skipped."""
        return frozenset(item for item, thread in self._left.items() if thread.is_alive())

    def run_each(self, calls: Mapping[Item, Call[Result]]) -> dict[Item, Result]:
        """
        Make all calls that do not hang; return their results. An exception of one is raised.

        They are made in order, one at a time. While they hang twice as many are made at once after each wait: a hundred
        files of one dead file server are found in seconds.
        """
        self._left = {item: thread for item, thread in self._left.items() if thread.is_alive()}
        self.since = {item: self.since[item] for item in self._left}
        waiting = deque((item, call) for item, call in calls.items() if item not in self._left)
        results: dict[Item, Result] = {}
        workers = 1
        while waiting and len(self._left) < self._most:
            running = [_Worker(waiting) for _ in range(min(workers, self._most - len(self._left), len(waiting)))]
            for worker in running:
                _start(worker)
            for worker in running:
                if worker.wait() and worker.item is not None:
                    self._left[worker.item], self.since[worker.item] = worker, worker.since
                results.update(worker.results)
                if worker.error is not None:
                    raise worker.error
            workers *= 2
        return results


def _start(worker: threading.Thread) -> None:
    try:
        worker.start()
    except RuntimeError:  # The system has no room for a thread.
        worker.run()
