# SPDX-License-Identifier: Apache-2.0
"""
Rules on what a step computes: ``max-num-batched-tokens``, draft tokens, and eager mode.

A larger budget is better for the time to the first token and worse for the time between tokens, so that only an
objective says which of the two is too long.

vLLM observes the tokens of a step (``vllm:iteration_tokens_total``) only where the step returns a token, and a prompt
counts in the step that ends its prefill, as a whole and with what was cached (``IterationStats.update_from_output``).
Steps that compute only a part of a prompt are not in it: how many steps a prompt takes is known from its length alone.
"""

from __future__ import annotations

import math

from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import ALWAYS, DRAFT_TOKENS, OFF, During, NoAdviceError, Rule, Seen
from vllm_watch.analysis.loadtest.load_test import Bounds, Latency, bounded
from vllm_watch.analysis.loadtest.server_history import ACCEPTED, COMPUTED, DRAFTS, PROMPTED, Point
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latency
from vllm_watch.daemon.capacity.saturation import KV_AT_LIMIT
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import milliseconds, percent, significant
from vllm_watch_parsers.flags import DRAFT_SCHEDULE


_BUDGET, _CHUNKED = "max-num-batched-tokens", "enable-chunked-prefill"
_STEPS = "iteration_tokens"
_QUEUE, _PREFILL = "queue_time_seconds", "prefill_time_seconds"
_QUEUE_SHARE, _PREFILL_SHARE = 0.2, 0.5
"""The queue may be at most a fifth of the time to the first token, and the prefill at least half of it."""

_STEPS_OF_A_PROMPT = 2.0
"""A larger budget saves steps if the computed part of a prompt fills at least two on average."""

_SOMETIMES = 0.01
"""A smaller budget helps if at least 1 % of the observed steps end prompts of more than half the budget."""

_CACHED = 0.2
"""If more of the prompts than this is cached, what is observed of a step is not what was computed in it."""

_ROOM = 0.5
"""The first token may come later if its P99 is below half of the objective."""

_UNEVEN = 3.0
"""Gaps between tokens are uneven if their P99 is three times the median."""

_LEAST_BUDGET, _MOST_BUDGET = 512, 16_384
"""In tokens: no smaller one and no larger one is proposed."""

_RARE = 0.3
"""A draft token that is accepted in a smaller share of the drafts is not worth its computation."""

_CROWD = 8.0
"""From eight requests at once, a step has to give each `_SHORT` tokens, or drafts cost more than they give."""

_SHORT = 1.6
_OFTEN = ((4.0, 0.6), (8.0, 0.9))
"""The largest batch, and how often the last draft token has to be accepted there for another one to be worth a try."""

_MOST_DRAFTED = 4
"""More draft tokens than this were only ever found to help a single user at a time."""

_EAGER = "enforce-eager"
_SMALL_BATCH = 32.0


def _limits(subject: Subject) -> tuple[float, float]:
    """Return the objective's limits of TTFT and TPOT in milliseconds."""
    if subject.flags.get(_CHUNKED) == "False":
        raise NoAdviceError("chunked prefill is off: a step holds whole prompts, whatever the objective is")
    limits = {} if subject.objective is None else subject.objective.limits
    if not {"ttft_ms", "tpot_ms"} <= limits.keys():
        raise NoAdviceError("the objective has no limit of both the time to the first token and that per token")
    return limits["ttft_ms"], limits["tpot_ms"]


def _mean(window: Window, series: str) -> float | None:
    found = latency(window.histogram(series))
    return None if found is None else found.mean


def _computed_of_a_prompt(window: Window, ttft: Latency | None) -> float | None:
    """Return how many tokens of a prompt are computed on average: those that are not cached."""
    computed = window.increase(COMPUTED)
    return None if computed is None or ttft is None or not ttft.count else computed / ttft.count


