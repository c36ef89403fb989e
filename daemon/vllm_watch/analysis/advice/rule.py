# SPDX-License-Identifier: Apache-2.0
"""What a rule is, and the numbers that all rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from vllm_watch.analysis.advice.advice_model import Cause, Statistic
from vllm_watch.analysis.advice.advice_subject import Era, Subject, Window
from vllm_watch.daemon.catalog.language import N_, _


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

Need = Literal["objective", "device"]
"""What may have to be known besides flags."""


class NoAdviceError(Exception):
    """Why a rule says nothing, as a clause that is translated; `unknown` names what it cannot judge without."""

    def __init__(self, reason: str, /, unknown: tuple[str, ...] = (), **fields: object) -> None:
        super().__init__(reason)
        self.reason, self.unknown = _(reason, **fields), unknown


class Seen(NamedTuple):
    """A number of a series, by its name without the prefix, and in a clause that follows this name."""

    series: str
    statistic: Statistic
    value: float
    text: str
    limit: float | None = None


class During(NamedTuple):
    """The part of the time with work that a rule looks at: a clause, and the time itself."""

    when: str
    window: Callable[[Subject], Window]


ALWAYS = During(N_("there is work"), lambda subject: subject.work)


class Rule(NamedTuple):
    """
    When to change a flag.

    Args:
        name: Its own name.
        flag: The flag, as vLLM calls it, without dashes.
        cause: What makes the server slower than it has to be.
        says: That in a sentence.
        during: The time that it looks at.
        judge: Returns the evidence in a part of this time; raises `NoAdviceError` if there is none.
        propose: Returns the value to try; raises `NoAdviceError` if there is none.
        expects: What it moves: series by their names without the prefix, each with ``rises`` or ``falls``.
        risk: What may become worse, and what to look at first.
        guard: The metric that must not become worse, as `compare` names it, with the limit.
        needs: What else has to be known.
        era: The only engine that it is for.
        also: The flags that have to be known besides its own.
        takes_memory: Whether the server needs more memory with it.
    """

    name: str
    flag: str
    cause: Cause
    says: str
    during: During
    judge: Callable[[Subject, Window], tuple[Seen, ...]]
    propose: Callable[[Subject, Window], str]
    expects: str
    risk: str
    guard: str
    needs: tuple[Need, ...] = ()
    era: Era | None = None
    also: tuple[str, ...] = ()
    takes_memory: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that have to be known."""
        return (self.flag, *self.also)
