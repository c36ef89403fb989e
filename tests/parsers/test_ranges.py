# SPDX-License-Identifier: Apache-2.0
"""I3: every quantity has a range, and what is outside is refused under the quantity's name."""

from __future__ import annotations

import math

import pytest

from vllm_watch_parsers import engine_stats, spec_decode, startup
from vllm_watch_parsers.events import Notice, StartupFact


TOO_MUCH = ["-1", "-0.5", "1e30", "inf", "-inf", "1e400"]
NO_COUNTS = ["1.5", "nan", "-nan"]


def stats_line(name, text):
    """Return a statistics line with this field and those that every line has."""
    kind = engine_stats._FIELDS[name]
    others = {"Running": "1 reqs", "Waiting": "1 reqs"}
    others = {other: value for other, value in others.items() if engine_stats._FIELDS[other].field != kind.field}
    fields = {"Avg prompt throughput": "1.0 tokens/s", name: f"{text}{kind.unit}", **others}
    if kind.field == "prompt_tokens_per_second":
        fields = {name: f"{text}{kind.unit}", **others}
    return ", ".join(f"{name}: {value}" for name, value in fields.items())


def spec_line(start, known, name, text):
    """Return a line on drafts with this field and the one that every line has."""
    fields = {"Draft acceptance rate": f"0.0{known['Draft acceptance rate'].unit}", name: f"{text}{known[name].unit}"}
    return start + ", ".join(f"{name}: {value}" for name, value in fields.items())


def bad_texts(kind):
    """Return texts that are outside a quantity's range."""
    if kind.unit == "%":
        return ["100.1", "101", "-1", "-0.1", "9" * 30]  # No share is printed with an exponent.
    return [repr(kind.most * 1.01), *TOO_MUCH, *(NO_COUNTS if kind.whole else [])]


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, kind in engine_stats._FIELDS.items() for text in bad_texts(kind)]
)
def test_statistics_out_of_range(name, text):
    """I3: a quantity of a statistics line that cannot be makes the line unbelievable, and is named."""
    refused, unparsed = engine_stats.parse_stats(stats_line(name, text))

    assert (Notice("value_out_of_range", engine_stats._FIELDS[name].field), Notice("stats_unparsed")) == (
        refused,
        unparsed,
    )


@pytest.mark.parametrize("name", engine_stats._FIELDS)
def test_statistics_in_range(name):
    """I3: the same line with the least and the most that can be is believed."""
    kind = engine_stats._FIELDS[name]
    for text, value in (("0", 0), ("100" if kind.unit == "%" else f"{int(kind.most)}", kind.most)):
        (event,) = engine_stats.parse_stats(stats_line(name, text))

        assert value == getattr(event, kind.field)


@pytest.mark.parametrize(
    ("start", "known"), [(spec_decode.V1_START, spec_decode._V1_FIELDS), (spec_decode.V0_START, spec_decode._V0_FIELDS)]
)
def test_drafts_out_of_range(start, known):
    """I3: the same for every quantity of the lines on speculative decoding."""
    for name, kind in known.items():
        for text in bad_texts(kind):
            expected = (Notice("value_out_of_range", kind.field), Notice("stats_unparsed"))
            assert expected == spec_decode.parse_spec_decoding(spec_line(start, known, name, text)), (name, text)


@pytest.mark.parametrize("rates", ["0.5, -0.1", "1.01", "0.5, inf", ", ".join(["0.5"] * 257)])
def test_positions_out_of_range(rates):
    """I3, E4: shares by position are shares, and there are as many positions as a draft can have."""
    line = f"{spec_decode.V1_START}Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 75.0%"

    assert Notice("value_out_of_range", "position_acceptance_ratio") in spec_decode.parse_spec_decoding(line)


STARTUP = [
    ("max_model_len", "Using max model len {}"),
    ("max_model_len", "Maximum concurrency for {} tokens per request: 1.0x"),
    ("max_concurrency", "Maximum concurrency for 1 tokens per request: {}x"),
    ("kv_cache_tokens", "GPU KV cache size: {} tokens"),
    ("num_gpu_blocks", "# GPU blocks: {}, # CPU blocks: 1"),
    ("num_gpu_blocks", "Engine 0: vllm cache_config_info with initialization after num_gpu_blocks is: {}"),
    ("kv_cache_memory_gib", "Available KV cache memory: {} GiB"),
    ("model_load_gib", "Model loading took {} GiB and 1 seconds"),
    ("model_load_seconds", "Model loading took 1 GiB and {} seconds"),
    ("model_load_gib", "Loading model weights took {} GB"),
    ("weights_load_seconds", "Loading weights took {} seconds"),
    ("compile_seconds", "init engine (profile, create kv cache, warmup model) took 1 s (compilation: {} s)"),
    ("graph_capture_seconds", "Graph capturing finished in {} secs, took 1.5 GiB"),
    ("engine_init_seconds", "init engine (profile, create kv cache, warmup model) took {} seconds"),
    ("max_num_seqs", "args: Namespace(max_num_seqs={})"),
    ("tensor_parallel_size", "args: Namespace(tensor_parallel_size={})"),
    ("data_parallel_size", "args: Namespace(data_parallel_size={})"),
    ("api_server_count", "args: Namespace(api_server_count={})"),
    ("block_size", "args: Namespace(block_size={})"),
    ("num_speculative_tokens", "args: Namespace(num_speculative_tokens={})"),
]


def test_every_number_of_the_start_has_a_range():
    """I3: no number that a start prints is without a bound."""
    types = {name: str(kind) for name, kind in StartupFact.__annotations__.items()}
    numbers = {name for name, kind in types.items() if "int" in kind or "float" in kind}

    assert numbers == set(startup._MOST) == {name for name, _ in STARTUP}


@pytest.mark.parametrize(("name", "form"), STARTUP)
@pytest.mark.parametrize("digits", [11, 18, 24])
def test_facts_out_of_range(name, form, digits):
    """I3: of a fact that cannot be nothing is kept, and what is refused is named; nothing is infinite or negative."""
    said = startup.parse_startup(form.format("9" * digits))
    facts = [event for event in said if isinstance(event, StartupFact)]
    notices = [event for event in said if isinstance(event, Notice)]
    is_possible = 10**digits - 1 <= startup._MOST[name]

    assert all(getattr(fact, name) is None or is_possible for fact in facts)
    assert not notices or notices == [Notice("value_out_of_range", name)]
    assert all(math.isfinite(value) for fact in facts for value in fact if isinstance(value, float))


@pytest.mark.parametrize("form", [form for _, form in STARTUP])
@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e5", "0x10", "\u0661", ""])
def test_what_is_no_number_is_no_fact(form, text):
    """I3: signs, exponents and other digits are printed nowhere at the start."""
    name = next(name for name, other in STARTUP if other == form)

    assert all(getattr(event, name, None) is None for event in startup.parse_startup(form.format(text)))
