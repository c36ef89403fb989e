# SPDX-License-Identifier: Apache-2.0
"""Rules on how many requests run at once: ``max-num-seqs``."""

from __future__ import annotations

import math

from vllm_watch.analysis.advice.advice_subject import Holds, Subject, Window
from vllm_watch.analysis.advice.kv_cache_rules import judge_full_cache, when_cache_is_short
from vllm_watch.analysis.advice.rule import LEAST_SECONDS, LEAST_SHARE, Judgement, Measure, Proposal, Rule, observed
from vllm_watch.analysis.loadtest.server_history import Point
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latency
from vllm_watch.daemon.capacity.saturation import AT_LIMIT
from vllm_watch.daemon.catalog.number_texts import milliseconds, percent, significant


FLAG = "max-num-seqs"

_MOST_OF_THE_TIME = 0.8

_ROOMY = 0.7
"""A KV cache that is never fuller has room for more requests."""

_STEP = 2
_WORTH_IT = 1.25
"""A batch is made at least this much larger, and at most `_STEP` times as large: less is not worth a restart."""

_LESS = 0.9
"""A smaller batch has at most this part of the present one's seats."""

_GAIN = 1.05
"""A full batch has to give 5 % more tokens a second than half of one, or it gives no more."""

_HALF = (0.4, 0.6)
"""A batch is half full while 40 to 60 % of its seats are taken."""

_PER_TOKEN = HISTOGRAMS["tpot_ms"]


def _waits(_old: Point, new: Point) -> bool:
    return new.gauges.get("requests_waiting", 0.0) > 0


def _is_full(seats: float) -> Holds:
    return lambda _old, new: new.gauges.get("requests_running", 0.0) >= AT_LIMIT * seats


def _judge_too_few(subject: Subject, window: Window) -> Judgement:
    """The batch is full while requests wait, and the KV cache has room."""
    seats, kv = subject.seats or 0.0, window.highest("kv_cache_usage_ratio")
    full = window.share(_is_full(seats))
    if full < _MOST_OF_THE_TIME:
        return (
            f"while requests wait, the batch is full only {percent(full)} % of the time: something else holds them back"
        )
    if kv is None:
        return "how full the KV cache is is not known"
    if kv >= _ROOMY:
        return f"the KV cache is up to {percent(kv)} % full: more requests at once would fill it"
    preempted = window.increase("preemptions_total")
    if preempted:
        return f"{preempted:.0f} requests were preempted: the KV cache cannot hold more at once"
    flat = _flatness(subject)
    if flat is not None:
        return flat
    waiting = window.mean("requests_waiting") or 0.0
    return (
        observed(window, "requests_waiting", Measure("mean", waiting), f"is {significant(waiting)} on average"),
        observed(
            window,
            "requests_running",
            Measure("share_of_time", full, _MOST_OF_THE_TIME),
            f"is at its limit of {seats:g} for {percent(full)} % of this time",
        ),
        observed(
            window,
            "kv_cache_usage_ratio",
            Measure("highest", kv, _ROOMY),
            f"is {percent(kv)} % at most: there is room for more requests",
        ),
    )


def _flatness(subject: Subject) -> str | None:
    seats = subject.seats or 0.0
    half = subject.work.where(_is_between(*(share * seats for share in _HALF)))
    full = subject.work.where(_is_full(seats))
    rates = [_tokens_per_second(each) for each in (half, full)]
    if min(half.seconds, full.seconds) < LEAST_SECONDS / 2 or rates[0] is None or rates[1] is None:
        return None
    if rates[1] >= _GAIN * rates[0]:
        return None
    shown = " against ".join(significant(rate) for rate in rates)
    return f"half a batch gives as many tokens a second as a full one, {shown}: more requests at once would not help"


def _judge_too_slow(subject: Subject, window: Window) -> Judgement:
    """A full batch misses the objective, and half a batch meets it and gives as many tokens a second."""
    limit = None if subject.objective is None else subject.objective.limits.get("tpot_ms")
    half = subject.work.where(_is_between(*(share * (subject.seats or 0.0) for share in _HALF)))
    full_time, half_time = (latency(each.histogram(_PER_TOKEN)) for each in (window, half))
    rates = _tokens_per_second(window), _tokens_per_second(half)
    if limit is None:
        return "the objective has no limit of the time per output token"
    if half.seconds < LEAST_SECONDS / 2 or full_time is None or half_time is None or None in rates:
        return "what half a batch gives is not known"
    slow, quick = full_time.mean or 0.0, half_time.mean or 0.0
    if slow <= limit or quick > limit:
        return f"{milliseconds(slow)} per output token with a full batch, {milliseconds(quick)} with half of one"
    full_rate, half_rate = (rate or 0.0 for rate in rates)
    if full_rate >= _GAIN * half_rate:
        return f"a full batch gives more tokens a second, {significant(full_rate)} against {significant(half_rate)}"
    text = f"is {milliseconds(slow)} with a full batch, and {milliseconds(quick)} with half of one"
    shown = f"is {significant(full_rate)} with a full batch, and {significant(half_rate)} with half of one"
    return (
        observed(window, _PER_TOKEN, Measure("mean", slow / 1000, limit / 1000), text),
        observed(window, "generation_tokens_per_second", Measure("mean", full_rate), shown),
    )


