# SPDX-License-Identifier: Apache-2.0
"""Numbers as vLLM prints them and their ranges, and names that no parser knows."""

from __future__ import annotations

import math
import re


MAX_TOKENS_PER_SECOND = 1e8
"""No server is faster: a prompt's tokens are counted at once, so lines can exceed the hardware."""

MAX_REQUESTS = 10_000_000
MAX_TOKENS = 10**15
MAX_COUNT = 10**18
"""No counter is higher: sums of counts stay finite."""

MAX_WORK = 10**27
"""No device has done more operations, nor moved more bytes: decades at a hundred times the speed of today."""

MAX_DRAFT_TOKENS = 256


def number(text: str) -> float | None:
    """Return a text as a number, without thousands separators; `None` for `nan` and anything else."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """Return a text as a whole number, without thousands separators, or `None`."""
    digits = text.replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


UNNAMED = "unnamed"
"""The name of an unknown field whose own name does not look like one."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+ ()/%-]{0,60}\Z")


def unknown_name(name: str) -> str:
    """Return the name of a field that no table has, if it looks like a name: it becomes a label."""
    return name if _NAME.match(name) else UNNAMED
