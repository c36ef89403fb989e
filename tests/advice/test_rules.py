# SPDX-License-Identifier: Apache-2.0
"""Each rule speaks where its evidence is clear, and nowhere else; here of servers that are made up."""

from __future__ import annotations

import pytest

from tests.advice.made_up import Part, load, server

from vllm_watch.analysis.advice.advisor import advise
from vllm_watch.analysis.advice.judge import RULES
from vllm_watch.analysis.loadtest.load_test import Event, Report, parse_objective
from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch_parsers.flags import DRAFT_SCHEDULE


NOTHING = Report(runs=())
CHAT = parse_objective("chat")  # 500 ms to the first token, 50 ms for each.
BUDGET = {"max-num-batched-tokens": "2048"}
EAGER = {"enforce-eager": "True"}
SHARE = {"gpu-memory-utilization": "0.9"}
DRAFTS = "speculative-config.num_speculative_tokens"
PER_TOKEN = {"time_per_output_token_seconds": {0.03: 5.0}}
PROMPTS = {"request_prompt_tokens": {900.0: 2.0}}
TOKENS = {"generation_tokens_total": 500.0, "preemptions_total": 0.0}
FEWER_TOKENS = {"generation_tokens_total": 400.0, "preemptions_total": 0.0}
PREEMPTING = {"generation_tokens_total": 500.0, "preemptions_total": 1.0}


def changes(history, given=CHAT):
    """Return the changes that are advised for one server: rule, value now and proposed."""
    return [(each.rule, each.now, each.proposed) for each in advise([history], NOTHING, given).advice]


def silence(history, rule, given=CHAT):
    """Return why a rule is silent about a server."""
    (found,) = (each for each in advise([history], NOTHING, given).silent if each.rule == rule)
    return found


def full(seconds=700, running=12.0, rates=PREEMPTING, kv=0.99):
    """Return a time with a full KV cache."""
    return Part(seconds, load(running, waiting=5.0, kv=kv), rates, state="saturated")


def crowded_gpu():
    """Return a time with a full KV cache on a GPU that has little memory left."""
    return full()._replace(gauges={**full().gauges, "gpu_memory_used_ratio": 0.92})


def waiting(seconds=700, running=16.0, kv=0.2, rates=TOKENS, often=5.0):
    """Return a time in which requests wait."""
    return Part(seconds, load(running, waiting=often, kv=kv), rates, state="saturated")


def nearly_full(running=12.0, rates=FEWER_TOKENS):
    """Return a time in which three quarters of the seats are taken, and fewer tokens come a second."""
    return Part(100, load(running), rates)


def unmeasured():
    """Return a time in which requests wait, and how full the KV cache is is not known."""
    return waiting()._replace(gauges={"requests_running": 16.0, "requests_waiting": 5.0})


def too_slow(half=0.03, full=0.08, rate=500.0):
    """Return a time with half a batch and one with a full one: seconds per output token, and tokens a second."""
    observed = [{"time_per_output_token_seconds": {seconds: 5.0}} for seconds in (half, full)]
    rates = {**TOKENS, "generation_tokens_total": rate}
    return [
        Part(300, load(8.0), TOKENS, observed[0]),
        Part(700, load(16.0, waiting=5.0), rates, observed[1], state="saturated"),
    ]


def latencies(ttft, gaps, **more):
    """Return what is observed of latencies: all of TTFT the same, gaps by how often they are seen."""
    prefill = {"prefill_time_seconds": {0.9 * ttft: 2.0}, "queue_time_seconds": {0.01: 2.0}}
    return {"time_to_first_token_seconds": {ttft: 2.0}, "inter_token_latency_seconds": gaps, **prefill, **more}


def prompts(computed, cached=0.0):
    """Return how the counters of two prompts a second grow, each with so many tokens."""
    return {**TOKENS, "prompt_tokens_computed": 2 * computed, "prompt_tokens_total": 2 * (computed + cached)}


LONG, SHORT = prompts(6000.0), prompts(1500.0)
"""Prompts that take three steps of 2,048 tokens, and those that take one."""

EVEN, UNEVEN = {0.02: 100.0}, {0.02: 90.0, 0.2: 10.0}
"""How often there are gaps of so many seconds between tokens."""