def _judge_small_budget(subject: Subject, window: Window) -> tuple[Seen, ...]:
    (most_ttft, most_gap), budget = _limits(subject), subject.number(_BUDGET) or 0.0
    ttft, gaps = (latency(window.histogram(HISTOGRAMS[name])) for name in ("ttft_ms", "itl_ms"))
    queue, prefill, computed = _mean(window, _QUEUE), _mean(window, _PREFILL), _computed_of_a_prompt(window, ttft)
    if ttft is None or ttft.mean is None or gaps is None or queue is None or prefill is None or computed is None:
        raise NoAdviceError("the latencies, or how many tokens of the prompts are computed, are not known")
    mean = milliseconds(ttft.mean)
    if ttft.mean <= most_ttft:
        raise NoAdviceError("the time to the first token is {mean} on average, and the objective is met", mean=mean)
    if queue > _QUEUE_SHARE * ttft.mean or prefill < _PREFILL_SHARE * ttft.mean:
        raise NoAdviceError(
            "of {mean} to the first token, {queue} are spent waiting in the queue", mean=mean, queue=milliseconds(queue)
        )
    if computed < _STEPS_OF_A_PROMPT * budget:
        raise NoAdviceError(
            "a prompt has {tokens:,.0f} tokens to compute on average, which need few steps of {budget:,.0f}",
            tokens=computed,
            budget=budget,
        )
    longest = gaps.bounds["p99"].high
    if longest is None or longest > most_gap:
        raise NoAdviceError("the time between tokens has no room: its P99 is beyond the objective")
    text = _("is {mean} on average, and the objective {limit}", mean=mean, limit=milliseconds(most_ttft))
    steps = _(
        "grows by {tokens:,.0f} for each prompt, and a step has room for {budget:,.0f}: {steps} steps",
        tokens=computed,
        budget=budget,
        steps=math.ceil(computed / budget),
    )
    return (
        Seen(HISTOGRAMS["ttft_ms"], "mean", ttft.mean / 1000, text, most_ttft / 1000),
        Seen(_PREFILL, "mean", prefill / 1000, _("is {time} of it", time=milliseconds(prefill))),
        Seen(_QUEUE, "mean", queue / 1000, _("is {time} of it", time=milliseconds(queue))),
        Seen("prompt_tokens_total", "mean", computed, steps, _STEPS_OF_A_PROMPT * budget),
    )


def _cached_share(window: Window) -> float | None:
    computed, all_of_them = window.increase(COMPUTED), window.increase(PROMPTED)
    return None if computed is None or not all_of_them else 1 - computed / all_of_them


def _long_prompts(subject: Subject, window: Window) -> float | None:
    """Return in which share of the steps there are more tokens than half the budget, by the bounds of the buckets."""
    steps, half = window.histogram(_STEPS), (subject.number(_BUDGET) or 0.0) / 2
    if steps is None:
        return None
    at_most = [count for bound, count in zip(steps.bounds, steps.counts, strict=True) if half <= bound < math.inf]
    return 1 - at_most[0] / steps.observations if at_most else None


def _uneven(gaps: Latency, most: float) -> tuple[float, float, str]:
    """Return what half of the gaps are at most, and their P99, also in words; raise `NoAdviceError` if it is low."""
    typical, long = gaps.bounds["p50"].high, gaps.bounds["p99"].low
    p99 = f"{bounded(gaps.bounds.get('p99', Bounds()))} ms"
    if typical is None or long is None or long <= most:
        raise NoAdviceError(
            "the P99 of the time between tokens, {p99}, is not shown to be beyond the objective", p99=p99
        )
    if long < _UNEVEN * typical:
        raise NoAdviceError(
            "the gaps between tokens are even: P99 {p99}, half of them up to {typical}",
            p99=p99,
            typical=milliseconds(typical),
        )
    return typical, long, p99


def _judge_large_budget(subject: Subject, window: Window) -> tuple[Seen, ...]:
    most_ttft, most_gap = _limits(subject)
    long_prompts, cached = _long_prompts(subject, window), _cached_share(window)
    ttft, gaps = (latency(window.histogram(HISTOGRAMS[name])) for name in ("ttft_ms", "itl_ms"))
    if ttft is None or gaps is None or long_prompts is None or cached is None:
        raise NoAdviceError("the latencies, or how many tokens the steps have, are not known")
    typical, long, p99 = _uneven(gaps, most_gap)
    if cached > _CACHED:
        raise NoAdviceError(
            "{share} % of the prompts' tokens are cached: how large the steps are is not known", share=percent(cached)
        )
    if long_prompts < _SOMETIMES:
        raise NoAdviceError(
            "only {share} % of the steps end long prompts: they are not the cause", share=percent(long_prompts)
        )
    latest = ttft.bounds["p99"].high
    if latest is None or latest > _ROOM * most_ttft:
        raise NoAdviceError("the time to the first token has no room: its P99 is beyond half the objective")
    text = _("has a P99 of {p99}, and half of the gaps are up to {typical}", p99=p99, typical=milliseconds(typical))
    steps = _(
        "is more than half the budget in {share} % of the steps, which end long prompts", share=percent(long_prompts)
    )
    room = _(
        "has a P99 of up to {p99}, and the objective is {limit}",
        p99=milliseconds(latest),
        limit=milliseconds(most_ttft),
    )
    return (
        Seen(HISTOGRAMS["itl_ms"], "p99", long / 1000, text, most_gap / 1000),
        Seen(_STEPS, "share", long_prompts, steps, _SOMETIMES),
        Seen(HISTOGRAMS["ttft_ms"], "p99", latest / 1000, room, most_ttft / 1000),
    )


