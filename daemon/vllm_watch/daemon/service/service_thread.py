# SPDX-License-Identifier: Apache-2.0
"""How all threads of the daemon start, wait, beat and end, and which of them hang."""

from __future__ import annotations

import threading

from collections.abc import Callable, Sequence

from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import Heartbeat, InternalErrors, running_seconds


STOP_SECONDS = 1.5
"""How long after `request_stop` a thread is waited for; one that hangs ends with the process."""

STALE_HEARTBEAT = 30.0
"""A thread whose last sign of life is older than these seconds hangs."""

_NOT_CURED_BY_RESTART = frozenset({"discovery", "kubernetes"})
"""They hang because of others, and would again; a restart would cost all servers their values."""


class ServiceThread:
    """
    Takes its turn again and again until it is asked to stop; then it closes what it has opened, in its own thread.

    A subclass says what a turn is. What another thread wants of it, it writes down before it sets `_wake`.

    Args:
        name: The thread's name, also that of its heartbeat's series.
        clock: The time by which it waits.
        errors: Counts failures.
    """

    is_awaited = True
    """Whether the daemon's end waits for it: not if it waits for what others do, and that may take long."""

    def __init__(self, name: str, clock: Clock, errors: InternalErrors) -> None:
        self.name = name
        self.heartbeat = Heartbeat()
        self._clock = clock
        self._errors = errors
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._is_asked = False
        self._wait_until = 0.0

    @property
    def is_started(self) -> bool:
        """Whether it was started, also if it has ended."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Start it, unless it was started before."""
        if not self.is_started:
            self.heartbeat.beat()
            self._thread.start()

    def turn_now(self) -> None:
        """Let it do at once, and fully, what it does now and then; any thread may call it."""
        self._is_asked = True
        self._wake.set()

    def request_stop(self) -> None:
        """Make it end soon; this does not wait for the end."""
        self._wait_until = running_seconds() + STOP_SECONDS
        self._stop.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for its end if it `is_awaited`, but not for long: the time counts from `request_stop`."""
        if self.is_started and self.is_awaited:
            self._thread.join(max(self._wait_until - running_seconds(), 0))

    def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                if self._stop.is_set():  # Only now: a stop that comes later sets `_wake`, so that no wait misses it.
                    break
                pause = self._turn()
                self.heartbeat.beat()
                self._clock.wait(self._wake, pause)
        finally:
            self._close()

    def _turn(self) -> float:
        """Do what is due; return for how many seconds nothing else is."""
        raise NotImplementedError

    def _take_asked(self) -> bool:
        """Return whether `turn_now` was called since the last turn that took it."""
        is_asked = self._is_asked
        if is_asked:  # Else one that comes just now would be lost; so it is served by this turn.
            self._is_asked = False
        return is_asked

    def _close(self) -> None:
        """Close what the turns have opened; called once, at the thread's end."""


class Liveness:
    """
    Knows the heartbeat of every thread that was started.

    Args:
        threads: The threads that watch servers.
    """

    def __init__(self, threads: Sequence[ServiceThread]) -> None:
        self._threads = threads
        self.main = Heartbeat()
        self.web = Heartbeat()

    def timestamps(self) -> dict[str, float]:
        """Return when each thread last gave a sign of life, by the wall clock, in seconds since the epoch."""
        return self._each(Heartbeat.timestamp)

    def stale(self) -> list[str]:
        """Return the threads that hang, of those that a restart of the daemon would cure."""
        ages = self._each(Heartbeat.age)
        return [name for name, age in ages.items() if age > STALE_HEARTBEAT and name not in _NOT_CURED_BY_RESTART]

    def _each(self, of: Callable[[Heartbeat], float]) -> dict[str, float]:
        started = {thread.name: of(thread.heartbeat) for thread in self._threads if thread.is_started}
        return {"main": of(self.main), "web": of(self.web), **started}
