# SPDX-License-Identifier: Apache-2.0
"""One line of a report."""

from __future__ import annotations

from typing import NamedTuple


class ReportLine(NamedTuple):
    """One line; `is_wrong` marks a problem to be corrected."""

    text: str
    is_wrong: bool = False
