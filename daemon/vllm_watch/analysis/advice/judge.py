# SPDX-License-Identifier: Apache-2.0
"""All rules, and how they are applied to a server with one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from vllm_watch.analysis.advice import batch_rules, step_rules
from vllm_watch.analysis.advice.advice_model import (
    GENERATION,
    OBJECTIVE,
    SHARED_PROMPT,
    Advice,
    Cause,
    Direction,
    Evidence,
    Expectation,
    Silence,
)
from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import (
    DRAFT_TOKENS,
    ENOUGH_SECONDS,
    LEAST_SECONDS,
    LEAST_SHARE,
    NoAdviceError,
    Rule,
    Seen,
)
from vllm_watch.daemon.catalog.number_texts import duration, moment, percent
from vllm_watch.daemon.catalog.series import PREFIX


RULES: tuple[Rule, ...] = (*batch_rules.RULES, *step_rules.RULES)
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

_SHARES = tuple(eighths / 8 for eighths in range(1, 8))
"""After which share of the time it is tried whether a rule speaks from then on."""

_OFF_UNLESS_GIVEN = frozenset({"enforce-eager", "num-gpu-blocks-override", DRAFT_TOKENS})
"""Flags of rules that every release leaves off, so that one that was not given is not unknown."""


class Judged(NamedTuple):
    """What the rules found: advice without the commands that check it, and why others are silent."""

    advice: tuple[Advice, ...]
    silent: tuple[Silence, ...]


def judge(subject: Subject) -> Judged:
    """Return what the rules say of a server, the most important first."""
    found: list[Advice] = []
    silent: list[Silence] = []
    for rule in RULES:
        try:
            found.append(_advice(rule, subject, found))
        except NoAdviceError as error:
            of_rule = {"rule": rule.name, "flag": rule.flag, "server": subject.name}
            silent.append(Silence(**of_rule, reason=error.reason, unknown=error.unknown))
    return Judged(tuple(found), tuple(silent))


def expectations(rule: Rule) -> tuple[Expectation, ...]:
    """Return what a rule's change moves."""
    pairs = (clause.split() for clause in rule.expects.split(", "))
    return tuple(Expectation(series=PREFIX + series, direction=cast("Direction", way)) for series, way in pairs)


def _check_others(rule: Rule, found: Sequence[Advice]) -> None:
    """Raise why a rule does not count beside the advice that was found, if it does not."""
    for each in found:
        if each.cause == rule.cause:
            raise NoAdviceError(f"there is advice for the same cause, {SHOWN[rule.cause]}: {each.rule}")
        if rule.cause in EXPLAINS.get(each.cause, frozenset()):
            raise NoAdviceError(f"first {each.flag}, which changes how many requests run at once; then look again")


def _advice(rule: Rule, subject: Subject, found: Sequence[Advice]) -> Advice:
    """Return what a rule advises beside the advice that was found; it is a `NoAdviceError` if it does not count."""
    _check_others(rule, found)
    window = rule.during.window(subject)
    _check_subject(rule, subject)
    _check_time(rule, subject, window)
    # What is not known matters only where there is something to see.
    unknown = dict(_unknown(rule, subject))
    if unknown:
        raise NoAdviceError(next(iter(unknown.values())), tuple(unknown))
    window, before = _lasting(rule, subject, window)
    evidence = tuple(_evidence(each, window) for each in rule.judge(subject, window))
    proposed = rule.propose(subject, window)
    if len(found) == MOST:
        raise NoAdviceError(f"there are {MOST} already, change these first")
    caveats = [] if before is None else [f"Only since {moment(window.start)} UTC; before, {before}."]
    if window.seconds < ENOUGH_SECONDS:
        caveats.append(f"This is from {duration(window.seconds)}; {duration(ENOUGH_SECONDS)} or more say more.")
    return Advice(
        flag=rule.flag,
        now=subject.flags[rule.flag],
        proposed=proposed,
        says=rule.says,
        expected=f"{rule.expects}.",
        risk=rule.risk,
        evidence=evidence,
        check=(),
        rule=rule.name,
        cause=rule.cause,
        expects=expectations(rule),
        server=subject.name,
        caveats=tuple(caveats),
    )


def _lasting(rule: Rule, subject: Subject, window: Window) -> tuple[Window, str | None]:
    """
    Return the part of a time, up to its end, of which a rule speaks, and why it is silent of what is before that.

    Where a server changed within the time, a mean over all of it is true of no moment.
    """
    silent = _silence(partial(_judge_halves, rule, subject, window))
    if silent is None:
        return window, None
    for before, part in map(window.split, _SHARES):
        was = _silence(partial(rule.judge, subject, before))
        if was is not None and _silence(partial(_judge_halves, rule, subject, part)) is None:
            return part, was
    raise NoAdviceError(silent)


def _silence(judge: Callable[[], object]) -> str | None:
    try:
        judge()
    except NoAdviceError as error:
        return error.reason
    return None


def _judge_halves(rule: Rule, subject: Subject, window: Window) -> None:
    """Raise why a rule is silent of a time, or of one of its halves, if it is."""
    _check_time(rule, subject, window)
    rule.judge(subject, window)
    for name, half in zip(("first", "second"), window.split(), strict=True):
        try:
            rule.judge(subject, half)
        except NoAdviceError as error:
            halves = "the two halves of the time do not agree"
            raise NoAdviceError(f"{halves}; in the {name} one: {error.reason}") from None


def _check_subject(rule: Rule, subject: Subject) -> None:
    if rule.takes_memory and subject.has_run_out_of_memory:
        raise NoAdviceError("the server ran out of memory, and this takes more")
    if rule.era is not None and subject.era not in {None, rule.era}:
        raise NoAdviceError(f"it is for the engine {rule.era} alone, and this one is {subject.era}")
    missing = [flag for flag in rule.flags if flag in _OFF_UNLESS_GIVEN and flag not in subject.flags]
    if missing and subject.is_given:
        raise NoAdviceError(f"{missing[0]} is not set")


def _check_time(rule: Rule, subject: Subject, window: Window) -> None:
    when, seconds = rule.during.when, window.seconds
    if seconds < LEAST_SECONDS:
        raise NoAdviceError(f"{when} for {duration(seconds)} in all, and {duration(LEAST_SECONDS)} are needed")
    share = seconds / subject.work.seconds
    if share < LEAST_SHARE:
        least = f"{percent(LEAST_SHARE)} % are needed"
        raise NoAdviceError(f"{when} in {percent(share)} % of the time with work, and {least}")


def _unknown(rule: Rule, subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what a rule cannot judge without, and why it is not known."""
    for flag in rule.flags:
        if flag not in subject.flags:
            yield flag, f"{flag} is not known"
    if rule.era is not None and subject.era is None:
        yield GENERATION, f"it is for the engine {rule.era} alone, and this one is not known to be that"
    if "objective" in rule.needs and subject.objective is None:
        yield OBJECTIVE, "it needs an objective to hold the latencies against: --objective"
    if "device" in rule.needs and subject.device is None:
        yield "the device", "it is not known whether the server runs on a GPU"
    is_off = subject.flags.get(rule.flag) == "False"
    if "shared prompt" in rule.needs and is_off and subject.shared_prompt is None:
        yield SHARED_PROMPT, "how much the prompts have in common is not known: --shared-prompt-tokens"


def _evidence(seen: Seen, window: Window) -> Evidence:
    return Evidence(
        series=PREFIX + seen.series,
        statistic=seen.statistic,
        value=seen.value,
        text=seen.text,
        limit=seen.limit,
        start=window.start,
        end=window.end,
        seconds=window.seconds,
    )
