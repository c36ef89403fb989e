# SPDX-License-Identifier: Apache-2.0
"""What every screen needs to know beside its own choices: what was read, and how old it is."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.cli.terminal.model import Frame, Lost, View


class Moment(NamedTuple):
    """
    What is read, and the time that it is shown at.

    Args:
        view: What was read.
        now: The time by the clock of the reader.
        title: What is read, in words.
        delay: Seconds between two readings; 0 if there is only one.
        paused: Since when the view is paused, by the clock of the reader.
        is_held: Whether what is read stands still meanwhile.
    """

    view: View
    now: float
    title: str
    delay: float
    paused: float | None = None
    is_held: bool = False

    @property
    def frame(self) -> Frame | None:
        """What is known, which may be old."""
        return self.view.last if isinstance(self.view, Lost) else self.view

    @property
    def lost(self) -> Lost | None:
        """That nothing can be read now, and why."""
        return self.view if isinstance(self.view, Lost) else None

    @property
    def age(self) -> float | None:
        """Seconds since the values were read."""
        frame = self.frame
        return None if frame is None else max(self.now - frame.received, 0.0)

    @property
    def at(self) -> float:
        """The time by the clock that the times of servers are in; 0 if nothing is known."""
        frame = self.frame
        if frame is None:
            return 0.0
        now = self.paused if self.is_held and self.paused is not None else self.now
        return frame.at + max(now - frame.received, 0.0)
