# SPDX-License-Identifier: Apache-2.0
"""What a rule is, and the numbers that all rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from vllm_watch.analysis.advice.advice_model import Cause, Direction, Evidence, Statistic
from vllm_watch.analysis.advice.advice_subject import Era, Subject, Window
from vllm_watch.daemon.catalog.series import PREFIX


DRAFT_TOKENS = "speculative-config.num_speculative_tokens"
"""The flag that says how many tokens are drafted."""

OFF = "off"
"""The value of a flag that is to be left out."""

LEAST_SECONDS = 120.0
"""What a rule looks at has to last this long: two windows of a minute, which have to agree."""

LEAST_SHARE = 0.05
"""And this share of the time with work: what is rare is no reason to change a flag."""

ENOUGH_SECONDS = 600.0
"""Advice from a shorter time says that it is."""

Need = Literal["objective", "device", "shared prompt"]
"""What may have to be known besides flags."""

Judgement: TypeAlias = tuple[Evidence, ...] | str
"""The evidence for advice, or why there is none."""


Expected: TypeAlias = tuple[tuple[str, Direction], ...]
"""Series by their names without the prefix, and where they go."""


class Proposal(NamedTuple):
    """A flag's value now, and the one to try."""

    now: str
    proposed: str


class Rule(NamedTuple):
    """
    When to change a flag.

    Args:
        name: Its own name.
        flag: The flag, as vLLM calls it, without dashes.
        cause: What makes the server slower than it has to be.
        says: That in a sentence.
        during: The time that it looks at.
        when: What that time is, as a clause.
        judge: Looks at a part of this time.
        propose: What to change, or why there is nothing to change.
        expects: What it moves.
        risk: What may become worse, and what to look at first.
        guard: The metric that must not become worse, as `compare` names it, with the limit.
        needs: What else has to be known.
        era: The only engine that it is for.
        also: The flags that have to be known besides its own.
    """

    name: str
    flag: str
    cause: Cause
    says: str
    during: Callable[[Subject], Window]
    when: str
    judge: Callable[[Subject, Window], Judgement]
    propose: Callable[[Subject, Window], Proposal | str]
    expects: Expected
    risk: str
    guard: str
    needs: tuple[Need, ...] = ()
    era: Era | None = None
    also: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that have to be known."""
        return (self.flag, *self.also)


class Measure(NamedTuple):
    """What of a series is looked at, and what it is held against."""

    statistic: Statistic
    value: float
    limit: float | None = None


def observed(window: Window, series: str, measure: Measure, text: str) -> Evidence:
    """Return a number as evidence: `series` is its name without the prefix, `text` a clause that follows that name."""
    return Evidence(
        series=PREFIX + series,
        statistic=measure.statistic,
        value=measure.value,
        text=text,
        limit=measure.limit,
        start=window.start,
        end=window.end,
        seconds=window.seconds,
    )
