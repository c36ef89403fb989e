# SPDX-License-Identifier: Apache-2.0
"""Each rule speaks where its evidence is clear, and nowhere else; here of servers that are made up."""

from __future__ import annotations

import pytest

from tests.advice.made_up import Part, load, server

from vllm_watch.analysis.advice.advice_subject import Given
from vllm_watch.analysis.advice.advisor import advise
from vllm_watch.analysis.advice.judge import RULES
from vllm_watch.analysis.loadtest.load_test import Report, parse_objective
from vllm_watch.daemon.catalog.series import PREFIX, SERIES


NOTHING = Report(runs=())
CHAT = Given(parse_objective("chat"))  # 500 ms to the first token, 50 ms for each.
BUDGET = {"max-num-batched-tokens": "2048"}
EAGER = {"enforce-eager": "True"}
PER_TOKEN = {"time_per_output_token_seconds": {0.03: 5.0}}
PROMPTS = {"request_prompt_tokens": {900.0: 2.0}}
TOKENS = {"generation_tokens_total": 500.0, "preemptions_total": 0.0}
PREEMPTING = {"generation_tokens_total": 500.0, "preemptions_total": 1.0}


def advised(history, given=None):
    """Return what is advised for one server."""
    return advise([history], NOTHING, given)


def changes(history, given=None):
    """Return the changes: rule, value now and proposed."""
    return [(each.rule, each.now, each.proposed) for each in advised(history, given).advice]


def reason(history, rule, given=None):
    """Return why a rule is silent."""
    (found,) = (each.reason for each in advised(history, given).silent if each.rule == rule)
    return found


def unknown(history, rule, given=None):
    """Return what a rule cannot judge without."""
    (found,) = (each.unknown for each in advised(history, given).silent if each.rule == rule)
    return found


def is_silent(history, rule, said, given=None):
    """Return whether nothing is advised by a rule, and the reason says so."""
    return rule not in {name for name, *_ in changes(history, given)} and said in reason(history, rule, given)


def full(seconds=700, running=12.0, rates=PREEMPTING):
    """Return a time with a full KV cache."""
    return Part(seconds, load(running, waiting=5.0, kv=0.99), rates, state="saturated")


def waiting(seconds=700, running=16.0, kv=0.2, rates=TOKENS, often=5.0):
    """Return a time in which requests wait."""
    return Part(seconds, load(running, waiting=often, kv=kv), rates, state="saturated")


def too_slow(half=0.03, full=0.08, rate=500.0):
    """Return a time with half a batch and one with a full one: seconds per output token, and tokens a second."""
    return [
        Part(300, load(8.0), TOKENS, {"time_per_output_token_seconds": {half: 5.0}}),
        Part(
            700,
            load(16.0, waiting=5.0),
            {**TOKENS, "generation_tokens_total": rate},
            {"time_per_output_token_seconds": {full: 5.0}},
            state="saturated",
        ),
    ]


