# SPDX-License-Identifier: Apache-2.0
"""Numbers as vLLM prints them and their ranges, and the form of statistics lines: ``Name: value, Name: value``."""

from __future__ import annotations

import math
import re

from typing import NamedTuple


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


def percent(text: str) -> float | None:
    """Return a percentage as a ratio; the decimals printed are kept exact (12.3 is 0.123)."""
    value = number(text)
    return None if value is None else round(value / 100, 6)


UNNAMED = "unnamed"
"""The name of an unknown field whose own name does not look like one."""

_NAME = re.compile(r"[A-Z][A-Za-z0-9_+ -]{0,60}\Z")


class OutOfRangeError(Exception):
    """A field is out of range; the argument is the event's field."""


class MalformedError(Exception):
    """A value is not a number, or has another unit."""


def named_fields(body: str) -> list[tuple[str, str]]:
    """
    Split a line into names and values, as texts.

    A value may be a list with commas: a part without a name belongs to the field before it.
    """
    fields: list[tuple[str, str]] = []
    for part in body.split(", "):
        name, separator, value = part.partition(": ")
        if separator or not fields:
            fields.append((name, value))
        else:
            name, value = fields[-1]
            fields[-1] = (name, f"{value}, {part}")
    return fields


def is_plain(number: str) -> bool:
    """Return whether a number is written as vLLM does; Python also reads ``1_0``, and digits of any script."""
    return number.isascii() and "_" not in number


class Kind(NamedTuple):
    """
    What a name means.

    Args:
        field: The field of the event.
        unit: The unit as printed.
        most: The greatest possible value, in base units.
        whole: Whether it is a count.
    """

    field: str
    unit: str
    most: float
    whole: bool = False


def read_field(kind: Kind, text: str) -> float | int | None:
    """
    Return a field's value in base units; `None` for a share of nothing, printed as `nan`.

    Raises:
        MalformedError: It is not a number with this unit.
        OutOfRangeError: It is out of range.
    """
    field, unit, most, whole = kind
    number = text.removesuffix(unit)
    if not is_plain(number):
        raise MalformedError
    if unit == "%":
        # As a decimal exponent 12.3 % is 0.123; a division makes it 0.12300000000000001.
        number = f"{number}e-2" if number != text else ""
    try:
        value = float(number)
    except ValueError:
        if number == "nane-2":
            return None
        raise MalformedError from None
    if not 0 <= value <= most:
        if math.isnan(value) and not whole:
            return None
        raise OutOfRangeError(field)
    if whole:
        if not value.is_integer():
            raise OutOfRangeError(field)
        return int(value)
    return value


def unknown_name(name: str) -> str:
    """Return the name of a field that no table has, if it looks like a name: it becomes a label."""
    return name if _NAME.match(name) else UNNAMED
