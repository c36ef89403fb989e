# SPDX-License-Identifier: Apache-2.0
"""
The same for each of many, of which some may never come to an end.

What the kernel shows of a process may have to wait for that process: for its memory, held by a driver that hangs, or
for the file system of its log. Nothing ends such a wait from outside. `vllm_watch.service.log_thread` does the same for
logs, which are polled.
"""

from __future__ import annotations

import threading

from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from vllm_watch.catalog.limits import MAX_HANGING_PROCESSES


PATIENCE_SECONDS = 1.0
"""What takes this long is passed over, at the next check."""

Made = TypeVar("Made")
Work = Callable[[], Made]


class _Turn(threading.Thread, Generic[Made]):
    """Does what waits, one after the other; the one that it is `at` is left to it when others go on."""

    def __init__(self, waiting: deque[tuple[int, Work[Made]]]) -> None:
        super().__init__(name="patience", daemon=True)
        self._waiting = waiting
        self.made: dict[int, Made] = {}
        self.at = 0
        self.done = 0
        self.is_over = threading.Event()
        self.is_left = False
        self.error: Exception | None = None

    def run(self) -> None:
        """Do all of it."""
        try:
            while self._waiting and not self.is_left:
                self.at, work = self._waiting.popleft()
                made = work()
                if not self.is_left:
                    self.made[self.at] = made
                    self.done += 1
        except Exception as error:  # noqa: BLE001 - It is raised where it is waited for.
            self.error = error
        self.is_over.set()


class Patience:
    """Does something for each of many and passes over those at which it hangs, for as long as it does."""

    def __init__(self) -> None:
        self._left: dict[int, threading.Thread] = {}

    @property
    def hanging_pids(self) -> frozenset[int]:
        """The numbers of those that are passed over."""
        return frozenset(number for number, thread in self._left.items() if thread.is_alive())

    def each(self, works: Mapping[int, Work[Made]]) -> dict[int, Made]:
        """Do all works that do not hang, in order; return what comes of each, by its number. Raises what one raises."""
        self._left = {number: thread for number, thread in self._left.items() if thread.is_alive()}
        waiting = deque((number, work) for number, work in works.items() if number not in self._left)
        made: dict[int, Made] = {}
        while waiting and len(self._left) < MAX_HANGING_PROCESSES:
            turn = _Turn(waiting)
            turn.start()
            self._wait(turn)
            made.update(turn.made)
            if turn.error is not None:
                raise turn.error
        return made

    def _wait(self, turn: _Turn[Made]) -> None:
        done = turn.done
        while not turn.is_over.wait(PATIENCE_SECONDS):
            if turn.done == done:
                turn.is_left = True
                self._left[turn.at] = turn
                return
            done = turn.done