def _propose_larger(subject: Subject, _window: Window) -> str:
    now = int(subject.number(_BUDGET) or 0)
    if now >= _MOST_BUDGET:
        raise NoAdviceError("it is {value} already", value=f"{now:,}")
    return str(min(2 * now, _MOST_BUDGET))


def _propose_smaller(subject: Subject, _window: Window) -> str:
    each = 1 + (subject.facts.get("num_speculative_tokens") or 0.0)
    least = max(_LEAST_BUDGET, (subject.number("max-num-seqs") or 0.0) * each)
    proposed = int(subject.number(_BUDGET) or 0) // 2
    if proposed < least:
        raise NoAdviceError("less than {tokens:,.0f} is too little for a batch", tokens=least)
    return str(proposed)


def _is_drafting(old: Point, new: Point) -> bool:
    if DRAFTS in new.counters:
        return new.counters[DRAFTS] > old.counters.get(DRAFTS, 0.0)
    return bool(new.position_acceptance)


_DRAFTING = During(N_("drafts are made"), lambda subject: subject.work.where(_is_drafting))


def _check_drafts(subject: Subject) -> None:
    """Raise `NoAdviceError` if drafts have different lengths: vLLM counts by position over all of them."""
    if DRAFT_SCHEDULE in subject.flags:
        raise NoAdviceError("the number of draft tokens varies with the batch")


def _accepted(window: Window) -> tuple[float, ...]:
    """Return in which share of the drafts the token at each position was accepted, from 0 to 1."""
    drafts, accepted = window.increase(DRAFTS), window.labelled(ACCEPTED)
    counted = tuple(min(accepted[place] / drafts, 1.0) for place in sorted(accepted, key=int)) if drafts else ()
    # Only /metrics counts by position; a log and a Prometheus have the shares of each moment.
    shares = counted or window.mean_positions()
    if not shares:
        raise NoAdviceError("how often the draft tokens are accepted at each position is not known")
    return shares


def _batch(subject: Subject, window: Window) -> float:
    return (window.mean("requests_running") or 0.0) / subject.engines


def _seen_of_drafts(shares: tuple[float, ...], batch: float, limit: float) -> tuple[Seen, ...]:
    positions, length = listed(map(percent, shares)), 1 + sum(shares)
    text = _(
        "by position is {shares} %: the last draft token is accepted in {last} % of the drafts",
        shares=positions,
        last=percent(shares[-1]),
    )
    tokens = _("is {length}: so many tokens a step gives each request", length=significant(length))
    ratio = "spec_decode_position_acceptance_ratio"
    return (
        Seen(ratio, "mean", shares[-1], text, limit),
        Seen("spec_decode_mean_acceptance_length", "mean", length, tokens),
        Seen("requests_running", "mean", batch, _("is {value} for each engine", value=significant(batch))),
    )


def _judge_many_drafts(subject: Subject, window: Window) -> tuple[Seen, ...]:
    _check_drafts(subject)
    shares, batch = _accepted(window), _batch(subject, window)
    is_crowded = batch >= _CROWD and 1 + sum(shares) < _SHORT
    if shares[-1] >= _RARE and not is_crowded:
        raise NoAdviceError(
            "the last draft token is accepted in {share} % of the drafts, which is often enough",
            share=percent(shares[-1]),
        )
    return _seen_of_drafts(shares, batch, _RARE)


def _propose_fewer_drafts(subject: Subject, window: Window) -> str:
    """As many first positions as are accepted often enough."""
    shares = _accepted(window)
    worth = next((place for place, share in enumerate(shares) if share < _RARE), len(shares))
    return str(worth) if 0 < worth < (subject.number(DRAFT_TOKENS) or 0.0) else OFF


def _judge_few_drafts(subject: Subject, window: Window) -> tuple[Seen, ...]:
    _check_drafts(subject)
    shares, batch = _accepted(window), _batch(subject, window)
    limit = next((share for most, share in _OFTEN if batch <= most), None)
    if limit is None:
        raise NoAdviceError(
            "{running} requests run at once: then more draft tokens cost more than they give",
            running=significant(batch),
        )
    if shares[-1] < limit:
        raise NoAdviceError(
            "the last draft token is accepted in {share} % of the drafts, and {limit} % are needed",
            share=percent(shares[-1]),
            limit=percent(limit),
        )
    return _seen_of_drafts(shares, batch, limit)


def _propose_more_drafts(subject: Subject, _window: Window) -> str:
    now = int(subject.number(DRAFT_TOKENS) or 0)
    if now >= _MOST_DRAFTED:
        raise NoAdviceError(
            "there are {now} already, and more than {most} help a single user at a time at best",
            now=now,
            most=_MOST_DRAFTED,
        )
    return str(min(2 * now, _MOST_DRAFTED))


