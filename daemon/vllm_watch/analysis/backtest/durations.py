# SPDX-License-Identifier: Apache-2.0
"""Durations as Prometheus writes them: ``30s``, ``1h30m``."""

from __future__ import annotations

import re


DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+", re.ASCII)
"""A whole duration; a 0 without a unit is none."""

_PART = re.compile(r"(\d+)(ms|[smhdwy])", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}


def duration_seconds(text: object) -> float:
    """Return the seconds of a duration; what is none has 0."""
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(str(text)))
