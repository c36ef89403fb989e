# SPDX-License-Identifier: Apache-2.0
"""What every mode of `top` has: something that returns the document of ``/api/v1/snapshot`` whenever it is asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class DocumentReader(Protocol):
    """Where documents come from; all but `hold` and `close` is called from one thread."""

    @property
    def title(self) -> str:
        """What is read, in a few words."""

    @property
    def is_settled(self) -> bool:
        """Whether every source has been read as often as its numbers need."""

    def start(self) -> None:
        """Start to watch; it is called once, before the first `read`, and may raise a `VllmWatchError`."""

    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return a document of now.

        Args:
            hours: Of which servers it has the last hour; `None` for all.

        Raises:
            VllmWatchError: There is none now.
        """

    def hold(self, *, is_held: bool) -> bool:
        """Have what is read stand still, or go on; return whether it can. Any thread may call it."""

    def close(self) -> None:
        """End what is running, a `read` included, and give everything back. Any thread may call it."""
