# SPDX-License-Identifier: Apache-2.0
"""
Calls at a later time, all from one thread.

A thread for each of them, as `threading.Timer` starts, costs more processor time than a request for which it waits.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time

from collections.abc import Callable

import structlog


log = structlog.get_logger("vllm_watch.alarms")


class Alarm:
    """A call that is due at a moment of the monotonic clock."""

    __slots__ = ("at", "call", "number")

    def __init__(self, at: float, number: int, call: Callable[[], object]) -> None:
        self.at = at
        self.number = number
        self.call: Callable[[], object] | None = call

    def __lt__(self, other: Alarm) -> bool:
        return (self.at, self.number) < (other.at, other.number)

    def cancel(self) -> None:
        """Make it call nothing; a call that has begun may still be running."""
        self.call = None


class Alarms:
    """Makes calls when they are due; each must be short, for the next one waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._alarms: list[Alarm] = []
        self._is_started = False

    def set(self, seconds: float, call: Callable[[], object]) -> Alarm:
        """
        Have a call made after some seconds.

        Raises:
            RuntimeError: The system has no more threads.
        """
        alarm = Alarm(time.monotonic() + seconds, next(self._numbers), call)
        with self._changed:
            if not self._is_started:
                threading.Thread(target=self._run, name="alarms", daemon=True).start()
                self._is_started = True
            heapq.heappush(self._alarms, alarm)
            if self._alarms[0] is alarm:
                self._changed.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._alarms and self._alarms[0].call is None:
                    heapq.heappop(self._alarms)
                if not self._alarms:
                    self._changed.wait()
                    continue
                seconds = self._alarms[0].at - time.monotonic()
                if seconds > 0:
                    self._changed.wait(seconds)
                    continue
                call = heapq.heappop(self._alarms).call
            if call is not None:
                try:
                    call()
                except Exception:  # Without this thread no request would have a deadline any more.
                    log.exception("alarms.failed")


ALARMS = Alarms()
"""The process's own: its thread starts with the first alarm."""
