# SPDX-License-Identifier: Apache-2.0
"""
Rules on how many tokens a step has at most: ``max-num-batched-tokens``.

A larger budget is better for the time to the first token and worse for the time between tokens, so that only an
objective says which of the two is too long.

vLLM observes the tokens of a step (``vllm:iteration_tokens_total``) only where the step returns a token, and a prompt
counts in the step that ends its prefill, as a whole and with what was cached (``IterationStats.update_from_output``).
Steps that compute only a part of a prompt are not in it: how many steps a prompt takes is known from its length alone.
"""

from __future__ import annotations

import math

from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import Judgement, Measure, Proposal, Rule, observed
from vllm_watch.analysis.loadtest.load_test import Bounds, Latency, bounded
from vllm_watch.analysis.loadtest.server_history import COMPUTED, PROMPTED
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latency
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LatencyName
from vllm_watch.daemon.catalog.number_texts import milliseconds, percent


FLAG = "max-num-batched-tokens"

_CHUNKED = "enable-chunked-prefill"
_STEPS = "iteration_tokens"
_QUEUE, _PREFILL = "queue_time_seconds", "prefill_time_seconds"
_SMALL, _MOST = 0.2, 0.5
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


def _latencies(window: Window) -> dict[LatencyName, Latency]:
    found = {name: latency(window.histogram(HISTOGRAMS[name])) for name in LATENCIES}
    return {name: each for name, each in found.items() if each is not None}


def _limits(subject: Subject) -> tuple[float, float] | str:
    """Return the objective's limits of TTFT and TPOT in milliseconds, or why the budget cannot be held against them."""
    if subject.flags.get(_CHUNKED) == "False":
        return "chunked prefill is off: a step holds whole prompts, whatever the objective is"
    limits = {} if subject.objective is None else subject.objective.limits
    if not {"ttft_ms", "tpot_ms"} <= limits.keys():
        return "the objective has no limit of both the time to the first token and that per token"
    return limits["ttft_ms"], limits["tpot_ms"]


def _computed_of_a_prompt(window: Window, prompts: float) -> float | None:
    """Return how many tokens of a prompt are computed on average: those that are not cached."""
    computed = window.increase(COMPUTED)
    return None if computed is None or not prompts else computed / prompts


def _cached_share(window: Window) -> float | None:
    computed, all_of_them = window.increase(COMPUTED), window.increase(PROMPTED)
    return None if computed is None or not all_of_them else 1 - computed / all_of_them


def _long_prompts(subject: Subject, window: Window) -> float | None:
    """Return in which share of the steps there are more tokens than half the budget, by the bounds of the buckets."""
    steps, half = window.histogram(_STEPS), (subject.number(FLAG) or 0.0) / 2
    if steps is None:
        return None
    at_most = [count for bound, count in zip(steps.bounds, steps.counts, strict=True) if half <= bound < math.inf]
    return 1 - at_most[0] / steps.observations if at_most else None


def _mean(window: Window, series: str) -> float | None:
    found = latency(window.histogram(series))
    return None if found is None else found.mean


def _judge_too_small(subject: Subject, window: Window) -> Judgement:
    """Prompts need many steps, while users wait for the first token and not between tokens."""
    limits, known, budget = _limits(subject), _latencies(window), subject.number(FLAG) or 0.0
    queue, prefill = _mean(window, _QUEUE), _mean(window, _PREFILL)
    ttft, gaps = known.get("ttft_ms"), known.get("itl_ms")
    if isinstance(limits, str):
        return limits
    computed = None if ttft is None else _computed_of_a_prompt(window, ttft.count or 0)
    if ttft is None or ttft.mean is None or gaps is None or queue is None or prefill is None or computed is None:
        return "the latencies, or how many tokens of the prompts are computed, are not known"
    if ttft.mean <= limits[0]:
        return f"the time to the first token is {milliseconds(ttft.mean)} on average, and the objective is met"
    if queue > _SMALL * ttft.mean or prefill < _MOST * ttft.mean:
        return f"of {milliseconds(ttft.mean)} to the first token, {milliseconds(queue)} are spent waiting in the queue"
    if computed < _STEPS_OF_A_PROMPT * budget:
        return f"a prompt has {computed:,.0f} tokens to compute on average, which need few steps of {budget:,.0f}"
    longest = gaps.bounds["p99"].high
    if longest is None or longest > limits[1]:
        return "the time between tokens has no room: its P99 is beyond the objective"
    text = f"is {milliseconds(ttft.mean)} on average, and the objective {milliseconds(limits[0])}"
    steps = (
        f"grows by {computed:,.0f} for each prompt, and a step has room for {budget:,.0f}: "
        f"{math.ceil(computed / budget)} steps"
    )
    return (
        observed(window, HISTOGRAMS["ttft_ms"], Measure("mean", ttft.mean / 1000, limits[0] / 1000), text),
        observed(window, _PREFILL, Measure("mean", prefill / 1000), f"is {milliseconds(prefill)} of it"),
        observed(window, _QUEUE, Measure("mean", queue / 1000), f"is {milliseconds(queue)} of it"),
        observed(window, "prompt_tokens_total", Measure("mean", computed, _STEPS_OF_A_PROMPT * budget), steps),
    )