class TestBatch:
    """``max-num-seqs``."""

    @pytest.mark.parametrize(
        ("kv", "how", "proposed"),
        [
            (0.2, {}, "32"),
            (0.5, {}, "22"),
            (0.2, {"config": {"max-num-batched-tokens": "128"}, "facts": {"num_speculative_tokens": 4.0}}, "25"),
        ],
        ids=["twice as many", "as the KV cache has room for", "as a step has room for, with a token for each draft"],
    )
    def test_more_where_requests_wait_for_a_place(self, kv, how, proposed):
        """A full batch may be twice as large, but not larger than the KV cache and a step have room for."""
        assert changes(server(waiting(kv=kv), **how)) == [("max-num-seqs-up", "16", proposed)]

    @pytest.mark.parametrize(
        ("parts", "said"),
        [
            ([waiting(running=10.0)], "something else holds them back"),
            ([waiting(kv=0.75)], "75.0 % full"),
            ([waiting(rates=PREEMPTING)], "were preempted"),
            ([waiting(kv=0.6)], "no room for many more"),
            ([waiting(seconds=100)], "requests wait for 1 min 40 s in all, and 2 min are needed"),
            ([waiting(often=0.0)], "requests wait for 0 s in all"),
            ([Part(7200, load(4.0), TOKENS), waiting(180)], "5.00 % are needed"),
            (
                [waiting(300), waiting(70, running=12.0), waiting(230)],
                "the two halves of the time do not agree; in the s",
            ),
            ([Part(300, load(8.0), TOKENS), waiting()], "half a batch gives as many tokens"),
        ],
    )
    def test_silent(self, parts, said):
        """A batch with room, a full cache, preemptions, a short or rare time, unlike halves, a flat curve."""
        assert changes(server(*parts)) == []
        assert is_silent(server(*parts), "max-num-seqs-up", said)

    def test_the_limit_has_to_be_known(self):
        """Without the flag there is no advice on it, whatever its default is."""
        history = server(waiting())._replace(config={}, facts={})

        assert changes(history) == []
        assert reason(history, "max-num-seqs-up") == "max-num-seqs is not known"
        assert unknown(history, "max-num-seqs-up") == ("max-num-seqs",)

    def test_what_is_not_known_matters_only_where_there_is_something_to_see(self):
        """Where no request waits there is nothing to change, whatever the limit of the batch is."""
        history = server(Part(700, load(4.0), TOKENS), config={})._replace(config={})

        assert unknown(history, "max-num-seqs-up") == ()
        assert "requests wait for 0 s" in reason(history, "max-num-seqs-up")

    def test_a_flag_that_was_not_given_is_not_unknown(self):
        """With the command line known, a flag that every release leaves off is off."""
        history = server(full())

        assert unknown(history, "num-gpu-blocks-override-off") == ("num-gpu-blocks-override",)
        assert unknown(history._replace(are_all_flags_known=True), "num-gpu-blocks-override-off") == ()
        assert reason(history._replace(are_all_flags_known=True), "num-gpu-blocks-override-off").endswith(
            "override is not set"
        )

    def test_fewer_where_the_limit_lets_in_too_many(self):
        """With preemptions at the limit, and no way to a larger KV cache, fewer at once."""
        assert changes(server(full(running=16.0))) == [("max-num-seqs-down", "16", "14")]
        assert changes(server(full(running=16.0, rates=TOKENS))) == []
        assert changes(server(full(running=10.0))) == []

    def test_fewer_where_a_full_batch_is_only_slower(self):
        """A full batch that gives no more than half of one, and misses the objective, may be smaller."""
        assert changes(server(*too_slow()), CHAT) == [("max-num-seqs-down-for-latency", "16", "9")]
        assert changes(server(*too_slow())) == []

    @pytest.mark.parametrize(
        ("parts", "said"),
        [
            (too_slow(full=0.04), "40 ms per output token with a full batch"),
            (too_slow(half=0.06), "60 ms with half of one"),
            (too_slow(rate=900.0), "a full batch gives more tokens a second, 900 against 500"),
            (too_slow()[1:], "what half a batch gives is not known"),
        ],
    )
    def test_fewer_is_silent(self, parts, said):
        """Where the objective is met, half a batch misses it, too, a full one gives more, or half was never seen."""
        assert is_silent(server(*parts), "max-num-seqs-down-for-latency", said, CHAT)

    def test_engines_have_a_limit_each(self):
        """Of two engines with 16 places each, 20 running requests fill no batch."""
        config, facts = {"data-parallel-size": "2"}, {"max_running_requests": 32.0}

        assert changes(server(waiting(running=20.0), config=config, facts=facts)) == []
        assert changes(server(waiting(running=32.0), config=config, facts=facts)) == [("max-num-seqs-up", "16", "32")]


