# SPDX-License-Identifier: Apache-2.0
"""Rules on switches of the server's start: eager mode off, and prefix caching on."""

from __future__ import annotations

from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import Judgement, Measure, Proposal, Rule, observed
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latency
from vllm_watch.daemon.capacity.saturation import KV_AT_LIMIT
from vllm_watch.daemon.catalog.number_texts import milliseconds, percent, significant


EAGER, PREFIX = "enforce-eager", "enable-prefix-caching"

_SMALL_BATCH = 32.0
_MUCH_SHARED = 0.2
_PROMPTS = "request_prompt_tokens"


def _judge_eager(subject: Subject, window: Window) -> Judgement:
    """Small batches in eager mode: each step starts every kernel anew, which takes longer than the kernels."""
    if subject.flags[EAGER] != "True":
        return "it is off already"
    if subject.device == "cpu":
        return "a CPU has no graphs"
    batch, each = window.mean("requests_running"), latency(window.histogram(HISTOGRAMS["tpot_ms"]))
    if batch is None or each is None or each.mean is None:
        return "how many requests run at once, or the time per output token, is not known"
    batch /= subject.engines
    if batch > _SMALL_BATCH:
        return f"{significant(batch)} requests run at once: graphs help small batches"
    if (window.highest("kv_cache_usage_ratio") or 0.0) >= KV_AT_LIMIT:
        return "the KV cache becomes full, and graphs would take memory from it"
    text = f"is {significant(batch)} for each engine: graphs help most with so few"
    return (
        observed(window, "requests_running", Measure("mean", batch, _SMALL_BATCH), text),
        observed(
            window, HISTOGRAMS["tpot_ms"], Measure("mean", each.mean / 1000), f"is {milliseconds(each.mean)} on average"
        ),
    )


def _judge_prefix(subject: Subject, window: Window) -> Judgement:
    """Prompts have a beginning in common that is computed for each of them."""
    if subject.flags[PREFIX] != "False":
        return "it is on already"
    shared, prompts = subject.shared_prompt, window.histogram(_PROMPTS)
    each = None if prompts is None else prompts.mean
    if each is None:
        return "how long the prompts are is not known"
    if shared is None or shared.ratio < _MUCH_SHARED:
        return "too little of the prompts is the same in many of them"
    common = f"{percent(shared.ratio)} % of that are the same in many prompts ({shared.known_by})"
    text = f"is {significant(each)} on average, and {common}"
    return (observed(window, _PROMPTS, Measure("mean", each), text),)


NO_EAGER = Rule(
    name="enforce-eager-off",
    flag=EAGER,
    cause="eager_steps",
    says="Steps run in eager mode, which is for finding errors: small batches wait for the start of each kernel.",
    needs=("device",),
    during=lambda subject: subject.work.where(lambda _old, new: new.gauges.get("requests_running", 0.0) > 0),
    when="requests run",
    judge=_judge_eager,
    propose=lambda subject, _window: Proposal(subject.flags[EAGER], "False"),
    expects=(
        ("time_per_output_token_seconds", "falls"),
        ("generation_tokens_per_second", "rises"),
        ("kv_cache_capacity_tokens", "falls"),
    ),
    risk="The start takes longer, and the graphs need memory: the KV cache becomes smaller. If the server ran out of "
    "memory while it captured graphs, it was switched on for that reason. How much it helps has to be measured.",
    guard="tpot_ms.mean > +5%",
)

PREFIX_CACHING = Rule(
    name="enable-prefix-caching-on",
    flag=PREFIX,
    cause="prompts_computed_again",
    says="Prompts begin alike, and what they have in common is computed for each of them.",
    needs=("shared prompt",),
    during=lambda subject: subject.work,
    when="there is work",
    judge=_judge_prefix,
    propose=lambda subject, _window: Proposal(subject.flags[PREFIX], "True"),
    expects=(
        ("prefix_cache_hit_ratio", "rises"),
        ("time_to_first_token_seconds", "falls"),
    ),
    risk="Models with Mamba or sliding-window layers may hit nothing below a large block. A user who measures times "
    "can find out what others asked; requests can have a cache_salt against that.",
    guard="tpot_ms.mean > +5%",
)