STEPS = {16.0: 9.0, 2048.0: 1.0}
"""How many steps a second are small, and end long prompts."""

SLOW_PROMPTS = latencies(2.0, EVEN)


def budget(observed, rates=SHORT, **config):
    """Return a server with a budget of 2,048 tokens for a step, or another one."""
    return server(Part(700, load(8.0), rates, observed), config={**BUDGET, **config})


def uneven(ttft=0.08, gaps=UNEVEN, rates=SHORT, steps=STEPS, tokens="2048"):
    """Return one whose steps with long prompts make others wait."""
    return budget(latencies(ttft, gaps, iteration_tokens=steps), rates, **{"max-num-batched-tokens": tokens})


def drafting(accepted, running=4.0, waiting=0.0, drafts=100.0):
    """Return a time with drafts of which such shares are accepted, by position."""
    by_position = {f"spec_decode_accepted_tokens_total.{place}": share * drafts for place, share in enumerate(accepted)}
    counted = {"spec_decode_drafts_total": drafts, "spec_decode_accepted_tokens_total": sum(accepted) * drafts}
    return Part(700, load(running, waiting), {**TOKENS, **counted, **by_position})


def drafted(tokens, accepted, running=4.0, **flags):
    """Return a server with so many draft tokens."""
    return server(drafting(accepted, running), config={DRAFTS: str(tokens), **flags})


def eager(gauges=None, **how):
    """Return a server in eager mode."""
    return server(Part(700, gauges or load(4.0), TOKENS, PER_TOKEN), **{"config": EAGER, **how})


OVERRIDE = {**SHARE, "num-gpu-blocks-override": "96", "kv-cache-dtype": "auto"}
FIXED = {"num-gpu-blocks-override": "96"}
OUT_OF_MEMORY = {"failures": frozenset({"out_of_memory"}), "events": (Event(at=1.0, text="out of memory"),)}
AT_MOST = {"gpu-memory-utilization": "0.95"}
TWO_ENGINES = {"config": {"data-parallel-size": "2"}, "facts": {"max_running_requests": 32.0}}
ONE_SEAT = {"config": {"max-num-seqs": "1"}, "facts": {"max_running_requests": 1.0}}
EIGHT_ACTIVE = {"config": {"max-num-active-seqs": "8"}, "facts": {"max_running_requests": 8.0}}
VARYING = {DRAFT_SCHEDULE: "1-8:4/9-16:1"}
MANY_DRAFTS = {"config": {"max-num-batched-tokens": "128"}, "facts": {"num_speculative_tokens": 4.0}}

SPEAKS = [
    ("max-num-seqs-up", server(nearly_full(), waiting()), "16", "32"),
    ("max-num-seqs-up", server(nearly_full(), waiting(kv=0.5)), "16", "22"),  # As the KV cache has room for.
    # As a step has, with a token for each draft.
    ("max-num-seqs-up", server(nearly_full(), waiting(), **MANY_DRAFTS), "16", "25"),
    ("max-num-seqs-up", server(nearly_full(24.0), waiting(running=32.0), **TWO_ENGINES), "16", "32"),
    ("max-num-seqs-down", server(full(running=16.0)), "16", "14"),
    ("max-num-seqs-down-for-latency", server(*too_slow()), "16", "8"),
    ("gpu-memory-utilization-up", server(full(running=16.0), config=SHARE), "0.9", "0.92"),
    ("num-gpu-blocks-override-off", server(full(), config=OVERRIDE), "96", "off"),
    ("kv-cache-dtype-fp8", server(full(), config={**AT_MOST, "kv-cache-dtype": "auto"}), "auto", "fp8"),
    ("kv-cache-dtype-fp8", server(full(), config={**AT_MOST, "kv-cache-dtype": "bfloat16"}), "bfloat16", "fp8"),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, LONG), "2048", "4096"),
    ("max-num-batched-tokens-down", uneven(), "2048", "1024"),
    ("draft-tokens-down", drafted(4, (0.8, 0.5, 0.2, 0.1)), "4", "2"),
    ("draft-tokens-down", drafted(4, (0.2, 0.1, 0.1, 0.0)), "4", "off"),
    ("draft-tokens-down", drafted(1, (0.5,), 12.0), "1", "off"),
    ("draft-tokens-up", drafted(2, (0.8, 0.7)), "2", "4"),
    ("draft-tokens-up", drafted(1, (0.95,), 8.0), "1", "2"),
    ("draft-tokens-up", drafted(3, (0.9, 0.8, 0.7), 2.0), "3", "4"),
    ("enforce-eager-off", eager(), "True", "False"),
]
"""For each rule servers about which it speaks, and no other rule; the value now and the one to try."""