class TestCache:
    """The size and the precision of the KV cache."""

    def test_a_larger_share_of_the_memory(self):
        """A step of 0.02, up to 0.95; and nothing about the requests that wait for it."""
        assert changes(server(full(running=16.0), config={"gpu-memory-utilization": "0.9"})) == [
            ("gpu-memory-utilization-up", "0.9", "0.92")
        ]

    @pytest.mark.parametrize(
        ("config", "device", "said"),
        [
            ({"gpu-memory-utilization": "0.95"}, "cuda", "it is 0.95 already"),
            ({"gpu-memory-utilization": "0.9", "kv-cache-memory-bytes": "1000"}, "cuda", "kv-cache-memory-bytes sets"),
            ({"gpu-memory-utilization": "0.9"}, "cpu", "on a CPU"),
            ({}, "cuda", "gpu-memory-utilization is not known"),
        ],
    )
    def test_the_share_is_silent(self, config, device, said):
        """At the most that is safe, where another flag decides, on a CPU, and where it is not known."""
        assert is_silent(server(full(), config=config, device=device), "gpu-memory-utilization-up", said)
        assert changes(server(full(), config=config, device=device)) == []

    def test_an_override_is_nearest(self):
        """If the number of blocks is fixed, no other flag makes the cache larger."""
        config = {"gpu-memory-utilization": "0.9", "num-gpu-blocks-override": "96", "kv-cache-dtype": "auto"}

        assert changes(server(full(), config=config)) == [("num-gpu-blocks-override-off", "96", "off")]

    @pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
    def test_fp8_where_the_share_is_at_its_end(self, dtype):
        """Half the bits for each value, if the memory's share cannot grow and the batch has room."""
        config = {"gpu-memory-utilization": "0.95", "kv-cache-dtype": dtype}

        assert changes(server(full(), config=config)) == [("kv-cache-dtype-fp8", dtype, "fp8")]

    @pytest.mark.parametrize(
        ("dtype", "running", "said"), [("fp8", 12.0, "it is fp8 already"), ("auto", 16.0, "the batch is full, too")]
    )
    def test_fp8_is_silent(self, dtype, running, said):
        """With 8 bits already, and where a larger cache would not be used."""
        assert is_silent(server(full(running=running), config={"kv-cache-dtype": dtype}), "kv-cache-dtype-fp8", said)

    def test_a_cache_that_is_not_full(self):
        """Below 90 % nothing is said of the KV cache."""
        history = server(full()._replace(gauges=load(12.0, 5.0, 0.89)), config={"gpu-memory-utilization": "0.9"})

        assert changes(history) == []
        assert "the KV cache is full only 0 % of this time (highest: 89.0 %)" in reason(
            history, "gpu-memory-utilization-up"
        )

    def test_notes(self):
        """A full cache tells how long the requests in it are, and how much the weights take."""
        history = server(
            full(),
            config={"gpu-memory-utilization": "0.9", "max-model-len": "32768"},
            facts={"kv_cache_capacity_tokens": 100_000.0},
        )
        history = history._replace(hardware={**history.hardware, "model_memory_gib": "60", "kv_cache_memory_gib": "10"})
        lengths, weights = (note.text for note in advised(history).notes)

        assert "max-model-len (now 32,768) would not make room" in lengths
        assert "8,250 tokens each" in lengths
        assert weights.startswith("The weights take 85.7 % of the memory")
        assert advised(server(waiting())).notes == ()


def steps(small, large):
    """Return how many steps a second are small and end long prompts, of a budget of 2,048 tokens."""
    return {16.0: small, 2048.0: large}


def latencies(ttft, gaps, **more):
    """Return what is observed of latencies: all of TTFT the same, gaps by how often they are seen."""
    prefill = {"prefill_time_seconds": {0.9 * ttft: 2.0}, "queue_time_seconds": {0.01: 2.0}}
    return {"time_to_first_token_seconds": {ttft: 2.0}, "inter_token_latency_seconds": gaps, **prefill, **more}


def prompts(computed, cached=0.0):
    """Return how the counters of two prompts a second grow, each with so many tokens."""
    return {**TOKENS, "prompt_tokens_computed": 2 * computed, "prompt_tokens_total": 2 * (computed + cached)}


LONG, SHORT = prompts(6000.0), prompts(1500.0)
"""Prompts that take three steps of 2,048 tokens, and those that take one."""


