# SPDX-License-Identifier: Apache-2.0
"""The life of a thread of the daemon."""

from __future__ import annotations

import threading

from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import Heartbeat, running_seconds


STOP_SECONDS = 1.5
"""How long after `request_stop` a thread is waited for; one that hangs ends with the process."""


class ServiceThread:
    """
    A thread that is started once, beats while it works, is woken, asked to stop and waited for.

    A subclass gives the thread its work, which waits on `_wake` and ends once `_stop` is set.

    Args:
        thread: The thread, which is not started.
        clock: The time by which it waits.
    """

    def __init__(self, thread: threading.Thread, clock: Clock) -> None:
        self.thread = thread
        self.heartbeat = Heartbeat()
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._wait_until = 0.0

    @property
    def name(self) -> str:
        """The name by which the heartbeat's series calls it."""
        return self.thread.name

    @property
    def is_started(self) -> bool:
        """Whether it was started, also if it has ended."""
        return self.thread.ident is not None

    def start(self) -> None:
        """Start it, unless it was started before."""
        if not self.is_started:
            self.heartbeat.beat()
            self.thread.start()

    def request_stop(self) -> None:
        """Make it end soon; this does not wait for the end."""
        self._wait_until = running_seconds() + STOP_SECONDS
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for its end, but not for long: the time counts from `request_stop`."""
        if self.is_started:
            self.thread.join(max(self._wait_until - running_seconds(), 0))
