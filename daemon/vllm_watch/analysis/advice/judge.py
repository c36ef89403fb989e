# SPDX-License-Identifier: Apache-2.0
"""All rules, and how they are applied to a server with one configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.advice import batch_rules, budget_rules, draft_rules, kv_cache_rules, start_rules
from vllm_watch.analysis.advice.advice_model import (
    GENERATION,
    OBJECTIVE,
    SHARED_PROMPT,
    Advice,
    Cause,
    Evidence,
    Expectation,
    Silence,
)
from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import DRAFT_TOKENS, ENOUGH_SECONDS, LEAST_SECONDS, LEAST_SHARE, Proposal, Rule
from vllm_watch.daemon.catalog.number_texts import duration, percent
from vllm_watch.daemon.catalog.series import PREFIX


RULES: tuple[Rule, ...] = (
    kv_cache_rules.OVERRIDE,
    kv_cache_rules.SHARE,
    kv_cache_rules.FP8,
    batch_rules.FEWER,
    batch_rules.LESS_AT_ONCE,
    batch_rules.MORE,
    budget_rules.LARGER,
    budget_rules.SMALLER,
    draft_rules.FEWER,
    draft_rules.MORE,
    start_rules.NO_EAGER,
    start_rules.PREFIX_CACHING,
)
"""The most important first. Of the rules for one cause the first that has its evidence counts."""

_JUDGED_AT_A_BATCH = frozenset[Cause]({"prompts_in_steps", "drafts", "eager_steps"})
"""Causes that depend on how many requests run at once: they look different after that has changed."""

EXPLAINS: Mapping[Cause, frozenset[Cause]] = {
    "kv_cache_full": _JUDGED_AT_A_BATCH | {"batch_full"},
    "batch_full": _JUDGED_AT_A_BATCH,
}
"""Causes that are nearer to what is seen than others: while one is there, the others are not judged."""

SHOWN: Mapping[Cause, str] = {
    "kv_cache_full": "the KV cache is full",
    "batch_full": "the batch is full",
    "prompts_in_steps": "prompts and steps do not fit each other",
    "drafts": "draft tokens",
    "eager_steps": "eager mode",
    "prompts_computed_again": "prompts are computed again",
}
"""The causes in words."""


MOST = 3
"""No server gets more advice at once: one flag is changed after the other."""

_OFF_UNLESS_GIVEN = frozenset({"enforce-eager", "num-gpu-blocks-override", DRAFT_TOKENS})
"""Flags of rules that every release leaves off, so that one that was not given is not unknown."""


class Judged(NamedTuple):
    """What the rules found: advice without the commands that check it, and why others are silent."""

    advice: tuple[Advice, ...]
    silent: tuple[Silence, ...]


class _Silent(NamedTuple):
    """Why a rule says nothing; `unknown` names what it cannot judge without."""

    reason: str
    unknown: tuple[str, ...] = ()


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
            continue
        if isinstance(result, _Finding):
            result = _Silent(f"there are {MOST} already, change these first")
        said = Silence(
            rule=rule.name, flag=rule.flag, reason=result.reason, server=subject.name, unknown=result.unknown
        )
        silent.append(said)
    return Judged(tuple(_advice(each, subject) for each in found), tuple(silent))


def _shadowed(rule: Rule, found: Sequence[_Finding]) -> _Silent | None:
    """Return why a rule does not count beside what was found; `None` if it does."""
    for each in found:
        if each.rule.cause == rule.cause:
            return _Silent(f"there is advice for the same cause, {SHOWN[rule.cause]}: {each.rule.name}")
        if rule.cause in EXPLAINS.get(each.rule.cause, frozenset()):
            return _Silent(f"first {each.rule.flag}, which changes how many requests run at once; then look again")
    return None


def _apply(rule: Rule, subject: Subject) -> _Finding | _Silent:
    """Return what a rule finds, or why it is silent: what is not known matters only where there is something to see."""
    window = rule.during(subject)
    reason = _is_not_for(rule, subject) or _too_rare(rule, subject, window)
    if reason is not None:
        return _Silent(reason)
    unknown = dict(_unknown(rule, subject))
    if unknown:
        return _Silent(next(iter(unknown.values())), tuple(unknown))
    found = _found(rule, subject, window)
    return _Silent(found) if isinstance(found, str) else found


def _is_not_for(rule: Rule, subject: Subject) -> str | None:
    if rule.era is not None and subject.era not in {None, rule.era}:
        return f"it is for the engine {rule.era} alone, and this one is {subject.era}"
    missing = [flag for flag in rule.flags if flag in _OFF_UNLESS_GIVEN and flag not in subject.flags]
    return f"{missing[0]} is not set" if missing and subject.is_given else None


def _too_rare(rule: Rule, subject: Subject, window: Window) -> str | None:
    if window.seconds < LEAST_SECONDS:
        return f"{rule.when} for {duration(window.seconds)} in all, and {duration(LEAST_SECONDS)} are needed"
    if window.seconds < LEAST_SHARE * subject.work.seconds:
        share = percent(window.seconds / subject.work.seconds)
        return f"{rule.when} in {share} % of the time with work, and {percent(LEAST_SHARE)} % are needed"
    return None


def _found(rule: Rule, subject: Subject, window: Window) -> _Finding | str:
    judged = rule.judge(subject, window)
    if isinstance(judged, str):
        return judged
    for name, half in zip(("first", "second"), window.halves(), strict=True):
        part = rule.judge(subject, half)
        if isinstance(part, str):
            return f"the two halves of the time do not agree; in the {name} one: {part}"
    proposal = rule.propose(subject, window)
    return proposal if isinstance(proposal, str) else _Finding(rule, judged, proposal, window.seconds)


def _unknown(rule: Rule, subject: Subject) -> Iterator[tuple[str, str]]:
    for flag in rule.flags:
        if flag not in subject.flags:
            yield flag, f"{flag} is not known"
    if rule.era is not None and subject.era is None:
        yield GENERATION, f"it is for the engine {rule.era} alone, and this one is not known to be that"
    for need in rule.needs:
        if need == "objective" and subject.objective is None:
            yield OBJECTIVE, "it needs an objective to hold the latencies against: --objective"
        elif need == "device" and subject.device is None:
            yield "the device", "it is not known whether the server runs on a GPU"
        elif need == "shared prompt" and subject.flags.get(rule.flag) == "False" and subject.shared_prompt is None:
            yield SHARED_PROMPT, "how much the prompts have in common is not known: --shared-prompt-tokens"


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