def _is_between(low: float, high: float) -> Holds:
    return lambda _old, new: low <= new.gauges.get("requests_running", 0.0) <= high


def _propose_half(subject: Subject, _window: Window) -> Proposal | str:
    now = int(subject.number(FLAG) or 0)
    proposed = math.floor(_HALF[1] * now)
    return Proposal(str(now), str(proposed)) if proposed >= 1 else "there are too few to take some away"


def _tokens_per_second(window: Window) -> float | None:
    tokens = window.increase("generation_tokens_total")
    return tokens / window.seconds if tokens is not None and window.seconds else None


def _propose_more(subject: Subject, window: Window) -> Proposal | str:
    """Twice as many, but no more than the KV cache and the steps have room for."""
    now, seats = subject.number(FLAG) or 0.0, subject.seats or 0.0
    kv = window.highest("kv_cache_usage_ratio") or 0.0
    room = [_STEP * now]
    if kv > 0:
        room.append(math.floor(_ROOMY * seats / kv / subject.engines))
    budget = subject.number("max-num-batched-tokens")
    if budget is not None:
        room.append(budget // (1 + (subject.facts.get("num_speculative_tokens") or 0.0)))
    proposed = min(room)
    if proposed < _WORTH_IT * now:
        return "the KV cache or the tokens of a step have no room for many more"
    return Proposal(f"{now:g}", f"{proposed:g}")


def _judge_too_many(subject: Subject, window: Window) -> Judgement:
    """The KV cache is full while the batch is at its limit: the limit lets in more than the cache can hold."""
    judged = judge_full_cache(subject, window)
    if isinstance(judged, str):
        return judged
    preempted = window.increase("preemptions_total")
    if not preempted:
        return "no request was preempted: waiting costs no computation"
    seats = subject.seats or 0.0
    at_limit = window.share(_is_full(seats))
    if at_limit < LEAST_SHARE:
        return f"the batch is never at its limit of {seats:g}: a lower one would have to be far lower"
    text = f"reaches its limit of {seats:g} in {percent(at_limit)} % of this time"
    return (*judged, observed(window, "requests_running", Measure("share_of_time", at_limit), text))


def _propose_fewer(subject: Subject, window: Window) -> Proposal | str:
    now = subject.number(FLAG) or 0.0
    running = (window.mean("requests_running") or 0.0) / subject.engines
    proposed = min(math.floor(_LESS * now), math.ceil(running))
    return Proposal(f"{now:g}", f"{proposed}") if 1 <= proposed < now else "there are too few to take some away"


MORE = Rule(
    name="max-num-seqs-up",
    flag=FLAG,
    cause="batch_full",
    says="Requests wait because the batch is full, and the KV cache has room for more at once.",
    during=lambda subject: subject.work.where(_waits),
    when="requests wait",
    judge=_judge_too_few,
    propose=_propose_more,
    expects=(
        ("requests_running", "rises"),
        ("requests_waiting", "falls"),
        ("queue_time_seconds", "falls"),
        ("generation_tokens_per_second", "rises"),
        ("time_per_output_token_seconds", "rises"),
        ("kv_cache_usage_ratio", "rises"),
    ),
    risk="Each request gets its tokens more slowly. If the KV cache becomes full, requests are preempted and computed "
    "again. Above the largest captured graph, decode steps run without one.",
    guard="tpot_ms.mean > +25%",
)

FEWER = Rule(
    name="max-num-seqs-down",
    flag=FLAG,
    cause="kv_cache_full",
    says="The batch takes in more requests than the KV cache can hold: they are preempted and computed again.",
    during=when_cache_is_short,
    when="the KV cache is full or requests wait",
    judge=_judge_too_many,
    propose=_propose_fewer,
    expects=(
        ("preemptions_total", "falls"),
        ("time_per_output_token_seconds", "falls"),
        ("requests_waiting", "rises"),
    ),
    risk="More requests wait before they start: the time to the first token of those rises.",
    guard="ttft_ms.mean > +10%",
)

LESS_AT_ONCE = Rule(
    name="max-num-seqs-down-for-latency",
    flag=FLAG,
    cause="batch_full",
    says="A full batch misses the objective, and gives no more tokens a second than half of one.",
    during=lambda subject: subject.work if subject.seats is None else subject.work.where(_is_full(subject.seats)),
    when="the batch is full",
    judge=_judge_too_slow,
    propose=_propose_half,
    expects=(
        ("requests_running", "falls"),
        ("time_per_output_token_seconds", "falls"),
        ("requests_waiting", "rises"),
    ),
    risk="More requests wait before they start: the time to the first token of those rises.",
    guard="output_throughput < -5%",
    needs=("objective",),
)
