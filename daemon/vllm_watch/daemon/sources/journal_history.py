# SPDX-License-Identifier: Apache-2.0
"""
The last entries before the place where reading resumes: they tell what a restarted daemon no longer knows.

This module handles a journalctl that prints too much or never ends: then the entries that it has printed are used.
"""

from __future__ import annotations

import threading

from collections.abc import Sequence

from vllm_watch.daemon.sources.journalctl import QUEUE_SIZE, Journalctl


HISTORY_LINES = 2000

MAX_SECONDS = 10.0
"""After so long the entries that were not printed are given up: new ones wait for them."""


class HistoryRun:
    """
    A run of journalctl that prints entries, the newest one first, and ends. Raises `OSError` if it cannot be started.

    Args:
        arguments: The whole command.
        now: The time.

    Attributes:
        is_cut: Whether there may be entries before those that were printed.
    """

    def __init__(self, arguments: Sequence[str], now: float) -> None:
        self._child = Journalctl(arguments)
        self._give_up_at = now + MAX_SECONDS
        self._lines: list[bytes] = []
        self._size = 0
        self.is_cut = True

    @property
    def lines(self) -> list[bytes]:
        """What was printed, the oldest entry first."""
        return self._lines[::-1]

    def poll(self, now: float) -> bool:
        """Take what was printed, without waiting; return whether no more is to be taken."""
        is_over = self._child.is_over  # Asked first: then no line comes after those taken now.
        lines, _ = self._child.take()
        self._lines += lines
        self._size += sum(map(len, lines))
        self.is_cut = not is_over or len(self._lines) >= HISTORY_LINES
        return is_over or self._size >= QUEUE_SIZE or now >= self._give_up_at

    def close(self) -> None:
        """End the child, in a thread of its own if it has not ended: it may hang."""
        if self._child.is_over:
            self._child.close()
        else:
            threading.Thread(target=self._child.close, name="close", daemon=True).start()
