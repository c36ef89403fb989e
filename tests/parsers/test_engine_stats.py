# SPDX-License-Identifier: Apache-2.0
"""Statistics lines of every era, and lines that are nearly statistics."""

from __future__ import annotations

import pytest

from tests.parsers.lines import STATS, STATS_MESSAGE, events, old_record, record

from vllm_watch_parsers.engine_stats import parse_stats
from vllm_watch_parsers.events import AGGREGATED, EngineStats, Notice


V1 = EngineStats(
    engine=None,
    prompt_tokens_per_second=1234.5,
    generation_tokens_per_second=67.8,
    requests_running=9,
    requests_waiting=10,
)
_V1_TEXT = (
    "Avg prompt throughput: 1234.5 tokens/s, Avg generation throughput: 67.8 tokens/s, "
    "Running: 9 reqs, Waiting: 10 reqs"
)
_TPUT = "Avg prompt tput: 1234.5 toks/s, Avg generation tput: 67.8 toks/s, Reqs Running: 9, Waiting: 10"

ERAS = {
    "V0, 0.5.0 to 0.10.2": (
        (
            "Avg prompt throughput: 1234.5 tokens/s, Avg generation throughput: 67.8 tokens/s, Running: 9 reqs, "
            "Swapped: 2 reqs, Pending: 10 reqs, GPU KV cache usage: 12.3%, CPU KV cache usage: 4.5%."
        ),
        V1._replace(requests_swapped=2, kv_cache_usage_ratio=0.123, cpu_kv_cache_usage_ratio=0.045),
    ),
    "V0's line of hit rates, 0.5.5 to 0.10.2": (
        "Prefix cache hit rate: GPU: 12.34%, CPU: 0.00%",
        EngineStats(prefix_cache_hit_ratio=0.1234, cpu_prefix_cache_hit_ratio=0.0),
    ),
    "V0's line of hit rates without prefix caching on the CPU": (
        "Prefix cache hit rate: GPU: 100.00%, CPU: -100.00%",
        EngineStats(prefix_cache_hit_ratio=1.0),
    ),
    "V0's line of hit rates before the first query": (
        "Prefix cache hit rate: GPU: nan%, CPU: -1.00%",
        EngineStats(),
    ),
    "V1, 0.7.0": (
        "Running: 9 reqs, Waiting: 10 reqs ",
        EngineStats(requests_running=9, requests_waiting=10),
    ),
    "V1, 0.7.1 and 0.7.2: no comma before GPU": (
        f"{_V1_TEXT} GPU KV cache usage: 12.3%.",
        V1._replace(kv_cache_usage_ratio=0.123),
    ),
    "V1, 0.7.3 to 0.8.2": (
        f"{_V1_TEXT}, GPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%",
        V1._replace(kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456),
    ),
    "V1, 0.8.3 to 0.11.0": (
        f"Engine 012: {_V1_TEXT}, GPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%",
        V1._replace(engine="12", kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456),
    ),
    "V1, 0.11.1 to 0.19.1, all optional parts": (
        (
            f"Engine 000: {_V1_TEXT}, Preemptions: 3, GPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%, "
            "Corrupted: 0 reqs, External prefix cache hit rate: 7.8%, MM cache hit rate: 9.1%"
        ),
        V1._replace(
            engine="0",
            preemptions=3,
            kv_cache_usage_ratio=0.123,
            prefix_cache_hit_ratio=0.456,
            external_prefix_cache_hit_ratio=0.078,
            mm_cache_hit_ratio=0.091,
        ),
    ),
    "V1, 0.11.1 and later, aggregated": (
        f"16 Engines Aggregated: {_V1_TEXT}, GPU KV cache usage: 0.0%, Prefix cache hit rate: 100.0%",
        V1._replace(engine=AGGREGATED, kv_cache_usage_ratio=0.0, prefix_cache_hit_ratio=1.0),
    ),
    "V1, 0.20.0 and later: deferred, which are among the waiting": (
        f"Engine 000: {_V1_TEXT}, Deferred: 4 reqs, GPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%",
        V1._replace(engine="0", requests_deferred=4, kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456),
    ),
    "V1, 0.30.0 and later, on CPUs": (
        f"Engine 000: {_V1_TEXT}, CPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%",
        V1._replace(engine="0", kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456),
    ),
    "V1, 0.30.0 and later, on XPUs": (
        f"Engine 000: {_V1_TEXT}, XPU KV cache usage: 12.3%",
        V1._replace(engine="0", kv_cache_usage_ratio=0.123),
    ),
    "V1, 0.31.0 and later, before the first request": (
        f"Engine 000: {_V1_TEXT}, GPU KV cache usage: 12.3%",
        V1._replace(engine="0", kv_cache_usage_ratio=0.123),
    ),
    "V1, 0.32.0 and later: KV fetch, which has commas": (
        (
            f"Engine 000: {_V1_TEXT}, Deferred: 4 reqs, "
            "KV fetch: 5 waiting to start, 6 in progress, 7 completed waiting, "
            "GPU KV cache usage: 12.3%, Prefix cache hit rate: 45.6%, External prefix cache hit rate: 7.8%"
        ),
        V1._replace(
            engine="0",
            requests_deferred=4,
            kv_fetch=(5, 6, 7),
            kv_cache_usage_ratio=0.123,
            prefix_cache_hit_ratio=0.456,
            external_prefix_cache_hit_ratio=0.078,
        ),
    ),
    "Rust, 0.22.1 to 0.24.0": (
        f"{_TPUT}, GPU KV cache used: 12.3%, Prefix cache hit rate: 45.6%",
        V1._replace(kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456, is_rust=True),
    ),
    "Rust, 0.25.1 and later": (
        (
            f"{_TPUT}, Deferred: 4 reqs, Preemptions: 5, GPU KV cache used: 12.3%, Prefix cache hit rate: 45.6%, "
            "External prefix cache hit rate: 7.8%"
        ),
        V1._replace(
            requests_deferred=4,
            is_rust=True,
            preemptions=5,
            kv_cache_usage_ratio=0.123,
            prefix_cache_hit_ratio=0.456,
            external_prefix_cache_hit_ratio=0.078,
        ),
    ),
    "external hits without any of the own cache": (
        f"Engine 000: {_V1_TEXT}, GPU KV cache usage: 12.3%, External prefix cache hit rate: 7.8%",
        V1._replace(engine="0", kv_cache_usage_ratio=0.123, external_prefix_cache_hit_ratio=0.078),
    ),
    "fields in another order": (
        (
            "Engine 000: Avg prompt throughput: 1234.5 tokens/s, Prefix cache hit rate: 45.6%, Waiting: 10 reqs, "
            "GPU KV cache usage: 12.3%, Running: 9 reqs, Avg generation throughput: 67.8 tokens/s"
        ),
        V1._replace(engine="0", kv_cache_usage_ratio=0.123, prefix_cache_hit_ratio=0.456),
    ),
    "a hit rate of nothing": (
        f"Engine 000: {_V1_TEXT}, GPU KV cache usage: 12.3%, Prefix cache hit rate: nan%",
        V1._replace(engine="0", kv_cache_usage_ratio=0.123),
    ),
}