class TestBudget:
    """``max-num-batched-tokens``, which only an objective can judge."""

    def history(self, observed, config=None, rates=SHORT):
        """Return a server with a budget of 2,048 tokens."""
        return server(Part(700, load(8.0), rates, observed), config=config or BUDGET)

    def test_more_where_prompts_need_many_steps(self):
        """Users wait for the first token, prompts take several steps, and the gaps have room."""
        history = self.history(latencies(2.0, {0.02: 100.0}), rates=LONG)

        assert changes(history, CHAT) == [("max-num-batched-tokens-up", "2048", "4096")]
        assert advised(history, CHAT).advice[0].evidence[-1].text.endswith("has room for 2,048: 3 steps")
        assert changes(history) == []
        assert "--objective" in reason(history, "max-num-batched-tokens-up")

    @pytest.mark.parametrize(
        ("observed", "rates", "said"),
        [
            (latencies(0.3, {0.02: 100.0}), LONG, "the objective is met"),
            (latencies(2.0, {0.02: 100.0}), SHORT, "1,500 tokens to compute on average, which need few steps"),
            (latencies(2.0, {0.02: 100.0}), prompts(1500.0, cached=4500.0), "which need few steps of 2,048"),
            (latencies(2.0, {0.02: 90.0, 0.2: 10.0}), LONG, "has no room"),
            ({**latencies(2.0, {0.02: 100.0}), "queue_time_seconds": {1.0: 2.0}}, LONG, "waiting in the queue"),
            (latencies(2.0, {0.02: 100.0}), TOKENS, "not known"),
            ({}, LONG, "not known"),
        ],
    )
    def test_more_is_silent(self, observed, rates, said):
        """Where the objective is met, prompts are short or cached, gaps are long, requests wait, or all is unknown."""
        assert is_silent(self.history(observed, rates=rates), "max-num-batched-tokens-up", said, CHAT)

    def test_less_where_large_steps_make_others_wait(self):
        """The gaps are uneven and beyond the objective, and the first token has room."""
        history = self.history(latencies(0.08, {0.02: 90.0, 0.2: 10.0}, iteration_tokens=steps(9.0, 1.0)))

        assert changes(history, CHAT) == [("max-num-batched-tokens-down", "2048", "1024")]

    @pytest.mark.parametrize(
        ("observed", "rates", "said"),
        [
            (latencies(0.08, {0.02: 100.0}, iteration_tokens=steps(9.0, 1.0)), SHORT, "is not shown to be beyond"),
            (latencies(0.08, {0.2: 100.0}, iteration_tokens=steps(9.0, 1.0)), SHORT, "are even"),
            (latencies(0.08, {0.02: 90.0, 0.2: 10.0}, iteration_tokens=steps(9.0, 0.01)), SHORT, "not the cause"),
            (latencies(0.4, {0.02: 90.0, 0.2: 10.0}, iteration_tokens=steps(9.0, 1.0)), SHORT, "has no room"),
            (
                latencies(0.08, {0.02: 90.0, 0.2: 10.0}, iteration_tokens=steps(9.0, 1.0)),
                prompts(1000.0, cached=500.0),
                "33.3 % of the prompts' tokens are cached",
            ),
        ],
    )
    def test_less_is_silent(self, observed, rates, said):
        """Gaps are short or even, steps small, the first token late, or prompts cached, which cost nothing."""
        assert is_silent(self.history(observed, rates=rates), "max-num-batched-tokens-down", said, CHAT)
        assert changes(self.history(observed, rates=rates), CHAT) == []

    def test_less_is_not_less_than_a_batch_needs(self):
        """Half of 512 tokens is not advised."""
        observed = latencies(0.08, {0.02: 90.0, 0.2: 10.0}, iteration_tokens={16.0: 9.0, 500.0: 1.0})

        assert changes(self.history(observed, {"max-num-batched-tokens": "512"}), CHAT) == []

    @pytest.mark.parametrize(
        ("config", "given", "said"),
        [
            ({"enable-chunked-prefill": "False"}, CHAT, "chunked prefill is off"),
            ({}, Given(parse_objective("ttft=300ms")), "no limit of both"),
        ],
    )
    def test_what_it_cannot_be_held_against(self, config, given, said):
        """Without chunked prefill, or with half an objective, nothing is said of it."""
        history = self.history(latencies(2.0, {0.02: 100.0}), {**BUDGET, **config}, LONG)

        assert changes(history, given) == []
        for rule in ("max-num-batched-tokens-up", "max-num-batched-tokens-down"):
            assert said in reason(history, rule, given)

    def test_v0_has_another_budget(self):
        """On V0, and where the engine is not known, nothing is said of it."""
        history = self.history(latencies(2.0, {0.02: 100.0}), rates=LONG)

        assert changes(history._replace(version="0.6.6"), CHAT) == []
        assert changes(history._replace(version="0.9.2"), CHAT) == []
        assert changes(history._replace(version="0.9.2", engine_generation="V1"), CHAT) != []


