# SPDX-License-Identifier: Apache-2.0
"""What a check of two sides found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """What is wrong, in a sentence; `prevents`: the numbers would mislead, so none is shown unless it is asked for."""

    text: str
    prevents: bool


class SideFinding(NamedTuple):
    """
    What is wrong with one side, in the parts of a sentence: ``The runs of``, its name, ``last only 5 s``.

    `why` follows after a colon, and is the same whatever the side.
    """

    before: str
    side: str
    after: str
    why: str = ""
    prevents: bool = False


def of_sides(found: Iterable[SideFinding | None]) -> Iterator[Finding]:
    """Yield findings on both sides as one sentence where only the names or values differ, all others as they are."""
    each = [one for one in found if one is not None]
    if len(each) == 2 and each[0][3:] == each[1][3:]:
        a, b = each
        is_alike = (a.before, a.after) == (b.before, b.after)
        both = _clause(a._replace(side=f"{a.side} and {b.side}"))
        other = _clause(b._replace(before=f"{b.before[:1].lower()}{b.before[1:]}"))
        yield Finding(_sentence(both if is_alike else f"{_clause(a)}, and {other}", a.why), a.prevents)
        return
    yield from (Finding(_sentence(_clause(one), one.why), one.prevents) for one in each)


def _clause(found: SideFinding) -> str:
    return f"{found.before} {found.side} {found.after}"


def _sentence(text: str, why: str) -> str:
    return f"{text}: {why}" if why else f"{text}."
