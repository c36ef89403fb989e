# SPDX-License-Identifier: Apache-2.0
"""The formats of a report, for the command line, which loads nothing else for its help."""

from __future__ import annotations

from typing import Literal, get_args


ReportFormat = Literal["text", "markdown", "json", "html"]
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)
