# SPDX-License-Identifier: Apache-2.0
"""
Numbers as a reader sees them: three significant digits, thousands apart, a dash where nothing is known.

The unit is in the head of the row or column, so most of these texts have none.
"""

from __future__ import annotations

import datetime as dt
import math

from collections.abc import Callable

from vllm_watch.daemon.catalog.language import _


MISSING = "–"  # noqa: RUF001  # A dash is what it is.
"""What is not known. It is never 0."""

_MINUTE = 60
_HOUR = 3600
_DAY = 86400
_LEAST_PLAIN = 1e-4
_LEAST_HUNDREDTHS = 0.1
_ALL = 0.9995
"""From here on a ratio of three digits is 1."""
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_GIB = float(1 << 30)
_MEGA = 1e6


def significant(value: float | None) -> str:
    """Return a number with three significant digits: ``0.123``, ``45.6``, ``2,120``."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if abs(value) < _LEAST_PLAIN:
        return f"{value:.2e}"
    rounded = float(f"{value:.2e}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def hundredths(value: float | None) -> str:
    """Return a number as ``vllm bench serve`` prints it, with two decimals: ``1,234.56``; with more if it is small."""
    if value is None or not math.isfinite(value):
        return MISSING
    return significant(value) if 0 < abs(value) < _LEAST_HUNDREDTHS else f"{value:,.2f}"


def count(value: float | None) -> str:
    """Return a whole number with all its digits: ``16,087``."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(ratio: float | None) -> str:
    """Return a ratio from 0 to 1 as per cent, without the sign: ``87.5`` for 0.875."""
    return MISSING if ratio is None else significant(ratio * 100)


def share(ratio: float | None) -> str:
    """
    Return a ratio as per cent, without the sign and with at most one decimal: ``87.5``, ``0.2``, ``100``.

    So a screen shows what changes all the time, such as the use of a cache: in a narrow column, and always as wide.
    """
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    return f"{ratio * 100:.1f}" if abs(ratio) < _ALL else f"{ratio * 100:.0f}"


def shortened(value: float | None) -> str:
    """Return a number that may be large in at most five columns: ``512``, ``9.99k``, ``93.9k``, ``1.23M``."""
    if value is None or not math.isfinite(value):
        return MISSING
    size, prefix = next((each for each in _PREFIXES if abs(value) >= each[0] * _ALL), (1.0, ""))
    return f"{significant(value / size).replace(',', '')}{prefix}"


def gibibytes(value: float | None) -> str:
    """Return bytes in GiB, without the unit: ``70.0``."""
    return significant(None if value is None else value / _GIB)


def megahertz(value: float | None) -> str:
    """Return a frequency in MHz, without the unit: ``1,755``."""
    return count(None if value is None else value / _MEGA)


def of_most(value: float | None, most: float | None, text: Callable[[float | None], str] = count) -> str:
    """Return how much there is of the most there can be, both written by `text`: ``12 of 64``, or ``12`` alone."""
    written = text(value)
    return written if most is None or written == MISSING else _("{part} of {whole}", part=written, whole=text(most))


def signed(value: float | None) -> str:
    """Return a difference with its sign: ``+12.3``, ``-4.00``, ``0``."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"+{significant(value)}" if value > 0 else significant(value)


def limit(value: float) -> str:
    """Return a limit or a bound as it was chosen, if that is short, else with three significant digits: ``2,048``."""
    if not math.isfinite(value):
        return MISSING
    chosen = f"{value:,.10g}"
    is_short = len(chosen.replace(",", "").replace(".", "").strip("-0")) <= 3 or chosen.replace(",", "").isdigit()
    return chosen if is_short and "e" not in chosen else significant(value)


def spread(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """Return an interval: ``250 to 500``, ``>500``, ``<250``; a dash if both ends are open."""
    if low is not None and high is not None:
        texts = limit(low * scale), limit(high * scale)
        return texts[0] if texts[0] == texts[1] else _("{low} to {high}", low=texts[0], high=texts[1])
    if low is not None:
        return f">{limit(low * scale)}"
    return MISSING if high is None else f"<{limit(high * scale)}"


def duration(seconds: float | None) -> str:
    """Return a duration with its unit: ``350 ms``, ``3.78 s``, ``8 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 1:
        return f"{limit(seconds * 1000)} ms"
    if seconds < _MINUTE - 0.05:
        return f"{limit(seconds)} s"
    whole = round(seconds)
    for size, name, part, part_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size:,} {name} {rest} {part_name}" if rest else f"{whole // size:,} {name}"
    return f"{whole} s"


def milliseconds(value: float | None) -> str:
    """Return a latency in milliseconds with the unit that suits it: ``58 ms``, ``1.25 s``, ``2 min 5 s``."""
    return MISSING if value is None else duration(value / 1000)


def moment(at: float | None) -> str:
    """Return a time of the epoch in UTC: ``2026-11-22 05:14:17``; a dash if no calendar has it."""
    if at is None or not math.isfinite(at):
        return MISSING
    try:
        return dt.datetime.fromtimestamp(at, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return MISSING