SILENT = [
    ("max-num-seqs-up", server(waiting(running=10.0)), "something else holds them back"),
    ("max-num-seqs-up", server(waiting(running=20.0), **TWO_ENGINES), "something else holds them back"),
    ("max-num-seqs-up", server(waiting(kv=0.75)), "75.0 % full"),
    ("max-num-seqs-up", server(waiting(rates=PREEMPTING)), "were preempted"),
    ("max-num-seqs-up", server(unmeasured()), "how full the KV cache is is not known"),
    ("max-num-seqs-up", server(nearly_full(), waiting(kv=0.6)), "no room for many more"),
    ("max-num-seqs-up", server(waiting(100)), "requests wait for 1 min 40 s in all, and 2 min are needed"),
    ("max-num-seqs-up", server(waiting(often=0.0)), "requests wait for 0 s in all"),
    ("max-num-seqs-up", server(Part(7200, load(4.0), TOKENS), waiting(180)), "5.00 % are needed"),
    (
        "max-num-seqs-up",
        server(waiting(300), waiting(70, running=12.0, rates=FEWER_TOKENS), waiting(230)),
        "the two halves of the time do not agree; in one of them: while requests wait",
    ),
    ("max-num-seqs-up", server(nearly_full(rates=TOKENS), waiting()), "give hardly more tokens a second: 500 with a"),
    ("max-num-seqs-up", server(waiting()), "whether more requests at once give more tokens is not known"),
    ("max-num-seqs-up", server(nearly_full(), waiting(), **OUT_OF_MEMORY), "the server ran out of memory"),
    ("max-num-seqs-up", server(waiting(running=8.0), **EIGHT_ACTIVE), "max-num-active-seqs 8 limits"),
    ("max-num-seqs-down", server(full(running=8.0), **EIGHT_ACTIVE), "max-num-active-seqs 8 limits"),
    ("max-num-seqs-down-for-latency", server(*too_slow(), **EIGHT_ACTIVE), "max-num-active-seqs 8 limits"),
    ("max-num-seqs-down", server(full(running=16.0, rates=TOKENS)), "no request was preempted"),
    ("max-num-seqs-down", server(full(running=10.0)), "the batch is never at its limit of 16"),
    ("max-num-seqs-down", server(full(running=1.0), **ONE_SEAT), "there are too few to take some away"),
    ("max-num-seqs-down-for-latency", server(*too_slow(full=0.04)), "40 ms per output token with a full batch"),
    ("max-num-seqs-down-for-latency", server(*too_slow(half=0.06)), "60 ms with half of one"),
    ("max-num-seqs-down-for-latency", server(*too_slow(rate=900.0)), "gives more tokens a second, 900 against 500"),
    ("max-num-seqs-down-for-latency", server(*too_slow()[1:]), "what half a batch gives is not known"),
    ("gpu-memory-utilization-up", server(full(), config=AT_MOST), "it is 0.95 already"),
    ("gpu-memory-utilization-up", server(full(), config=SHARE, **OUT_OF_MEMORY), "the server ran out of memory"),
    ("gpu-memory-utilization-up", server(crowded_gpu(), config=SHARE), "92.0 % of a GPU's memory is in use"),
    ("num-gpu-blocks-override-off", server(full(), config=FIXED, **OUT_OF_MEMORY), "the server ran out of memory"),
    ("num-gpu-blocks-override-off", server(crowded_gpu(), config=FIXED), "92.0 % of a GPU's memory is in use"),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, LONG)._replace(**OUT_OF_MEMORY), "the server ran out of memory"),
    ("enforce-eager-off", eager(**OUT_OF_MEMORY), "the server ran out of memory"),
    ("gpu-memory-utilization-up", server(unmeasured(), config=SHARE), "how full the KV cache is is not known"),
    (
        "gpu-memory-utilization-up",
        server(full(), config={**SHARE, "kv-cache-memory-bytes": "1000"}),
        "kv-cache-memory-bytes sets the size",
    ),
    ("gpu-memory-utilization-up", server(full(), config=SHARE, device="cpu"), "on a CPU"),
    ("gpu-memory-utilization-up", server(full(), config={}), "gpu-memory-utilization is not known"),
    (
        "gpu-memory-utilization-up",
        server(full(kv=0.89), config=SHARE),
        "the KV cache is full only 0 % of this time (highest: 89.0 %)",
    ),
    ("kv-cache-dtype-fp8", server(full(), config={"kv-cache-dtype": "fp8"}), "it is fp8 already"),
    ("kv-cache-dtype-fp8", server(full(running=16.0), config={"kv-cache-dtype": "auto"}), "the batch is full, too"),
    ("max-num-batched-tokens-up", budget(latencies(0.3, EVEN), LONG), "the objective is met"),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS), "1,500 tokens to compute on average, which need few steps"),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, prompts(1500.0, cached=4500.0)), "few steps of 2,048"),
    ("max-num-batched-tokens-up", budget(latencies(2.0, UNEVEN), LONG), "has no room"),
    (
        "max-num-batched-tokens-up",
        budget({**SLOW_PROMPTS, "queue_time_seconds": {1.0: 2.0}}, LONG),
        "waiting in the queue",
    ),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, TOKENS), "not known"),
    ("max-num-batched-tokens-up", budget({}, LONG), "not known"),
    (
        "max-num-batched-tokens-up",
        budget(SLOW_PROMPTS, prompts(40_000.0), **{"max-num-batched-tokens": "16384"}),
        "it is 16,384 already",
    ),
    ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, LONG, **{"enable-chunked-prefill": "False"}), "prefill is off"),
    ("max-num-batched-tokens-down", uneven(gaps=EVEN), "is not shown to be beyond"),
    ("max-num-batched-tokens-down", uneven(gaps={0.2: 100.0}), "are even"),
    ("max-num-batched-tokens-down", uneven(steps={16.0: 9.0, 2048.0: 0.01}), "not the cause"),
    ("max-num-batched-tokens-down", uneven(ttft=0.4), "has no room"),
    ("max-num-batched-tokens-down", uneven(rates=prompts(1000.0, cached=500.0)), "33.3 % of the prompts' tokens are"),
    ("max-num-batched-tokens-down", uneven(steps={16.0: 9.0, 500.0: 1.0}, tokens="512"), "less than 512 is too little"),
    ("draft-tokens-up", drafted(4, (0.9, 0.8, 0.7, 0.6)), "there are 4 already"),
    ("draft-tokens-up", drafted(2, (0.8, 0.7), 8.0), "and 90.0 % are needed"),
    ("draft-tokens-up", drafted(2, (1.0, 1.0), 12.0), "cost more than they give"),
    ("draft-tokens-down", drafted(4, (0.8, 0.5, 0.2, 0.1), **VARYING), "varies with the batch"),
    ("draft-tokens-up", drafted(2, (0.8, 0.7), **VARYING), "varies with the batch"),
    ("draft-tokens-down", drafted(3, (0.8, 0.5, 0.4)), "often enough"),
    ("draft-tokens-down", drafted(3, (0.9, 0.5, 0.4), 12.0), "often enough"),
    ("draft-tokens-down", server(Part(700, load(4.0), TOKENS), config={DRAFTS: "2"}), "drafts are made for 0 s"),
    ("enforce-eager-off", eager(device="cpu"), "a CPU has no graphs"),
    ("enforce-eager-off", server(Part(700, load(4.0), TOKENS), config=EAGER), "time per output token, is not known"),
    ("enforce-eager-off", eager(device=None), "it is not known whether the server runs on a GPU"),
    ("enforce-eager-off", eager(config={"enforce-eager": "False"}), "it is off already"),
    ("enforce-eager-off", eager(load(4.0, kv=0.96)), "the KV cache becomes full"),
    (
        "enforce-eager-off",
        eager(load(40.0), config={**EAGER, "max-num-seqs": "64"}, facts={"max_running_requests": 64.0}),
        "graphs help small batches",
    ),
]
"""Servers about which a rule is silent, and so is each other one; and why."""


