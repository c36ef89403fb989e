# SPDX-License-Identifier: Apache-2.0
"""Applies the rules to a server with one configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_watch.advice.model import Advice, Evidence, Expectation, Silence
from vllm_watch.advice.rule import ENOUGH_SECONDS, LEAST_SECONDS, LEAST_SHARE, Proposal, Rule
from vllm_watch.advice.rules import EXPLAINS, RULES, SHOWN
from vllm_watch.advice.subject import Subject
from vllm_watch.catalog.series import PREFIX
from vllm_watch.loadtest.number_texts import duration, percent


MOST = 3
"""No server gets more advice at once: one flag is changed after the other."""


class Judged(NamedTuple):
    """What the rules found: advice without the commands that check it, and why others are silent."""

    advice: tuple[Advice, ...]
    silent: tuple[Silence, ...]


class _Finding(NamedTuple):
    rule: Rule
    evidence: tuple[Evidence, ...]
    proposal: Proposal
    seconds: float


def judge(subject: Subject) -> Judged:
    """Return what the rules say of a server, the most important first."""
    found: list[_Finding] = []
    silent: list[Silence] = []
    for rule in RULES:
        result = _shadowed(rule, found) or _apply(rule, subject)
        if isinstance(result, _Finding) and len(found) < MOST:
            found.append(result)
        else:
            reason = result if isinstance(result, str) else f"there are {MOST} already, change these first"
            silent.append(Silence(rule=rule.name, flag=rule.flag, reason=reason, server=subject.name))
    return Judged(tuple(_advice(each, subject) for each in found), tuple(silent))


def _shadowed(rule: Rule, found: Sequence[_Finding]) -> str | None:
    """Return why a rule does not count beside what was found; `None` if it does."""
    for each in found:
        if each.rule.cause == rule.cause:
            return f"there is advice for the same cause, {SHOWN[rule.cause]}: {each.rule.name}"
        if rule.cause in EXPLAINS.get(each.rule.cause, frozenset()):
            return f"first {each.rule.flag}, which changes how many requests run at once; then look again"
    return None


def _apply(rule: Rule, subject: Subject) -> _Finding | str:
    """Return what a rule finds, or why it is silent."""
    problem = next(_unknown(rule, subject), None)
    if problem is not None:
        return problem
    window = rule.during(subject)
    if window.seconds < LEAST_SECONDS:
        return f"{rule.when} for {duration(window.seconds)} in all, and {duration(LEAST_SECONDS)} are needed"
    if window.seconds < LEAST_SHARE * subject.work.seconds:
        share = percent(window.seconds / subject.work.seconds)
        return f"{rule.when} in {share} % of the time with work, and {percent(LEAST_SHARE)} % are needed"
    judged = rule.judge(subject, window)
    if isinstance(judged, str):
        return judged
    for name, half in zip(("first", "second"), window.halves(), strict=True):
        part = rule.judge(subject, half)
        if isinstance(part, str):
            return f"the two halves of the time do not agree; in the {name} one: {part}"
    proposal = rule.propose(subject, window)
    return proposal if isinstance(proposal, str) else _Finding(rule, judged, proposal, window.seconds)


def _unknown(rule: Rule, subject: Subject) -> Iterator[str]:
    """Yield what a rule needs and is not known."""
    if rule.era is not None and subject.era != rule.era:
        yield f"it is for the engine {rule.era} alone, and this one is {subject.era or 'not known to be that'}"
    for flag in rule.flags:
        if flag not in subject.flags:
            yield f"{flag} is not known"
    for need in rule.needs:
        if need == "objective" and subject.objective is None:
            yield "it needs an objective to hold the latencies against: --objective"
        elif need == "device" and subject.device is None:
            yield "it is not known whether the server runs on a GPU"
        elif need == "shared prompt" and subject.flags.get(rule.flag) == "False" and subject.shared_prompt is None:
            yield "how much the prompts have in common is not known: --shared-prompt-tokens"


def _advice(found: _Finding, subject: Subject) -> Advice:
    rule, now = found.rule, found.proposal.now
    expects = tuple(Expectation(series=PREFIX + series, direction=way) for series, way in rule.expects)
    caveats = (
        ()
        if found.seconds >= ENOUGH_SECONDS
        else (f"This is from {duration(found.seconds)}; {duration(ENOUGH_SECONDS)} or more say more.",)
    )
    return Advice(
        flag=rule.flag,
        now=now,
        proposed=found.proposal.proposed,
        says=rule.says,
        expected=f"{', '.join(' '.join(each) for each in rule.expects)}.",
        risk=rule.risk,
        evidence=found.evidence,
        check=(),
        rule=rule.name,
        cause=rule.cause,
        expects=expects,
        server=subject.name,
        caveats=caveats,
    )
