# SPDX-License-Identifier: Apache-2.0
"""What all screens share: what is known now, and how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style

from vllm_watch.cli.terminal.cells import ASCII, UNICODE, Cells
from vllm_watch.cli.terminal.lines import Role
from vllm_watch.cli.terminal.model import FrameSource, ThemeName, ViewOptions
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.theme import looks


class Present:
    """
    What is known now.

    Args:
        source: Where frames come from.
        options: How they are drawn.
        theme: On which ground.
    """

    def __init__(self, source: FrameSource, options: ViewOptions, theme: ThemeName) -> None:
        self.cells = Cells(ASCII if options.is_ascii else UNICODE)
        self.theme: ThemeName = theme
        self.has_color = options.has_color
        self._source = source
        self._hours: frozenset[str] = frozenset()
        self.moment = Moment(source.latest(), source.now(), source.title, source.delay)

    @property
    def looks(self) -> Mapping[Role, Style]:
        """What each role looks like."""
        return looks(self.theme, has_color=self.has_color)

    def look(self) -> None:
        """Take what the source has now; while paused, only the time goes on."""
        source, shown = self._source, self.moment
        if shown.paused is None:
            shown = shown._replace(view=source.latest(), title=source.title)
        self.moment = shown._replace(now=source.now(), delay=source.delay)

    def show_hours(self, names: frozenset[str]) -> None:
        """Ask the source for the last hour of these servers, if that is not what it reads already."""
        if names != self._hours:
            self._hours = names
            self._source.show_hours(names)

    def pause(self) -> None:
        """Hold what is known, or go on."""
        begins = self.moment.paused is None
        is_held = self._source.hold(is_held=begins) and begins
        self.moment = self.moment._replace(paused=self._source.now() if begins else None, is_held=is_held)
        self.look()
