# SPDX-License-Identifier: Apache-2.0
"""A running vllm-watch as a source of documents, over HTTP."""

from __future__ import annotations

from collections.abc import Collection

from vllm_watch.daemon.sources.daemon_client import DaemonClient, DaemonTarget
from vllm_watch.daemon.sources.http_reader import HttpLimits


ANSWER_SECONDS = 5.0
"""How long a request may take in all: longer than a vllm-watch of 200 servers needs, and no longer than people wait."""


class DaemonReader:
    """
    Reads the snapshot of a running vllm-watch.

    Args:
        target: Which one.
        seconds: How long a request may take.
    """

    is_settled = True

    def __init__(self, target: DaemonTarget, seconds: float = ANSWER_SECONDS) -> None:
        self.title = target.url
        self._client = DaemonClient(target, HttpLimits(timeout=seconds))

    def start(self) -> None:
        """Do nothing: the first `read` connects."""

    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return the snapshot.

        Raises:
            DaemonError: It cannot be reached, or answers something else.
        """
        return self._client.snapshot(hours)

    def hold(self, *, is_held: bool) -> bool:
        """Do nothing: a running daemon does not stand still."""
        del is_held
        return False

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
