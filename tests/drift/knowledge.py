# SPDX-License-Identifier: Apache-2.0
"""What the parsers read, and what is left out for a reason."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.completeness.left_out import CONSTRUCTED, FAMILIES, LINES
from tests.drift.families import Family

from vllm_watch_parsers.front_ends import VLLM_NAMES
from vllm_watch_parsers.metric_names import COUNTERS, GAUGES, HISTOGRAM_PARTS, HISTOGRAMS, READ_ELSEWHERE, REQUIRED


QUANTITIES: dict[str, tuple[str, ...]] = {**GAUGES, **COUNTERS, **HISTOGRAMS}
"""The names that each quantity has had."""

NEEDED = REQUIRED
"""Quantities that every server should have."""


def shown_name(family: Family) -> str:
    """Return the name that /metrics shows for a family: counters end in ``_total``."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return family.name if family.name.endswith(suffix) else family.name + suffix


def is_read(family: Family) -> bool:
    """Tell whether samples of a family are read."""
    name = shown_name(family)
    return name in READ_ELSEWHERE or not VLLM_NAMES.isdisjoint({name, *(name + part for part in HISTOGRAM_PARTS)})


def why_left_out(family: Family) -> str | None:
    """Return the reason for which a family is not read, `None` if there is none."""
    for patterns in (FAMILIES, CONSTRUCTED):
        for pattern, reason in patterns.items():
            if fnmatchcase(family.name, pattern) or fnmatchcase(shown_name(family), pattern):
                return reason
    return None


def is_known(family: Family) -> bool:
    """Tell whether somebody has decided about a family."""
    return is_read(family) or why_left_out(family) is not None


def why_line_left_out(text: str) -> str | None:
    """Return the reason for which a line of statistics, or a part of one, is not read."""
    return next((reason for pattern, reason in LINES.items() if fnmatchcase(text, pattern)), None)