def _judge_too_large(subject: Subject, window: Window) -> Judgement:
    """Steps with long prompts in them make the others wait for their next token, and the first token has room."""
    limits, known, long_prompts = _limits(subject), _latencies(window), _long_prompts(subject, window)
    ttft, gaps, cached = known.get("ttft_ms"), known.get("itl_ms"), _cached_share(window)
    if isinstance(limits, str):
        return limits
    if ttft is None or gaps is None or long_prompts is None or cached is None:
        return "the latencies, or how many tokens the steps have, are not known"
    typical, long = gaps.bounds["p50"].high, gaps.bounds["p99"].low
    if typical is None or long is None or long <= limits[1]:
        return f"the P99 of the time between tokens, {_between(gaps)}, is not shown to be beyond the objective"
    if long < _UNEVEN * typical:
        return f"the gaps between tokens are even: P99 {_between(gaps)}, half of them up to {milliseconds(typical)}"
    if cached > _CACHED:
        return f"{percent(cached)} % of the prompts' tokens are cached: how large the steps are is not known"
    if long_prompts < _SOMETIMES:
        return f"only {percent(long_prompts)} % of the steps end long prompts: they are not the cause"
    latest = ttft.bounds["p99"].high
    if latest is None or latest > _ROOM * limits[0]:
        return "the time to the first token has no room: its P99 is beyond half the objective"
    text = f"has a P99 of {_between(gaps)}, and half of the gaps are up to {milliseconds(typical)}"
    steps = f"is more than half the budget in {percent(long_prompts)} % of the steps, which end long prompts"
    room = f"has a P99 of up to {milliseconds(latest)}, and the objective is {milliseconds(limits[0])}"
    return (
        observed(window, HISTOGRAMS["itl_ms"], Measure("p99", long / 1000, limits[1] / 1000), text),
        observed(window, _STEPS, Measure("share", long_prompts, _SOMETIMES), steps),
        observed(window, HISTOGRAMS["ttft_ms"], Measure("p99", latest / 1000, limits[0] / 1000), room),
    )


def _between(known: Latency) -> str:
    return f"{bounded(known.bounds.get('p99', Bounds()))} ms"


def _propose_larger(subject: Subject, _window: Window) -> Proposal | str:
    now = int(subject.number(FLAG) or 0)
    proposed = min(2 * now, _MOST_BUDGET)
    return Proposal(str(now), str(proposed)) if proposed > now else f"it is {now:,} already"


def _propose_smaller(subject: Subject, _window: Window) -> Proposal | str:
    now = int(subject.number(FLAG) or 0)
    each = 1 + (subject.facts.get("num_speculative_tokens") or 0.0)
    least = max(_LEAST_BUDGET, (subject.number("max-num-seqs") or 0.0) * each)
    proposed = now // 2
    return (
        Proposal(str(now), str(proposed)) if proposed >= least else f"less than {least:,.0f} is too little for a batch"
    )


LARGER = Rule(
    name="max-num-batched-tokens-up",
    flag=FLAG,
    cause="prompts_in_steps",
    says="Users wait for the first token because each prompt is computed in many steps.",
    needs=("objective",),
    during=lambda subject: subject.work,
    when="there is work",
    judge=_judge_too_small,
    propose=_propose_larger,
    expects=(
        ("time_to_first_token_seconds", "falls"),
        ("prompt_tokens_per_second", "rises"),
        ("inter_token_latency_seconds", "rises"),
    ),
    risk="Gaps between tokens become longer where prompts come in. A step needs more memory, which leaves fewer KV "
    "blocks.",
    guard="itl_ms.p99 > +25%",
    era="V1",
)

SMALLER = Rule(
    name="max-num-batched-tokens-down",
    flag=FLAG,
    cause="prompts_in_steps",
    says="Large steps, with long prompts in them, make all others wait for their next token.",
    also=("max-num-seqs",),
    needs=("objective",),
    during=lambda subject: subject.work,
    when="there is work",
    judge=_judge_too_large,
    propose=_propose_smaller,
    expects=(
        ("inter_token_latency_seconds", "falls"),
        ("time_to_first_token_seconds", "rises"),
        ("prompt_tokens_per_second", "falls"),
    ),
    risk="Long prompts take more steps: the time to the first token rises, and a busy server gives fewer tokens a "
    "second.",
    guard="ttft_ms.mean > +25%",
    era="V1",
)
