# SPDX-License-Identifier: Apache-2.0
"""Commands that are imported when they are used, so that none waits for what only others need."""

from __future__ import annotations

from importlib import import_module

import click


class LazyCommand(click.Command):
    """
    Stands for a command in the list of commands, which shows its name and summary.

    Args:
        name: Its name.
        place: Where it is, as ``module:attribute``.
        summary: The first paragraph of its help.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._place = place

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self._place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class LazyGroup(click.Group):
    """A group that imports a command when it is run, or its own help is asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of the command that was chosen, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
