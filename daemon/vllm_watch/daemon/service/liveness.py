# SPDX-License-Identifier: Apache-2.0
"""Which of the daemon's threads give signs of life."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.own_health import Heartbeat


STALE_HEARTBEAT = 30.0
"""A thread whose last sign of life is older than these seconds hangs."""

_NOT_CURED_BY_RESTART = frozenset({"discovery", "kubernetes"})
"""They hang because of others, and would again; a restart would cost all servers their values."""


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
        heartbeats: Mapping[str, Heartbeat] = {
            "main": self.main,
            "web": self.web,
            **{thread.name: thread.heartbeat for thread in self._threads if thread.is_started},
        }
        return {name: of(heartbeat) for name, heartbeat in heartbeats.items()}