@pytest.mark.parametrize(("rule", "history", "now", "proposed"), SPEAKS)
def test_a_rule_speaks_where_its_evidence_is_clear(rule, history, now, proposed):
    """There is the one change, with the value that the cache, a step and the batch have room for."""
    assert changes(history) == [(rule, now, proposed)]


@pytest.mark.parametrize(("rule", "history", "said"), SILENT)
def test_a_rule_is_silent_where_it_is_not(rule, history, said):
    """There is no advice, or none by this rule, and the reason says why."""
    assert rule not in [name for name, *_ in changes(history)]
    assert said in silence(history, rule).reason


@pytest.mark.parametrize(
    ("rule", "history", "given", "said"),
    [
        ("max-num-seqs-down-for-latency", server(*too_slow()), None, "--objective"),
        ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, LONG), None, "--objective"),
        ("max-num-batched-tokens-up", budget(SLOW_PROMPTS, LONG), parse_objective("ttft=300ms"), "no limit of"),
    ],
)
def test_what_only_the_user_knows(rule, history, given, said):
    """Without a whole objective nothing is said of what it decides."""
    assert changes(history, given) == []
    assert said in silence(history, rule, given).reason


def test_every_rule_is_tried():
    """Of each rule there is a server about which it speaks, and one about which it is silent."""
    assert {rule for rule, *_ in SPEAKS} == {rule.name for rule in RULES}


