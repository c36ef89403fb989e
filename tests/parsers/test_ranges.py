# SPDX-License-Identifier: Apache-2.0
"""I3: every quantity has a range, and what is outside is refused under the quantity's name."""

from __future__ import annotations

import math

import pytest

from tests.parsers.lines import STATS_MESSAGE, record

from vllm_watch_parsers import engine_stats, startup
from vllm_watch_parsers.events import Notice, StartupFact
from vllm_watch_parsers.line import parse_line


TOO_MUCH = ["-1", "-0.5", "1e30", "inf", "-inf", "1e400"]
NO_COUNTS = ["1.5", "nan", "-nan"]


def bad_texts(kind):
    """Return texts that are outside a quantity's range."""
    if kind.unit == "%":
        return ["100.1", "101", "-1", "-0.1", "9" * 30]  # No share is printed with an exponent.
    return [repr(kind.most * 1.01), *TOO_MUCH, *(NO_COUNTS if kind.whole else [])]


TABLES = {
    "": (engine_stats._FIELDS, {"Running": "1 reqs", "Waiting": "1 reqs"}),
    engine_stats.V1_START: (engine_stats._V1_FIELDS, {"Draft acceptance rate": "0.0%"}),
    engine_stats.V0_START: (engine_stats._V0_FIELDS, {"Draft acceptance rate": "0.0"}),
    engine_stats.DIFFUSION_START: (
        engine_stats._DIFFUSION_FIELDS,
        {"Committed": "1 tokens", "Denoising steps": "1"},
    ),
}
"""By how the lines start: their fields, and those that each of them has."""


@pytest.mark.parametrize(("start", "name"), [(start, name) for start, (known, _) in TABLES.items() for name in known])
def test_a_quantity_of_statistics_has_a_range(start, name):
    """I3: the least and the most that can be are believed; beyond them the line is not, and the quantity is named."""
    known, others = TABLES[start]
    kind = known[name]
    rest = {other: value for other, value in others.items() if known[other].field != kind.field}

    def found(text):
        first = {} if start or name.startswith("Avg prompt ") else {"Avg prompt throughput": "1.0 tokens/s"}
        fields = {**first, name: f"{text}{kind.unit}", **rest}
        line = start + ", ".join(f"{other}: {value}" for other, value in fields.items())
        return parse_line(record(line)).events

    for text, value in (("0", 0), (f"{kind.most * 100 if kind.unit == '%' else int(kind.most)}", kind.most)):
        assert [getattr(event, kind.field) for event in found(text)] == [value]
    for text in bad_texts(kind):
        assert found(text) == (Notice("value_out_of_range", kind.field), Notice("stats_unparsed")), text


@pytest.mark.parametrize("number", ["-1", "65536"])
def test_an_engine_has_a_number(number):
    """I3: the number of an engine is one of those that data parallelism can have."""
    refused = (Notice("value_out_of_range", "engine"), Notice("stats_unparsed"))

    assert parse_line(record(STATS_MESSAGE.replace("000", number))).events == refused


@pytest.mark.parametrize("rates", ["0.5, -0.1", "1.01", "0.5, inf", ", ".join(["0.5"] * 257)])
def test_positions_out_of_range(rates):
    """I3, E4: shares by position are shares, and there are as many positions as a draft can have."""
    line = f"{engine_stats.V1_START}Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 75.0%"

    assert Notice("value_out_of_range", "position_acceptance_ratio") in engine_stats.parse_spec_decoding(line)


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
    ("compile_seconds", "torch.compile took {} s in total"),
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
