# SPDX-License-Identifier: Apache-2.0
"""Quantities of a server that are one sum divided by another: what they are now, and what they were in a range."""

from __future__ import annotations

from typing import NamedTuple

from boards.kit import promql


class Quotient(NamedTuple):
    """
    A sum divided by another.

    Their quotient over a time range is that of all that was added up in it, and no mean of quotients.
    """

    part: str
    whole: str

    @property
    def now(self) -> str:
        """What it is at each moment; nothing while the divisor is 0."""
        return f"({self.part}) / (({self.whole}) > 0)"

    @property
    def in_range(self) -> str:
        """What it was in the whole time range."""
        part, whole = (f"sum_over_time(({each})[$__range:$__interval])" for each in self)
        return f"{part} / ({whole} > 0)"


def by_drafts(ratio: str) -> Quotient:
    """Return a server's ratio out of those of its engines, each by how many tokens it drafts."""
    drafted = promql.of_engine("spec_decode_drafted_tokens_per_second")
    weighted, weight = (f"{ratio} {how} ignoring (position) group_left () {drafted}" for how in ("*", "* 0 +"))
    return Quotient(promql.per_server(weighted), promql.per_server(weight))