def test_the_limit_has_to_be_known():
    """Without the flag there is no advice on it; that matters only where there is something to see."""
    busy = server(waiting())._replace(config={}, facts={})
    quiet = server(Part(700, load(4.0), TOKENS))._replace(config={})

    assert changes(busy) == []
    assert silence(busy, "max-num-seqs-up").reason == "max-num-seqs is not known"
    assert silence(busy, "max-num-seqs-up").unknown == ("max-num-seqs",)
    assert silence(quiet, "max-num-seqs-up").unknown == ()
    assert "requests wait for 0 s" in silence(quiet, "max-num-seqs-up").reason
    slow = server(*too_slow())._replace(config={}, facts={})
    assert silence(slow, "max-num-seqs-down-for-latency").unknown == ("max-num-seqs",)
    assert (
        silence(slow._replace(config={"max-num-seqs": "auto"}), "max-num-seqs-up").reason == "max-num-seqs is not known"
    )


def test_a_flag_that_was_not_given_is_not_unknown():
    """With the command line known, a flag that every release leaves off is off."""
    rule, history = "num-gpu-blocks-override-off", server(full())

    assert silence(history, rule).unknown == ("num-gpu-blocks-override",)
    assert silence(history._replace(are_all_flags_known=True), rule).unknown == ()
    assert silence(history._replace(are_all_flags_known=True), rule).reason.endswith("override is not set")


def test_the_budget_is_that_of_v1():
    """On V0, and where the engine is not known, nothing is said of the budget."""
    history = budget(SLOW_PROMPTS, LONG)

    assert changes(history._replace(version="0.6.6")) == []
    assert changes(history._replace(version="0.9.2")) == []
    assert changes(history._replace(version="0.9.2", engine_generation="V1")) != []


def test_a_log_has_the_shares_of_each_moment():
    """Where no drafts are counted by position, the mean of what is printed counts."""
    history = server(Part(700, load(4.0), TOKENS), config={DRAFTS: "2"})
    rejected = tuple(point._replace(position_acceptance=(0.8, 0.1)) for point in history.points)

    assert changes(history._replace(points=rejected)) == [("draft-tokens-down", "2", "1")]


def test_the_batch_comes_first():
    """While the batch is full, drafts are not judged: what they are worth changes with it."""
    busy = drafting((0.2, 0.1), 16.0, waiting=5.0)._replace(state="saturated")
    history = server(nearly_full(), busy, config={DRAFTS: "2"})

    assert changes(history) == [("max-num-seqs-up", "16", "32")]
    assert "first max-num-seqs" in silence(history, "draft-tokens-down").reason