@pytest.mark.parametrize(("message", "stats"), ERAS.values(), ids=ERAS)
def test_statistics_of_every_era(message, stats):
    """Each era's line gives the same fields under the same names."""
    assert parse_stats(message) == (stats,)


@pytest.mark.parametrize("site", ["metrics.py", "loggers.py", "log_stats.rs"])
def test_statistics_count_from_the_files_that_print_them(site):
    """V0's, V1's and the Rust server's file print statistics, with and without brackets."""
    assert events(record(STATS_MESSAGE, site)) == (STATS,)
    assert events(old_record(STATS_MESSAGE, site)) == (STATS,)


@pytest.mark.parametrize(
    "site",
    [
        "logger.py",
        "request_logger.py",
        "async_llm.py",
        "api_server.py",
        "core.py",
        "xmetrics.py",
        "loggers.pyc",
        "a.rs",
        "json",
        "uvicorn",
    ],
)
def test_statistics_count_from_no_other_file(site):
    """A perfect statistics line from any other file is someone's text."""
    assert events(record(STATS_MESSAGE, site)) == ()


@pytest.mark.parametrize(
    ("extra", "unknown"),
    [
        ("Sleeping: 4 reqs", ("Sleeping",)),
        ("New ratio: 4.5%", ("New ratio",)),
        ("GPU+host bytes: 5", ("GPU+host bytes",)),
        ("Draft model: a/b", ("Draft model",)),
        ("¿?: 9", ("unnamed",)),
        ("State: {'a': 1}", ("State",)),
    ],
)
def test_a_field_of_a_later_release_is_named_and_does_no_harm(extra, unknown):
    """A field that no release known here prints is reported by its name; the others are read."""
    (stats,) = parse_stats(f"{STATS_MESSAGE}, {extra}")

    assert stats.unknown_fields == unknown
    assert stats._replace(unknown_fields=()) == STATS


def test_a_field_of_a_later_release_may_stand_anywhere():
    """An unknown field in the middle is skipped, too."""
    (stats,) = parse_stats(STATS_MESSAGE.replace(", GPU", ", Parked: 2 reqs, GPU"))

    assert stats == STATS._replace(unknown_fields=("Parked",))