def _judge_eager(subject: Subject, window: Window) -> tuple[Seen, ...]:
    if subject.flags[_EAGER] != "True":
        raise NoAdviceError("it is off already")
    if subject.device == "cpu":
        raise NoAdviceError("a CPU has no graphs")
    running, each = window.mean("requests_running"), _mean(window, HISTOGRAMS["tpot_ms"])
    if running is None or each is None:
        raise NoAdviceError("how many requests run at once, or the time per output token, is not known")
    batch = running / subject.engines
    if batch > _SMALL_BATCH:
        raise NoAdviceError("{running} requests run at once: graphs help small batches", running=significant(batch))
    if (window.highest("kv_cache_usage_ratio") or 0.0) >= KV_AT_LIMIT:
        raise NoAdviceError("the KV cache becomes full, and graphs would take memory from it")
    text = _("is {value} for each engine: graphs help most with so few", value=significant(batch))
    return (
        Seen("requests_running", "mean", batch, text, _SMALL_BATCH),
        Seen(HISTOGRAMS["tpot_ms"], "mean", each / 1000, _("is {value} on average", value=milliseconds(each))),
    )


RULES = (
    Rule(
        name="max-num-batched-tokens-up",
        flag=_BUDGET,
        cause="prompts_in_steps",
        says=N_("Users wait for the first token because each prompt is computed in many steps."),
        needs=("objective",),
        during=ALWAYS,
        judge=_judge_small_budget,
        propose=_propose_larger,
        expects="time_to_first_token_seconds falls, prompt_tokens_per_second rises, inter_token_latency_seconds rises",
        risk=N_(
            "Gaps between tokens become longer where prompts come in. A step needs more memory, which leaves fewer KV "
            "blocks."
        ),
        guard="itl_ms.p99 > +25%",
        takes_memory=True,
        era="V1",
    ),
    Rule(
        name="max-num-batched-tokens-down",
        flag=_BUDGET,
        cause="prompts_in_steps",
        says=N_("Large steps, with long prompts in them, make all others wait for their next token."),
        also=("max-num-seqs",),
        needs=("objective",),
        during=ALWAYS,
        judge=_judge_large_budget,
        propose=_propose_smaller,
        expects="inter_token_latency_seconds falls, time_to_first_token_seconds rises, prompt_tokens_per_second falls",
        risk=N_(
            "Long prompts take more steps: the time to the first token rises, and a busy server gives fewer tokens a "
            "second."
        ),
        guard="ttft_ms.mean > +25%",
        era="V1",
    ),
    Rule(
        name="draft-tokens-down",
        flag=DRAFT_TOKENS,
        cause="drafts",
        says=N_("Draft tokens are computed and thrown away."),
        during=_DRAFTING,
        judge=_judge_many_drafts,
        propose=_propose_fewer_drafts,
        expects="spec_decode_drafted_tokens_per_second falls",
        risk=N_(
            "What this does to the time per token has to be measured: with few requests at once it may rise. How many "
            "draft tokens are accepted depends on the prompts and the temperature: compare with your own."
        ),
        guard="tpot_ms.mean > +5%",
        era="V1",
    ),
    Rule(
        name="draft-tokens-up",
        flag=DRAFT_TOKENS,
        cause="drafts",
        says=N_("Nearly all draft tokens are accepted: there may be more of them."),
        during=_DRAFTING,
        judge=_judge_few_drafts,
        propose=_propose_more_drafts,
        expects="spec_decode_mean_acceptance_length rises, time_per_output_token_seconds falls, "
        "generation_tokens_per_second rises",
        risk=N_(
            "A step takes longer with each draft token: with more requests at once, or other prompts, it can cost "
            "more than it gives. Some models draft well only for as many tokens as they were trained for."
        ),
        guard="tpot_ms.mean > +5%",
        era="V1",
    ),
    Rule(
        name="enforce-eager-off",
        flag=_EAGER,
        cause="eager_steps",
        says=N_(
            "Steps run in eager mode, which is for finding errors: small batches wait for the start of each kernel."
        ),
        needs=("device",),
        during=During(
            N_("requests run"),
            lambda subject: subject.work.where(lambda _old, new: new.gauges.get("requests_running", 0.0) > 0),
        ),
        judge=_judge_eager,
        propose=lambda _subject, _window: "False",
        expects="time_per_output_token_seconds falls, generation_tokens_per_second rises, "
        "kv_cache_capacity_tokens falls",
        risk=N_(
            "The start takes longer, and the graphs need memory: the KV cache becomes smaller. If the server ran out "
            "of memory while it captured graphs, it was switched on for that reason. How much it helps has to be "
            "measured."
        ),
        guard="tpot_ms.mean > +5%",
        takes_memory=True,
    ),
)
