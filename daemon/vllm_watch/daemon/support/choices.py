# SPDX-License-Identifier: Apache-2.0
"""What options of the command line may say: the choices of formats and levels, and what a shell completes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import click


if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


ReportFormat = Literal["text", "markdown", "json", "html"]
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)

ComparisonFormat = Literal["table", "markdown", "json", "html"]
COMPARISON_FORMATS: tuple[ComparisonFormat, ...] = get_args(ComparisonFormat)

BacktestFormat = Literal["text", "markdown", "json"]
BACKTEST_FORMATS: tuple[BacktestFormat, ...] = get_args(BacktestFormat)

PlainFormat = Literal["text", "json"]
PLAIN_FORMATS: tuple[PlainFormat, ...] = get_args(PlainFormat)
"""Of what is a list of findings or of deeds: for people, and for programs."""

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)


def file_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Let the shell complete the name of a file or a folder, for `shell_complete` of an option or an argument."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # No other run of a command needs it.

    return [CompletionItem(begun, type="file")]
