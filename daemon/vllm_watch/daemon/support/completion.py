# SPDX-License-Identifier: Apache-2.0
"""What a shell completes beside commands, options and choices, which click knows by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click


if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def file_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Let the shell complete the name of a file or a folder, for `shell_complete` of an option or an argument."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # No other run of a command needs it.

    return [CompletionItem(begun, type="file")]