def drafting(accepted, running=4.0, drafts=100.0):
    """Return a time with drafts of which such shares are accepted, by position."""
    by_position = {f"spec_decode_accepted_tokens_total.{place}": share * drafts for place, share in enumerate(accepted)}
    counted = {"spec_decode_drafts_total": drafts, "spec_decode_accepted_tokens_total": sum(accepted) * drafts}
    return Part(700, load(running), {**TOKENS, **counted, **by_position})


class TestDrafts:
    """How many draft tokens."""

    @pytest.mark.parametrize(
        ("tokens", "accepted", "running", "expected"),
        [
            (4, (0.8, 0.5, 0.2, 0.1), 4.0, [("draft-tokens-down", "4", "2")]),
            (4, (0.2, 0.1, 0.1, 0.0), 4.0, [("draft-tokens-down", "4", "off")]),
            (1, (0.5,), 12.0, [("draft-tokens-down", "1", "off")]),
            (2, (0.8, 0.7), 4.0, [("draft-tokens-up", "2", "4")]),
            (1, (0.95,), 8.0, [("draft-tokens-up", "1", "2")]),
            (3, (0.9, 0.8, 0.7), 2.0, [("draft-tokens-up", "3", "4")]),
            (4, (0.9, 0.8, 0.7, 0.6), 4.0, []),
            (2, (0.8, 0.7), 8.0, []),
            (2, (1.0, 1.0), 12.0, []),
            (3, (0.8, 0.5, 0.4), 4.0, []),
            (3, (0.9, 0.5, 0.4), 12.0, []),
        ],
    )
    def test_change(self, tokens, accepted, running, expected):
        """Fewer where the last ones are rejected, none where nearly all are, more where nearly none is."""
        config = {"speculative-config.num_speculative_tokens": str(tokens)}

        assert changes(server(drafting(accepted, running), config=config)) == expected

    def test_a_log_has_the_shares_of_each_moment(self):
        """Where nothing is counted by position, the mean of what is printed counts."""
        history = server(Part(700, load(4.0), TOKENS), config={"speculative-config.num_speculative_tokens": "2"})
        rejected = tuple(point._replace(position_acceptance=(0.8, 0.1)) for point in history.points)

        assert changes(history) == []
        assert changes(history._replace(points=rejected)) == [("draft-tokens-down", "2", "1")]

    def test_the_batch_comes_first(self):
        """While the batch is full, drafts are not judged: what they are worth changes with it."""
        part = drafting((0.2, 0.1), 16.0)
        part = part._replace(gauges=load(16.0, waiting=5.0), state="saturated")
        history = server(part, config={"speculative-config.num_speculative_tokens": "2"})

        assert changes(history) == [("max-num-seqs-up", "16", "32")]
        assert "first max-num-seqs" in reason(history, "draft-tokens-down")


class TestStart:
    """Eager mode and prefix caching."""

    @pytest.mark.parametrize(
        ("gauges", "how", "is_advised"),
        [
            (load(4.0), {}, True),
            (load(4.0), {"device": "cpu"}, False),
            (load(4.0), {"device": None}, False),
            (load(4.0), {"config": {"enforce-eager": "False"}}, False),
            (load(4.0, kv=0.96), {}, False),
            (load(40.0), {"config": {**EAGER, "max-num-seqs": "64"}, "facts": {"max_running_requests": 64.0}}, False),
        ],
        ids=["small batches", "on a CPU", "an unknown device", "it is off", "a full KV cache", "large batches"],
    )
    def test_eager_mode(self, gauges, how, is_advised):
        """Graphs help small batches on a GPU, and need memory that a full KV cache does not leave."""
        history = server(Part(700, gauges, TOKENS, PER_TOKEN), **{"config": EAGER, **how})

        assert changes(history) == [("enforce-eager-off", "True", "False")] * is_advised

    @pytest.mark.parametrize(
        ("switch", "shared", "is_advised"),
        [("False", 600, True), ("False", 100, False), ("False", None, False), ("True", 600, False), (None, 600, False)],
    )
    def test_prefix_caching(self, switch, shared, is_advised):
        """It is advised where it is known to be off, and a large part of the prompts to be the same."""
        config = {} if switch is None else {"enable-prefix-caching": switch}
        history = server(Part(700, load(4.0), TOKENS, PROMPTS), config=config)

        assert (
            changes(history, Given(shared_prompt_tokens=shared))
            == [("enable-prefix-caching-on", "False", "True")] * is_advised
        )


