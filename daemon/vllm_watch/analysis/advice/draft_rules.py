# SPDX-License-Identifier: Apache-2.0
"""Rules on draft tokens: fewer, none, or more."""

from __future__ import annotations

from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import DRAFT_TOKENS, OFF, Judgement, Measure, Proposal, Rule, observed
from vllm_watch.analysis.loadtest.server_history import ACCEPTED, DRAFTS, Point
from vllm_watch.daemon.catalog.number_texts import percent, significant


_RARE = 0.3
"""A draft token that is accepted in a smaller share of the drafts is not worth its computation."""

_CROWD = 8.0
"""From eight requests at once, a step has to give each `_SHORT` tokens, or drafts cost more than they give."""

_SHORT = 1.6
_OFTEN = ((4.0, 0.6), (8.0, 0.9))
"""The largest batch, and how often the last draft token has to be accepted there for another one to be worth a try."""

_MOST = 4
"""More draft tokens than this were only ever found to help a single user at a time."""


class _Drafts:
    """How many drafts of a window were accepted: `by_position` are the shares at each position, from 0 to 1."""

    def __init__(self, subject: Subject, window: Window) -> None:
        drafts, accepted = window.increase(DRAFTS), window.labelled(ACCEPTED)
        counted = tuple(min(accepted[place] / drafts, 1.0) for place in sorted(accepted, key=int)) if drafts else ()
        # Only /metrics counts by position; a log and a Prometheus have the shares of each moment.
        self.by_position = counted or window.mean_positions()
        self.length = 1 + sum(self.by_position)
        self.batch = (window.mean("requests_running") or 0.0) / subject.engines

    @property
    def positions(self) -> str:
        return ", ".join(percent(each) for each in self.by_position)

    @property
    def worth(self) -> int:
        """How many first positions are accepted often enough."""
        rare = (place for place, share in enumerate(self.by_position) if share < _RARE)
        return next(rare, len(self.by_position))


def _drafting(subject: Subject) -> Window:
    def drafts(old: Point, new: Point) -> bool:
        if DRAFTS in new.counters:
            return new.counters[DRAFTS] > old.counters.get(DRAFTS, 0.0)
        return bool(new.position_acceptance)

    return subject.work.where(drafts)


def _evidence(window: Window, drafts: _Drafts, limit: float) -> Judgement:
    last = drafts.by_position[-1]
    return (
        observed(
            window,
            "spec_decode_position_acceptance_ratio",
            Measure("mean", last, limit),
            f"by position is {drafts.positions} %: the last draft token is accepted in {percent(last)} % of the drafts",
        ),
        observed(
            window,
            "spec_decode_mean_acceptance_length",
            Measure("mean", drafts.length),
            f"is {significant(drafts.length)}: so many tokens a step gives each request",
        ),
        observed(
            window, "requests_running", Measure("mean", drafts.batch), f"is {significant(drafts.batch)} for each engine"
        ),
    )


def _judge_too_many(subject: Subject, window: Window) -> Judgement:
    drafts = _Drafts(subject, window)
    if not drafts.by_position:
        return "how often the draft tokens are accepted at each position is not known"
    last = drafts.by_position[-1]
    is_crowded = drafts.batch >= _CROWD and drafts.length < _SHORT
    if last >= _RARE and not is_crowded:
        return f"the last draft token is accepted in {percent(last)} % of the drafts, which is often enough"
    return _evidence(window, drafts, _RARE)


def _propose_fewer(subject: Subject, window: Window) -> Proposal | str:
    now, drafts = subject.number(DRAFT_TOKENS) or 0.0, _Drafts(subject, window)
    worth = drafts.worth
    return Proposal(f"{now:g}", str(worth) if 0 < worth < now else OFF)


def _judge_too_few(subject: Subject, window: Window) -> Judgement:
    drafts = _Drafts(subject, window)
    if not drafts.by_position:
        return "how often the draft tokens are accepted at each position is not known"
    last = drafts.by_position[-1]
    limit = next((share for most, share in _OFTEN if drafts.batch <= most), None)
    if limit is None:
        return f"{significant(drafts.batch)} requests run at once: then more draft tokens cost more than they give"
    if last < limit:
        return f"the last draft token is accepted in {percent(last)} % of the drafts, and {percent(limit)} % are needed"
    return _evidence(window, drafts, limit)


def _propose_more(subject: Subject, _window: Window) -> Proposal | str:
    now = int(subject.number(DRAFT_TOKENS) or 0)
    if now >= _MOST:
        return f"there are {now} already, and more than {_MOST} help a single user at a time at best"
    return Proposal(str(now), str(min(2 * now, _MOST)))


FEWER = Rule(
    name="draft-tokens-down",
    flag=DRAFT_TOKENS,
    cause="drafts",
    says="Draft tokens are computed and thrown away.",
    during=_drafting,
    when="drafts are made",
    judge=_judge_too_many,
    propose=_propose_fewer,
    expects=(
        ("spec_decode_drafted_tokens_per_second", "falls"),
        ("spec_decode_acceptance_ratio", "rises"),
        ("time_per_output_token_seconds", "falls"),
    ),
    risk="How many are accepted depends on the prompts and the temperature: compare with your own. A single user at a "
    "time may wait longer for each token.",
    guard="tpot_ms.mean > +5%",
    era="V1",
)

MORE = Rule(
    name="draft-tokens-up",
    flag=DRAFT_TOKENS,
    cause="drafts",
    says="Nearly all draft tokens are accepted: there may be more of them.",
    during=_drafting,
    when="drafts are made",
    judge=_judge_too_few,
    propose=_propose_more,
    expects=(
        ("spec_decode_mean_acceptance_length", "rises"),
        ("time_per_output_token_seconds", "falls"),
        ("generation_tokens_per_second", "rises"),
    ),
    risk="A step takes longer with each draft token: with more requests at once, or other prompts, it can cost more "
    "than it gives. Some models draft well only for as many tokens as they were trained for.",
    guard="tpot_ms.mean > +5%",
    era="V1",
)
