# SPDX-License-Identifier: Apache-2.0
"""What an expression of PromQL shows without being parsed: which series it selects, and how far back."""

from __future__ import annotations

import functools
import re

from collections.abc import Mapping


DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+", re.ASCII)
"""A whole duration of Prometheus, ``30s`` or ``1h30m``; a 0 without a unit is none."""

_PART = re.compile(r"(\d+)(ms|[smhdwy])", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}

ANY_NAME = "__name__"
"""The name in an expression that selects series by a pattern."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
_BRACES = re.compile(r"\{[^{}]*\}|\[[^][]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\b\s*(?:\([^()]*\))?")
_AT = re.compile(r"@\s*\d")
_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()", re.ASCII)
_CALL = re.compile(r"(?<![\w:.])([a-z_]+)\s*\(", re.ASCII)
_OFFSET = re.compile(r"\boffset\s+(\w+)")
_KEYWORDS = frozenset({"and", "or", "unless", "atan2", "bool", "offset", "inf", "nan", "Inf", "NaN"})
_OF_CALENDAR = frozenset(
    ["minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"]
)


def duration_seconds(text: object) -> float:
    """Return the seconds of a duration; what is none has 0."""
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(str(text)))


@functools.cache
def selected_names(expression: str) -> frozenset[str]:
    """Return the names of the series that an expression selects, with `ANY_NAME` if there is a pattern for some."""
    bare = _bare(expression)
    names = _NAME.findall(_LABELS.sub(" ", _BRACES.sub(" ", bare)))
    return frozenset(names) - _KEYWORDS | ({ANY_NAME} if ANY_NAME in bare else set())


def reads_calendar(expression: str) -> bool:
    """Whether what an expression yields depends on the date or on the time of day."""
    bare = _bare(expression)
    return bool(_OF_CALENDAR.intersection(_CALL.findall(bare)) or _AT.search(bare))


def offset_back(expression: str, recorded: Mapping[str, str]) -> float:
    """Return how many seconds before its evaluation all parts of an expression have values, at most."""
    others = {name: text for name, text in recorded.items() if text != expression}
    deepest = (offset_back(others[name], others) for name in selected_names(expression) & others.keys())
    own = map(duration_seconds, _OFFSET.findall(_bare(expression)))
    return max(own, default=0.0) + max(deepest, default=0.0)


def _bare(expression: str) -> str:
    return _COMMENT.sub("", _STRING.sub('""', expression))