FULL_CACHE = {"gpu-memory-utilization": "0.9", "kv-cache-dtype": "auto"}
DRAFTS = {"speculative-config.num_speculative_tokens": "2"}
SLOW_PROMPTS = latencies(2.0, {0.02: 100.0})
UNEVEN_GAPS = latencies(0.08, {0.02: 90.0, 0.2: 10.0}, iteration_tokens=steps(9.0, 1.0))
SPEAKS = {
    "num-gpu-blocks-override-off": server(full(), config={**FULL_CACHE, "num-gpu-blocks-override": "96"}),
    "gpu-memory-utilization-up": server(full(), config=FULL_CACHE),
    "kv-cache-dtype-fp8": server(full(), config={**FULL_CACHE, "gpu-memory-utilization": "0.95"}),
    "max-num-seqs-down": server(full(running=16.0)),
    "max-num-seqs-down-for-latency": server(*too_slow()),
    "max-num-seqs-up": server(waiting()),
    "max-num-batched-tokens-up": server(Part(700, load(8.0), LONG, SLOW_PROMPTS), config=BUDGET),
    "max-num-batched-tokens-down": server(Part(700, load(8.0), SHORT, UNEVEN_GAPS), config=BUDGET),
    "draft-tokens-down": server(drafting((0.8, 0.2)), config=DRAFTS),
    "draft-tokens-up": server(drafting((0.8, 0.7)), config=DRAFTS),
    "enforce-eager-off": server(Part(700, load(4.0), TOKENS, PER_TOKEN), config={"enforce-eager": "True"}),
    "enable-prefix-caching-on": server(
        Part(700, load(4.0), TOKENS, PROMPTS), config={"enable-prefix-caching": "False"}
    ),
}
"""For each rule a server about which it speaks, and no other rule."""

HEALTHY = server(
    drafting((0.8, 0.6, 0.5), 6.0)._replace(
        observed={
            **latencies(0.08, {0.02: 100.0}, iteration_tokens=steps(9.0, 1.0)),
            **PER_TOKEN,
            **PROMPTS,
        }
    ),
    config={
        **FULL_CACHE,
        **BUDGET,
        "speculative-config.num_speculative_tokens": "3",
        "enforce-eager": "False",
        "enable-prefix-caching": "True",
    },
)
"""A server of which everything is known, and with which nothing is wrong."""


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_speaks_and_is_silent(rule):
    """Of each rule there is a server about which it alone speaks, and one about which none does."""
    given = CHAT._replace(shared_prompt_tokens=600)

    assert [each.rule for each in advised(SPEAKS[rule], given).advice] == [rule]
    assert advised(HEALTHY, given).advice == ()
    assert reason(HEALTHY, rule, given)


def test_evidence_has_series_times_and_numbers():
    """Each number has its series and when it was observed; what is expected is a direction."""
    for history in SPEAKS.values():
        for advice in advised(history, CHAT._replace(shared_prompt_tokens=600)).advice:
            known = {f"{PREFIX}{name}{end}" for name in SERIES for end in ("", "_total")}
            series = {each.series for each in (*advice.evidence, *advice.expects)}
            assert series <= known
            assert all(each.text and each.start < each.end and each.seconds >= 120 for each in advice.evidence)
            assert "%" not in advice.expected
            assert advice.risk
            assert advice.check[-1].startswith("vllm-watch compare ")
