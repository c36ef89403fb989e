# SPDX-License-Identifier: Apache-2.0
"""Lines of a report, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import click

from vllm_watch.support.printable import printable


class ReportLine(NamedTuple):
    """One line; `is_wrong` marks a problem to be corrected."""

    text: str
    is_wrong: bool = False


def print_report(lines: Iterable[ReportLine]) -> bool:
    """Print lines as they come; return whether any of them is wrong."""
    is_wrong = False
    for line in lines:
        click.echo(printable(line.text))
        is_wrong = is_wrong or line.is_wrong
    return is_wrong