def test_parts_that_differ_are_judged_apart():
    """Where drafts are no longer accepted the advice is of the time since then, with its start and what was before."""
    history = server(drafting((0.9, 0.75)), drafting((0.3, 0.2)), config={DRAFTS: "2"})
    (advice,) = advise([history], NOTHING).advice

    assert (advice.rule, advice.proposed) == ("draft-tokens-down", "1")
    assert advice.evidence[0].start == history.points[0].at + 700
    before = "before, the last draft token is accepted in 75.0 % of the drafts, which is often enough."
    assert advice.caveats[0] == f"Only since 2023-11-14 22:25:00 UTC; {before}"
    assert changes(server(drafting((0.3, 0.2)), drafting((0.9, 0.5)), config={DRAFTS: "2"})) == []


@pytest.mark.parametrize("batch", [4.0, 12.0])
def test_no_drafts_are_not_said_to_be_faster(batch):
    """That draft tokens are thrown away says nothing of the time per token without them."""
    (advice,) = advise([drafted(4, (0.2, 0.1, 0.1, 0.0), batch)], NOTHING).advice

    assert [each.series for each in advice.expects] == [f"{PREFIX}spec_decode_drafted_tokens_per_second"]


def test_a_crash_is_told():
    """Why nothing takes more memory is said once, with the time; it is no note of a healthy server."""
    (note,) = advise([server(full(), config=SHARE, **OUT_OF_MEMORY)], NOTHING).notes

    assert note.text.startswith("Its log tells of a lack of memory, last at 1970-01-01 00:00:01 UTC: nothing")


@pytest.mark.parametrize(
    ("running", "config", "is_told"),
    [(4.0, {"max-loras": "2"}, True), (16.0, {"max-loras": "2"}, False), (4.0, {}, False)],
)
def test_adapters_that_wait_although_seats_are_free_are_told(running, config, is_told):
    """With a full batch they would wait anyway, and without LoRA they wait for something else."""
    held = Part(700, {**load(running, waiting=3.0), "requests_deferred": 3.0}, TOKENS)
    notes = [note.text for note in advise([server(held, config=config)], NOTHING).notes]

    assert [note.startswith("For 11 min 40 s requests were deferred although") for note in notes] == [True] * is_told


def test_notes():
    """A full cache tells how long the requests in it are."""
    facts = {"kv_cache_capacity_tokens": 100_000.0}
    (note,) = advise([server(full(), config={**SHARE, "max-model-len": "32768"}, facts=facts)], NOTHING).notes

    assert "max-model-len (now 32,768) would not make room" in note.text
    assert "8,250 tokens each" in note.text
    assert advise([server(nearly_full(), waiting())], NOTHING).notes == ()


def test_nothing_is_said_of_a_healthy_server():
    """Where everything is known and nothing is wrong, each rule has a reason to be silent."""
    seen = {**latencies(0.08, EVEN, iteration_tokens=STEPS), **PER_TOKEN, **PROMPTS}
    config = {**SHARE, **BUDGET, "kv-cache-dtype": "auto", DRAFTS: "3"}
    config |= {"enforce-eager": "False"}
    found = advise([server(drafting((0.8, 0.6, 0.5), 6.0)._replace(observed=seen), config=config)], NOTHING, CHAT)

    assert found.advice == ()
    assert [each.rule for each in found.silent] == [rule.name for rule in RULES]
    assert all(each.reason and not each.unknown for each in found.silent)


@pytest.mark.parametrize(("rule", "history"), {rule: history for rule, history, *_ in SPEAKS}.items())
def test_evidence_has_series_times_and_numbers(rule, history):
    """Each number has its series and when it was observed; what is expected is a direction."""
    (advice,) = advise([history], NOTHING, CHAT).advice
    known = {f"{PREFIX}{name}{end}" for name in SERIES for end in ("", "_total")}

    assert {each.series for each in (*advice.evidence, *advice.expects)} <= known
    assert all(each.text and each.start < each.end and each.seconds >= 120 for each in advice.evidence)
    assert {each.direction for each in advice.expects} <= {"rises", "falls"}
    assert advice.risk
    assert advice.check[-1].startswith("vllm-watch compare ")
    assert rule != "max-num-batched-tokens-up" or advice.evidence[-1].text.endswith("has room for 2,048: 3 steps")
