# SPDX-License-Identifier: Apache-2.0
"""All rules, how they are applied to a server with one configuration, and what is worth knowing besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from vllm_watch.analysis.advice import batch_rules, step_rules
from vllm_watch.analysis.advice.advice_model import (
    DEVICE,
    GENERATION,
    OBJECTIVE,
    Advice,
    Cause,
    Direction,
    Evidence,
    Expectation,
    Note,
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
from vllm_watch.daemon.capacity.saturation import AT_LIMIT
from vllm_watch.daemon.catalog.language import _, listed
from vllm_watch.daemon.catalog.number_texts import duration, moment, percent, significant
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

MOST = 3
"""No server gets more advice at once: one flag is changed after the other."""

_SHARES = tuple(eighths / 8 for eighths in range(1, 8))
"""After which share of the time it is tried whether a rule speaks from then on."""

_MAX_LORAS = "max-loras"
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


def change_text(expected: Expectation) -> str:
    """Return a change as a clause."""
    series = expected.series.removeprefix(PREFIX)
    return _("{series} rises", series=series) if expected.direction == "rises" else _("{series} falls", series=series)


def _check_others(rule: Rule, found: Sequence[Advice]) -> None:
    """Raise why a rule does not count beside the advice that was found, if it does not."""
    for each in found:
        if each.cause == rule.cause:
            raise NoAdviceError("there is advice for the same cause: {rule}", rule=each.rule)
        if rule.cause in EXPLAINS.get(each.cause, frozenset()):
            raise NoAdviceError(
                "first {flag}, which changes how many requests run at once; then look again", flag=each.flag
            )


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
        raise NoAdviceError("there are {count} already, change these first", count=MOST)
    caveats = []
    if before is not None:
        caveats.append(_("Only since {time} UTC; before, {reason}.", time=moment(window.start), reason=before))
    if window.seconds < ENOUGH_SECONDS:
        short, enough = duration(window.seconds), duration(ENOUGH_SECONDS)
        caveats.append(_("This is from {time}; {enough} or more say more.", time=short, enough=enough))
    return Advice(
        flag=rule.flag,
        now=subject.flags[rule.flag],
        proposed=proposed,
        says=_(rule.says),
        expected=_("{changes}.", changes=listed(map(change_text, expectations(rule)))),
        risk=_(rule.risk),
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
    for half in window.split():
        silent = _silence(partial(rule.judge, subject, half))
        if silent is not None:
            raise NoAdviceError("the two halves of the time do not agree; in one of them: {reason}", reason=silent)


def _check_subject(rule: Rule, subject: Subject) -> None:
    if rule.takes_memory and subject.has_run_out_of_memory:
        raise NoAdviceError("the server ran out of memory, and this takes more")
    if rule.era is not None and subject.era not in {None, rule.era}:
        raise NoAdviceError(
            "it is for the engine {era} alone, and this one is {other}", era=rule.era, other=subject.era
        )
    missing = [flag for flag in rule.flags if flag in _OFF_UNLESS_GIVEN and flag not in subject.flags]
    if missing and subject.is_given:
        raise NoAdviceError("{flag} is not set", flag=missing[0])


def _check_time(rule: Rule, subject: Subject, window: Window) -> None:
    when, seconds = _(rule.during.when), window.seconds
    if seconds < LEAST_SECONDS:
        raise NoAdviceError(
            "{when} for {time} in all, and {least} are needed",
            when=when,
            time=duration(seconds),
            least=duration(LEAST_SECONDS),
        )
    share = seconds / subject.work.seconds
    if share < LEAST_SHARE:
        raise NoAdviceError(
            "{when} in {share} % of the time with work, and {least} % are needed",
            when=when,
            share=percent(share),
            least=percent(LEAST_SHARE),
        )


def _unknown(rule: Rule, subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what a rule cannot judge without, and why it is not known."""
    for flag in rule.flags:
        if flag not in subject.flags:
            yield flag, _("{flag} is not known", flag=flag)
    if rule.era is not None and subject.era is None:
        yield GENERATION, _("it is for the engine {era} alone, and this one is not known to be that", era=rule.era)
    if "objective" in rule.needs and subject.objective is None:
        yield OBJECTIVE, _("it needs an objective to hold the latencies against: --objective")
    if "device" in rule.needs and subject.device is None:
        yield DEVICE, _("it is not known whether the server runs on a GPU")


def _evidence(seen: Seen, window: Window) -> Evidence:
    seen = seen._replace(series=PREFIX + seen.series)
    return Evidence(**seen._asdict(), start=window.start, end=window.end, seconds=window.seconds)


def notes(subject: Subject, advice: Sequence[Advice]) -> Iterator[Note]:
    """Yield what is worth knowing, with some advice or where there is none, and is no flag to change."""
    if subject.has_run_out_of_memory:
        yield Note(text=_crash(subject.ran_out_at), server=subject.name)
    held = _held_by_adapters(subject)
    if held is not None:
        yield Note(text=held, server=subject.name)
    if any(each.cause == "kv_cache_full" for each in advice):
        text = _lengths(subject)
        yield from () if text is None else (Note(text=text, server=subject.name),)


def _crash(at: float | None) -> str:
    if at is None:
        return _(
            "Its log tells of a lack of memory: nothing that takes more memory is advised. The runbook "
            "VllmEngineCrashed says which flags free some."
        )
    return _(
        "Its log tells of a lack of memory, last at {time} UTC: nothing that takes more memory is advised. The runbook "
        "VllmEngineCrashed says which flags free some.",
        time=moment(at),
    )


def _held_by_adapters(subject: Subject) -> str | None:
    """Return for how long requests may have waited for an adapter that others had to leave, while seats were free."""
    most, seats = subject.flags.get(_MAX_LORAS), subject.seats or 0.0
    free = subject.work.where(
        lambda _old, new: (
            new.gauges.get("requests_deferred", 0.0) > 0
            and new.gauges.get("requests_running", seats) < AT_LIMIT * seats
        )
    )
    if most is None or free.seconds < LEAST_SECONDS:
        return None
    return _(
        "For {time} requests were deferred although the batch had free seats, and max-loras is {most}: if "
        "vllm_watch_lora_active_adapters is above it, they wait for those with other adapters. More places take memory "
        "from the KV cache.",
        time=duration(free.seconds),
        most=most,
    )


def _lengths(subject: Subject) -> str | None:
    window, limit = batch_rules.CACHE_IS_SHORT.window(subject), subject.number("max-model-len")
    running, ratio = window.mean("requests_running"), window.mean("kv_cache_usage_ratio")
    kv_cache_tokens = subject.facts.get("kv_cache_capacity_tokens")
    if subject.era != "V1" or not (running and ratio and kv_cache_tokens and limit):
        return None
    each = ratio * kv_cache_tokens / running
    if each > limit:
        return None
    return _(
        "A lower max-model-len (now {limit:,.0f}) would not make room: the KV cache is filled by the requests that "
        "run, which hold {tokens} tokens each on average.",
        limit=limit,
        tokens=significant(each),
    )
