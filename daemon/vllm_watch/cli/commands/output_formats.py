# SPDX-License-Identifier: Apache-2.0
"""The output of `report` and of `compare`: its format, asked for or by the file's name, and how wide its text is."""

from __future__ import annotations

import shutil
import sys

from collections.abc import Mapping
from pathlib import PurePath

from vllm_watch.analysis.rendering.text import WIDTH
from vllm_watch.daemon.support.choices import ComparisonFormat, ReportFormat
from vllm_watch.daemon.support.errors import UsageError


_BY_ENDING: Mapping[str, ReportFormat] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    "": "text",
}


_NARROWEST, _WIDEST = 60, 120
"""Columns of a text: in fewer its tables do not fit, and longer lines of prose are hard to read."""


def report_format(form: ReportFormat | None, output: str | None) -> ReportFormat:
    """
    Return the format of a report.

    Args:
        form: What is asked for, if it is.
        output: The file, or `None` for standard output. One without an ending is text.

    Raises:
        UsageError: Nothing is asked for, and the file's ending is that of no format.
    """
    return form or _of_ending(output)


def comparison_format(form: ComparisonFormat | None, output: str | None) -> ComparisonFormat:
    """
    Return the format of a comparison, as `report_format` does; its text is a table.

    Raises:
        UsageError: Nothing is asked for, and the file's ending is that of no format.
    """
    if form is not None:
        return form
    named = _of_ending(output)
    return "table" if named == "text" else named


def text_width(output: str | None) -> int:
    """
    Return how many columns a text has: those of the terminal that it is written to, within bounds, else 80.

    Args:
        output: The file, or `None` for standard output.
    """
    if output is not None or not sys.stdout.isatty():
        return WIDTH
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def _of_ending(output: str | None) -> ReportFormat:
    ending = PurePath(output or "").suffix.lower()
    if ending not in _BY_ENDING:
        known = ", ".join(each for each in _BY_ENDING if each)
        raise UsageError(f"-o {output}: no format has the ending {ending}: use one of {known}, or give --format")
    return _BY_ENDING[ending]
