# SPDX-License-Identifier: Apache-2.0
"""The formats of reports, comparisons and backtests, for the command line, which loads nothing else for its help."""

from __future__ import annotations

from typing import Literal, get_args


ReportFormat = Literal["text", "markdown", "json", "html"]
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)

ComparisonFormat = Literal["table", "markdown", "json", "html"]
COMPARISON_FORMATS: tuple[ComparisonFormat, ...] = get_args(ComparisonFormat)

BacktestFormat = Literal["text", "markdown", "json"]
BACKTEST_FORMATS: tuple[BacktestFormat, ...] = get_args(BacktestFormat)

PlainFormat = Literal["text", "json"]
PLAIN_FORMATS: tuple[PlainFormat, ...] = get_args(PlainFormat)
"""Of what is a list of findings or of deeds: for people, and for programs."""