@pytest.mark.parametrize(
    ("old", "new", "quantity"),
    [
        ("12.3 tokens/s", "-12.3 tokens/s", "prompt_tokens_per_second"),
        ("12.3 tokens/s", "100000001.0 tokens/s", "prompt_tokens_per_second"),
        ("45.6 tokens/s", "1e300 tokens/s", "generation_tokens_per_second"),
        ("45.6 tokens/s", "inf tokens/s", "generation_tokens_per_second"),
        ("45.6 tokens/s", "nan tokens/s", "generation_tokens_per_second"),
        ("7 reqs", "-7 reqs", "requests_running"),
        ("7 reqs", "7.5 reqs", "requests_running"),
        ("7 reqs", "10000001 reqs", "requests_running"),
        ("8 reqs", "nan reqs", "requests_waiting"),
        ("9.1%", "100.1%", "kv_cache_usage_ratio"),
        ("9.1%", "-0.1%", "kv_cache_usage_ratio"),
        ("55.5%", "101.0%", "prefix_cache_hit_ratio"),
        ("Engine 000", "Engine -1", "engine"),
        ("Engine 000", "Engine 65536", "engine"),
    ],
)
def test_impossible_values_refuse_the_line(old, new, quantity):
    """I3: one value out of range makes the whole line unbelievable, and the notice names the field."""
    assert STATS_MESSAGE.count(old) == 1

    assert parse_stats(STATS_MESSAGE.replace(old, new)) == (
        Notice("value_out_of_range", quantity),
        Notice("stats_unparsed"),
    )


@pytest.mark.parametrize("value", ["0.0", "100.0", "100"])
def test_the_ends_of_a_range_belong_to_it(value):
    """Nothing at all and everything are possible."""
    (stats,) = parse_stats(STATS_MESSAGE.replace("9.1%", f"{value}%"))

    assert stats.kv_cache_usage_ratio == float(value) / 100


@pytest.mark.parametrize(
    "message",
    [
        "Avg prompt throughput: 12.3 tokens/s",
        "Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, Running: 7 reqs",
        f"{STATS_MESSAGE}, Running: 7 reqs",
        f"{STATS_MESSAGE}, Running: 9 requests too many",
        f"{STATS_MESSAGE}, Waiting: 9",
        STATS_MESSAGE.replace("7 reqs", "7 requests"),
        STATS_MESSAGE.replace("45.6 tokens/s", "4,5.6 tokens/s"),
        STATS_MESSAGE.replace("55.5%", "inf%"),
        STATS_MESSAGE.replace("55.5%", "55.5"),
        STATS_MESSAGE.replace("7 reqs", "\uff17 reqs"),
        STATS_MESSAGE.replace("45.6", "\u0664\u0665.\u0666"),
        STATS_MESSAGE.replace("9.1%", "\uff19.\uff11%"),
        STATS_MESSAGE.replace("7 reqs", "1_0 reqs"),
        STATS_MESSAGE.replace("7 reqs", "\u00a07 reqs"),
        STATS_MESSAGE[: STATS_MESSAGE.index("Waiting")],
    ],
)
def test_what_begins_as_statistics_and_is_not_understood_is_reported(message):
    """A torn line, one with a field twice, or with digits that vLLM does not print, is no statistics; it is counted."""
    assert parse_stats(message) == (Notice("stats_unparsed"),)


@pytest.mark.parametrize(
    "message",
    [
        (
            "Engine 000: Iteration(1): 2 context requests, 512 context tokens, 48 generation requests, "
            "48 generation tokens, iteration elapsed time: 10.50 ms, GPU KV cache usage: 50.0%"
        ),
        "Engine 000: MFU: 54.5 TF/s/device 321.5 GB/s/device",
        "MFU: 54.5 TF/s/GPU 321.5 GB/s/GPU",
        "KV Transfer metrics: Num successful transfers=343, Avg xfer time (ms)=1.84",
        "EC Transfer metrics: a=1",
        "DiffusionDecoding metrics: Committed token throughput: 1.00 tokens/s, Mean denoising steps per canvas: 1.00",
        "Prefix cache hit rate: GPU: 12.34%",
        "Prefix cache hit rate: GPU: many%, CPU: 0.00%",
        "External prefix cache hit rate: 7.8%",
        "x " + STATS_MESSAGE,
        "",
    ],
)
def test_other_lines_of_the_same_files_say_nothing(message):
    """Steps, MFU, transfers and text that merely holds statistics are no statistics."""
    assert parse_stats(message) == ()
